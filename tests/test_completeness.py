"""Laws that hold for every operator and every primitive, and the names that must exist.

Adding an operator or a primitive without its documentation, samples or derivative fails here.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import defaultdict
from pathlib import Path
from statistics import mean

import pytest

import flambeau
from flambeau.language.definition import KINDS, REGISTRY, Options, op
from flambeau.language.schema import parse_schema, print_schema
from flambeau.prims.record import NOT_DIFFERENTIABLE, PRIMITIVES

# Helpers behind public operators; their callers bring the samples.
PUBLIC = [k for k in REGISTRY if not k.split(".")[-1].startswith("_")]
HELPERS = [k for k in REGISTRY if k.startswith("private.")]  # before tests define any
# Operators without samples, and what tests them instead.
TESTED_ELSEWHERE = {
    **dict.fromkeys("manual_seed seed initial_seed get_rng_state set_rng_state".split(),
                    "tests/parity/test_random_streams.py"),
    **dict.fromkeys("tensor as_tensor asarray from_numpy frombuffer from_dlpack new_tensor".split(),
                    "tests/core/test_interop.py"),
    **dict.fromkeys("empty empty_like empty_permuted empty_strided new_empty "
                    "new_empty_strided".split(),
                    "nothing to compare: uninitialised"),
    **dict.fromkeys(("_scaled_mm", "nn.functional.scaled_mm"), "tests/ops/test_scaled_products.py"),
    "nn.functional.scaled_grouped_mm": "refused: tests/ops/test_grouped_products.py",
    **dict.fromkeys("to type cpu cuda".split(), "tests/ops/test_dtypes.py converts with them"),
    **dict.fromkeys("squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_ as_strided_ resize_ "
                    "detach_ resize_as_ set_".split(), "tests/autograd/test_inplace.py"),
}  # fmt: skip


@pytest.mark.parametrize("key", PUBLIC)
def test_operator_is_documented(key):
    document = REGISTRY[key].__doc__
    assert document and document.strip(), "hint: the body's docstring is the operator's page"
    native = REGISTRY[key].native
    if key != "_getitem":  # the native subscript, which is no function
        assert native.__doc__ == document


@pytest.mark.parametrize("key", PUBLIC)
def test_operator_has_samples(key):
    if key in TESTED_ELSEWHERE:
        pytest.skip(TESTED_ELSEWHERE[key])
    sampled = [o for o in REGISTRY[key].overloads if o.options.samples is not None]
    assert sampled, "hint: @op(..., samples=...)"
    for overload in sampled:
        assert next(iter(overload.options.samples()), None) is not None, "no sample"


@pytest.mark.parametrize("key", list(REGISTRY))
def test_schema_survives_printing(key):
    for overload in REGISTRY[key].overloads:
        schema = overload.schema
        runtime = " ".join(a.name for a in schema.arguments if a.runtime)
        again = parse_schema(print_schema(schema), runtime)
        assert again.arguments == schema.arguments
        assert again.returns_kind == schema.returns_kind


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind])
def test_kinds_state_options_that_definitions_share(kind):
    """Each option of a kind is one that `@op` has, and differs from what holds without a kind."""
    for option, value in KINDS[kind].items():
        assert getattr(Options, option) != value
    options = op("_never_defined(Tensor self) -> Tensor", kind=kind, where="torch method")
    try:
        stated = options(lambda self: self).options
        for option, value in KINDS[kind].items():
            assert getattr(stated, option) == value or option == "where"
    finally:
        del REGISTRY["_never_defined"]


def test_unknown_kinds_raise():
    with pytest.raises(TypeError, match="unknown kind 'pointwize'"):
        op("_never_defined(Tensor self) -> Tensor", kind="pointwize")(lambda self: self)


# Bodies that several schemas share, or whose argument has a name that Python reserves.
OTHER_NAMES = {
    **dict.fromkeys("addmm addmv addr addbmm baddbmm".split(), "one body: self, left, right"),
    **dict.fromkeys(
        (f"special.{name}" for name in (
            "airy_ai", "spherical_bessel_j0", "scaled_modified_bessel_k0",
            "scaled_modified_bessel_k1",
        )),
        "the body of every function of one argument",
    ),
    "random_": "from",
}  # fmt: skip


@pytest.mark.parametrize("key", list(REGISTRY))
def test_body_takes_the_schema(key):
    """The body's parameters are the schema's arguments, in order and by name."""
    for overload in REGISTRY[key].overloads:
        if overload.options.host:  # called as users call it: Python checks the arguments itself
            continue
        parameters = inspect.signature(overload.body).parameters.values()
        if any(p.kind == p.VAR_POSITIONAL for p in parameters):
            continue
        if key not in OTHER_NAMES:
            declared = [a.name for a in overload.schema.arguments]
            assert [p.name for p in parameters][: len(declared)] == declared
        required = [p for p in parameters if p.default is p.empty]
        assert len(required) <= len(overload.schema.arguments) <= len(parameters)


@pytest.mark.parametrize("name", list(PRIMITIVES))
def test_primitive_record_is_complete(name):
    record = PRIMITIVES[name]
    assert callable(record.infer)
    assert callable(record.derivative) or record.derivative == NOT_DIFFERENTIABLE
    if record.kind not in ("annotation", "random"):
        assert record.reference is not None, "no NumPy reference"
    if record.kind != "annotation":
        assert record.samples is not None and next(iter(record.samples()), None), "no samples"


def test_few_primitives():
    """DESIGN § 2: fewer than 150."""
    assert len(PRIMITIVES) < 150


def operator_decorators(*names):
    """Every decorator of these names that a function of `flambeau/ops` is called with, parsed."""
    for path in sorted((Path(__file__).parent.parent / "flambeau" / "ops").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for decorator in getattr(node, "decorator_list", ()):
                called = decorator.func if isinstance(decorator, ast.Call) else None
                if getattr(called, "id", getattr(called, "attr", "")) in names:
                    yield decorator


def test_host_shells_and_written_schemas_only_fall():
    """Lower a limit when its count falls."""
    decorators = list(operator_decorators("op", "overload"))
    assert len(decorators) > 450
    hosts = [d for d in decorators if any(k.arg == "host" for k in d.keywords)]
    assert len(hosts) <= 75
    assert len([d for d in decorators if d.args]) <= 57
    assert len(HELPERS) <= 36
    # What PyTorch has above its operators: in Python (`torch.functional`, `nn.functional` ...) or
    # in its bindings (`torch.tensor`, subscripts).
    assert len(list(operator_decorators("function"))) <= 47


def test_no_operator_is_defined_in_two_places():
    """A public name belongs to one definition, and a method is the function of its name."""
    owners = defaultdict(set)
    for key, definition in REGISTRY.items():
        names = [definition.name, *definition.options.aliases]
        if any(overload.options.inplace for overload in definition.overloads):
            names += [name + "_" for name in names]
        for home in definition.options.where:
            for name in names:
                owners["torch" if home == "method" else home, name].add(key)
    assert not {place: keys for place, keys in owners.items() if len(keys) > 1}


def _lines(function):
    """Lines of a body without its documentation."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    statements = getattr(tree, "body", [])
    if isinstance(tree, ast.FunctionDef) and ast.get_docstring(tree) is not None:
        statements = statements[1:]
    return statements[-1].end_lineno - statements[0].lineno + 1 if statements else 0


def test_composites_are_short():
    """DESIGN § 2: a body has 12 lines on average at most."""
    bodies = {
        overload.body.__code__: overload.body
        for definition in REGISTRY.values()
        for overload in definition.overloads
        if hasattr(overload.body, "__code__")
    }
    assert mean(map(_lines, bodies.values())) <= 12


# docs: FEATURES.md B.2, the first wave: groups 1, 2, 3 and 5.
FIRST_WAVE = """
Tensor.to Tensor Tensor.shape tensor Tensor.device device no_grad Tensor.cuda Tensor.item float32
zeros Tensor.data arange Tensor.backward Tensor.size Tensor.dtype dtype manual_seed randn ones
float16 Tensor.cpu from_numpy Tensor.long Tensor.tolist Tensor.bfloat16 bfloat16 Tensor.detach
Tensor.contiguous Tensor.dim Tensor.float Tensor.ndim Tensor.numel randint Tensor.numpy zeros_like
Tensor.clone load Generator empty rand Tensor.stride Tensor.type Tensor.normal_ save Tensor.bool
bool Tensor.T Tensor.grad Tensor.pin_memory Size Tensor.copy_ Tensor.fill_ int64 int32 is_tensor
Tensor.new_zeros full Tensor.requires_grad_ Tensor.double ones_like eye Tensor.half empty_like
Tensor.type_as float64 as_tensor Tensor.uniform_ randperm autograd.grad linspace Tensor.zero_
randn_like enable_grad uint8 get_default_dtype Tensor.new_empty inference_mode Tensor.new_ones
Tensor.int is_grad_enabled finfo is_floating_point autograd.Function full_like set_default_dtype
Tensor.new_full Tensor.new_tensor Tensor.data_ptr Tensor.is_contiguous set_default_device iinfo
Tensor.__getitem__ Tensor.__setitem__
cat Tensor.view Tensor.reshape Tensor.unsqueeze stack Tensor.flatten split Tensor.transpose
Tensor.permute Tensor.expand Tensor.t nonzero Tensor.squeeze Tensor.repeat chunk repeat_interleave
where tril Tensor.unfold masked_fill Tensor.unbind index_select flip gather Tensor.scatter_ diag
Tensor.expand_as meshgrid diagonal Tensor.unflatten triu Tensor.select narrow tile
Tensor.scatter_add_ roll
sum mean matmul sqrt log max allclose clamp norm exp argmax topk cos abs all pow equal add ge sin
prod sigmoid cumsum multinomial logsumexp argsort min median ceil sort maximum eq sub minimum mm
std std_mean any mul unique isfinite einsum isnan rsqrt floor tanh round amax var neg log1p div
outer log2 sign isclose bmm square reciprocal gt dot argmin linalg.norm linalg.vector_norm
nn.functional.pad nn.functional.scaled_dot_product_attention nn.functional.softmax
nn.functional.cross_entropy nn.functional.log_softmax nn.functional.relu nn.functional.interpolate
nn.functional.layer_norm nn.functional.linear nn.functional.dropout nn.functional.gelu
nn.functional.nll_loss nn.functional.mse_loss nn.functional.max_pool2d nn.functional.silu
nn.functional.softplus nn.functional.normalize nn.functional.binary_cross_entropy_with_logits
nn.functional.conv2d nn.functional.avg_pool2d nn.functional.elu
nn.Module nn.Linear nn.Parameter nn.Sequential nn.ModuleList nn.Dropout nn.Conv2d nn.ReLU nn.GELU
nn.Embedding nn.Identity nn.LayerNorm nn.BatchNorm2d nn.CrossEntropyLoss nn.ModuleDict
optim.SGD optim.Adam optim.AdamW compile
""".split()


@pytest.mark.parametrize("dotted", FIRST_WAVE)
def test_first_wave_name_exists(dotted):
    found = flambeau
    for part in dotted.split("."):
        assert hasattr(found, part), f"no {part} in {dotted}"
        found = getattr(found, part)
    data = ("Tensor.shape Tensor.device Tensor.dtype Tensor.ndim Tensor.grad Tensor.data Tensor.T "
            "float32 float16 bfloat16 float64 int64 int32 uint8 bool").split()  # fmt: skip
    assert dotted in data or callable(found), f"{dotted} cannot be called"
