"""`torch.export`: programs beside eager mode bit for bit, their checks, decompositions, trees."""

from __future__ import annotations

import copy
import dataclasses
import io
import threading

import pytest

import flambeau as torch
from flambeau import nn
from flambeau._higher_order_ops.map import map as map_rows
from flambeau._higher_order_ops.scan import scan
from flambeau.export import (
    AdditionalInputs,
    Dim,
    ExportedProgram,
    export,
    register_dataclass,
    unflatten,
)
from flambeau.export._decomposed import has_writes
from flambeau.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes
from flambeau.export.passes import move_to_device_pass
from flambeau.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from flambeau.utils import _pytree as pytree


def module_of(function, *children):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.children_list = nn.ModuleList(children)

        def forward(self, *args, **kwargs):
            return function(self, *args, **kwargs)

    return Model()


def values(*shape):
    return (torch.arange(float(torch.Size(shape).numel())) * 0.37 - 1).sin().reshape(shape)


def models():
    """name: (module, arguments)."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    shared = nn.Linear(3, 3)
    return {
        "linear": (nn.Linear(3, 4), (values(2, 3),)),
        "conv": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)), (values(2, 3, 8, 8),)),
        "batch_norm": (nn.BatchNorm2d(3).eval(), (values(2, 3, 4, 4),)),
        "dropout": (nn.Sequential(nn.Linear(3, 4), nn.Dropout()).eval(), (values(2, 3),)),
        "lstm": (nn.LSTM(3, 4, num_layers=2, bidirectional=True), (values(5, 2, 3),)),
        "gru": (nn.GRU(3, 4, batch_first=True), (values(2, 5, 3),)),
        "rnn": (nn.RNN(3, 4), (values(5, 2, 3),)),
        "rnn_without_bias": (nn.RNN(3, 4, bias=False, nonlinearity="relu"), (values(5, 2, 3),)),
        "lstm_without_bias": (nn.LSTM(3, 4, bias=False), (values(5, 2, 3),)),
        "gru_without_bias": (nn.GRU(3, 4, bias=False), (values(5, 2, 3),)),
        "similarity": (nn.CosineSimilarity(), (values(4, 5), values(4, 5) + 1)),
        "mean_squares": (nn.MSELoss(), (values(4, 5), values(4, 5) + 1)),
        "max_pool": (nn.MaxPool2d(2, return_indices=True), (values(2, 3, 4, 4),)),
        "adaptive": (nn.AdaptiveMaxPool1d(2), (values(2, 3, 4),)),
        "cell": (nn.LSTMCell(3, 4), (values(2, 3),)),
        "encoder": (encoder, (values(2, 5, 8),)),
        "encoder_eval": (nn.TransformerEncoderLayer(8, 2, 16).eval(), (values(5, 2, 8),)),
        "attention": (nn.MultiheadAttention(8, 2), (values(5, 2, 8),) * 3),
        "embedding": (nn.Sequential(nn.Embedding(5, 3), nn.LayerNorm(3)), (torch.tensor([1, 4]),)),
        "tied": (nn.Sequential(shared, shared, nn.ReLU()), (values(2, 3),)),
        "loss": (
            module_of(lambda self, x, t: nn.functional.cross_entropy(x, t)),
            (values(2, 4), torch.tensor([1, 2])),
        ),
        "complex": (module_of(lambda self, x: torch.fft.rfft(x).abs()), (values(4, 6),)),
        "views": (
            module_of(lambda self, x: (x.T @ x, x[1:, ::2], x.unflatten(0, (2, 2)), x.chunk(2))),
            (values(4, 3),),
        ),
        "double": (module_of(lambda self, x: x.double().softmax(-1).float()), (values(4, 3),)),
        "cond": (
            module_of(
                lambda self, x: torch.cond(x.sum() > 0, self.children_list[0], torch.sin, (x,)),
                nn.Linear(3, 3),
            ),
            (values(2, 3),),
        ),
        "while": (
            module_of(
                lambda self, x: torch.while_loop(
                    lambda n, x: n < 3, lambda n, x: (n + 1, x * 2), (torch.tensor(0), x)
                )
            ),
            (values(2, 3),),
        ),
        "scan": (
            module_of(lambda self, x: scan(lambda c, x: (c + x, c * x), torch.zeros(3), x)),
            (values(4, 3),),
        ),
        "map": (
            module_of(
                lambda self, x: map_rows(
                    lambda x, y: self.children_list[0](x) + y, x, torch.ones(3)
                ),
                nn.Linear(3, 3),
            ),
            (values(4, 3),),
        ),
    }  # fmt: skip


def equal(one, other):
    leaves = [pytree.tree_leaves(x) for x in (one, other)]
    assert len(leaves[0]) == len(leaves[1])
    for a, b in zip(*leaves, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.parametrize("name", models())
def test_programs_give_the_bits_of_eager_mode(name):
    model, args = models()[name]
    program = export(model, args)
    program.validate()
    expected = model(*args)
    equal(program.module()(*args), expected)
    core = program.run_decompositions()
    core.validate()
    assert not has_writes(core.graph)
    if name == "similarity":  # its decomposition divides before it multiplies
        assert torch.allclose(core.module()(*args), expected)
        return
    equal(core.module()(*args), expected)
    for each in (program, core):
        equal(unflatten(each)(*args), expected)


@pytest.mark.parametrize("name", models())
def test_modules_are_left_as_they_were(name):
    model, args = models()[name]
    before = {k: (id(v), v.clone()) for k, v in model.state_dict(keep_vars=True).items()}
    attributes = [set(vars(m)) for m in model.modules()]
    export(model, args)
    after = model.state_dict(keep_vars=True)
    assert {k: id(v) for k, v in after.items()} == {k: v[0] for k, v in before.items()}
    assert all(torch.equal(after[k], v[1]) for k, v in before.items())
    assert [set(vars(m)) for m in model.modules()] == attributes
    equal(model(*args), model(*args))


# ------------------------------------------------------------------------------ writes
def test_batch_norm_in_training_updates_its_statistics():
    x = values(4, 3)
    model, copies = nn.BatchNorm1d(3), [nn.BatchNorm1d(3) for _ in range(2)]
    program = export(copies[0], (x,))
    core = export(copies[1], (x,)).run_decompositions()
    for _ in range(3):
        expected = model(x)
        equal(program.module()(x), expected)
        equal(core.module()(x), expected)
    for each in copies:
        equal(dict(each.named_buffers()), dict(model.named_buffers()))
    assert [spec.kind.name for spec in core.graph_signature.output_specs] == [
        "BUFFER_MUTATION", "BUFFER_MUTATION", "BUFFER_MUTATION", "USER_OUTPUT",
    ]  # fmt: skip


def test_inputs_that_are_written():
    model = module_of(lambda self, x, y: x.mul_(2).add_(y))
    program = export(model, (values(3), values(3)))
    for each in (program, program.run_decompositions()):
        x, y = values(3), values(3)
        expected, written = values(3), values(3)
        equal(each.module()(x, y), model(written, expected))
        equal(x, written)
    assert dict(program.run_decompositions().graph_signature.user_inputs_to_mutate) == {
        "add": "args_0"
    }


def test_buffers_that_are_assigned():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x):
            self.count = self.count + x
            return self.count * 2

    model, other = Counter(), Counter()
    program = export(model, (values(2),))
    equal(model.count, torch.zeros(2))
    module = program.module()
    for _ in range(2):
        equal(module(values(2)), other(values(2)))


def test_training_of_an_exported_program():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    other = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    other.load_state_dict(model.state_dict())
    module = export(model, (values(5, 3),)).module()
    assert {name for name, _ in module.named_parameters()} == set(model.state_dict())
    for each in (module, other):
        each(values(5, 3)).square().sum().backward()
    for (_, a), (_, b) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_parts_without_gradients():
    def forward(self, x):
        with torch.no_grad():
            y = self.children_list[0](x).exp()
            z = y.sum(0)
        return y * x + z + x.detach()

    model = module_of(forward, nn.Linear(3, 3))
    program = export(model, (values(2, 3),))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert targets.count("wrap_with_set_grad_enabled") == 1 and "aten.exp.default" not in targets
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    gradients = []
    modules = (model, program.module(), unflatten(program), torch.export.load(buffer).module())
    for each in modules:
        x = values(2, 3).requires_grad_()
        result = each(x)
        result.sum().backward()
        equal(result, model(x))
        gradients.append(x.grad)
        parameters = list(each.parameters())
        assert len(parameters) == 2 and all(p.grad is None for p in parameters)
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)
    core = program.run_decompositions()
    assert all("wrap" not in str(node.target) for node in core.graph.nodes)
    equal(core.module()(values(2, 3)), model(values(2, 3)))


# ------------------------------------------------------------------------------ arguments
@dataclasses.dataclass
class Pair:
    x: torch.Tensor
    n: int


register_dataclass(Pair, serialized_type_name="tests.Pair")


def test_containers_and_keywords():
    class Model(nn.Module):
        def forward(self, pair, *, d, flag=True):
            y = pair.x + d["a"][0] * pair.n
            return {"pair": Pair(y, 3), "rest": [None, "text", d["a"][1]]} if flag else y

    args = (Pair(values(3), 2),)
    named = {"d": {"a": (values(3), values(2))}}
    program = export(Model(), args, named)
    assert [n.name for n in program.graph.find_nodes(op="placeholder")] == [
        "pair_x", "pair_n", "d_a_0", "d_a_1",
    ]  # fmt: skip
    result = program.module()(*args, **named)
    assert isinstance(result["pair"], Pair) and result["rest"][:2] == [None, "text"]
    equal(result["pair"].x, Model()(*args, **named)["pair"].x)
    with pytest.raises(ValueError, match="kwarg keyword mismatch"):
        program.module()(*args)
    with pytest.raises(ValueError, match="exported input tree spec"):
        program.module()((values(3), 2), **named)
    with pytest.raises(AssertionError, match="Guard failed: pair_n == 2"):
        program.module()(Pair(values(3), 5), **named)


def test_a_parameter_that_two_modules_share():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    module = export(model, (values(2, 3),)).module()
    equal(module(values(2, 3)), model(values(2, 3)))
    with torch.no_grad():
        model[0].weight.mul_(2)
    equal(module(values(2, 3)), model(values(2, 3)))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="instance of `torch.nn.Module`"):
        export(torch.sin, (values(2),))
    with pytest.raises(RuntimeError, match="`args` to be a tuple"):
        export(nn.ReLU(), [values(2)])
    with pytest.raises(RuntimeError, match="Unsupported input type"):
        export(module_of(lambda self, x: 1), (object(),))
    with pytest.raises(GuardOnDataDependentSymNode):
        export(module_of(lambda self, x: x if x.sum() > 0 else -x), (values(2),))
    with pytest.raises(AttributeError, match="0"):
        export(nn.ReLU(), (values(2),), preserve_module_call_signature=("0",))
    program = export(nn.ReLU(), (values(2),))
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        program(values(2))
    with pytest.raises(NotImplementedError, match=r"eval\(\)"):
        program.module().eval()
    assert isinstance(program, ExportedProgram)


# ------------------------------------------------------------------------------ sizes
B, T = Dim("b", min=2, max=100), Dim("t", min=2, max=64)


def sized():
    """name: (module, arguments, shapes, arguments of other sizes)."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    layers = (nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2))
    conv = nn.Sequential(*layers).eval()
    pooled = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval()
    normed = nn.Sequential(nn.GroupNorm(3, 3), nn.InstanceNorm2d(3), nn.Softmax(2))
    width = Dim("w", min=3, max=40)
    embed = nn.Sequential(nn.Embedding(10, 4), nn.LayerNorm(4))
    cond = module_of(lambda self, x: torch.cond(x.shape[0] > 4, torch.sin, torch.cos, (x,)))
    flat = module_of(lambda self, x: (x.reshape(x.shape[0] * x.shape[1], -1), x.flatten(1)))
    return {
        "linear": (nn.Linear(3, 4), (values(2, 3),), ({0: B},), (values(7, 3),)),
        "linear3": (nn.Linear(3, 4), (values(2, 5, 3),), ({0: B, 1: T},), (values(7, 4, 3),)),
        "lstm": (nn.LSTM(3, 4), (values(5, 2, 3),), ({1: B},), (values(5, 7, 3),)),
        "encoder": (encoder, (values(2, 5, 8),), ({0: B, 1: T},), (values(7, 9, 8),)),
        "conv": (
            conv, (values(2, 3, 8, 8),), ({0: B, 2: T, 3: width},), (values(3, 3, 9, 7),),
        ),
        "pooled": (pooled, (values(2, 3, 8, 8),), ({0: B, 2: T},), (values(5, 3, 10, 8),)),
        "normed": (normed, (values(2, 3, 8, 8),), ({0: B, 2: T},), (values(5, 3, 3, 8),)),
        "embed": (
            embed, (torch.ones(2, 5, dtype=torch.int64),), ({0: B, 1: T},),
            (torch.ones(3, 8, dtype=torch.int64),),
        ),
        "cond": (cond, (values(3, 2),), ({0: B},), (values(7, 2),)),
        "flat": (flat, (values(3, 5, 2),), ({0: B, 1: T},), (values(4, 6, 2),)),
        "shifted": (
            module_of(lambda self, x, y: x[1:] + y), (values(6), values(5)),
            (({0: B + 1}, {0: B}),), (values(9), values(8)),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", sized())
def test_programs_hold_for_other_sizes(name):
    model, args, shapes, others = sized()[name]
    if isinstance(model, nn.Module) and type(model).__name__ == "Model":
        shapes = (shapes,) if not isinstance(shapes[0], tuple) else shapes  # of *args
    program = export(model, args, dynamic_shapes=shapes)
    core = program.run_decompositions()
    for each in (args, others):
        expected = model(*each)
        equal(program.module()(*each), expected)
        equal(core.module()(*each), expected)
        equal(unflatten(program)(*each), expected)


def test_dropout_of_other_sizes():
    x, program = values(6, 8), export(nn.Dropout(0.5), (values(3, 8),), dynamic_shapes=({0: B},))
    for each in (program, program.run_decompositions()):
        torch.manual_seed(3)
        expected = nn.functional.dropout(x, 0.5)
        torch.manual_seed(3)
        equal(each.module()(x), expected)


def test_guards_of_sizes():
    program = export(
        module_of(lambda self, x: x.view(2, -1)), (values(8),), dynamic_shapes=(({0: Dim.AUTO},),)
    )
    module = program.module()
    assert module(values(6)).shape == (2, 3)
    with pytest.raises(AssertionError, match=r"Guard failed: \(args_0.size\(\)\[0\] % 2\) == 0"):
        module(values(7))
    equal(program.module(check_guards=False)(values(6)), module(values(6)))


def test_decompositions_leave_the_program_as_it_was():
    program = export(nn.LSTM(3, 4), (values(5, 2, 3),), dynamic_shapes=({1: B},))
    before = str(program)
    program.run_decompositions()
    assert str(program) == before
    equal(program.module()(values(5, 9, 3))[0].shape[1], 9)


def test_checks_of_numbers_that_data_decide():
    def forward(self, x, n):
        n = n.item()
        torch._check(n >= 0)
        torch._check(n < 5)
        return torch.zeros(n) + x

    program = export(module_of(forward), (values(1), torch.tensor(3)))
    assert [str(limits) for limits in program.range_constraints.values()] == ["VR[0, 4]"]
    assert program.module()(values(1), torch.tensor(4)).shape == (4,)
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        program.module()(values(1), torch.tensor(7))


@pytest.mark.parametrize(
    ("forward", "args", "shapes", "other"),
    [
        (lambda self, x: x.view(-1, 2), (values(8),), ({0: Dim("n")},), (values(6),)),
        (lambda self, x: x + 1 if x.shape[0] > 3 else x, (values(8),), ({0: Dim("n")},), None),
        (lambda self, x: x + values(8), (values(8),), ({0: Dim("n")},), (values(8),)),
        (lambda self, x, y: x[1:] + y, (values(5), values(4)), ({0: Dim("a")}, {0: Dim("b")}),
         (values(9), values(8))),
        (lambda self, x, y: x + y, (values(5), values(5)), ({0: Dim("a")}, {0: Dim("b")}), None),
    ],
)  # fmt: skip
def test_suggested_fixes_are_fixes(forward, args, shapes, other):
    model = module_of(forward)
    with pytest.raises(RuntimeError, match="Constraints violated") as error:
        export(model, args, dynamic_shapes=(shapes,))
    refined = refine_dynamic_shapes_from_suggested_fixes(str(error.value), (shapes,))
    module = export(model, args, dynamic_shapes=refined).module()
    for each in (args, other or args):
        equal(module(*each), model(*each))


def test_additional_inputs():
    inputs = AdditionalInputs()
    inputs.add((values(6, 3),))
    program = export(nn.Linear(3, 2), (values(4, 3),), dynamic_shapes=inputs)
    assert program.module()(values(9, 3)).shape == (9, 2)
    inputs.verify(program)


# ------------------------------------------------------------------------------ parts
def test_unflattened_modules_are_those_that_ran():
    layer = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model = nn.Sequential(layer, nn.Tanh(), layer)
    tree = unflatten(export(model, (values(2, 3),)))
    names = [name for name, _ in tree.named_modules()]
    assert {"0", "0.0", "0.1", "1", "0@1"} <= set(names)
    assert "0.0.weight" in tree.state_dict()
    equal(tree(values(2, 3)), model(values(2, 3)))
    with pytest.raises(TypeError, match="flat args adapter"):
        tree(values(2, 3), values(2, 3))


def test_another_device():
    program = export(nn.Linear(2, 3), (values(1, 2),))
    moved = move_to_device_pass(program, {"cpu": "meta"})
    assert {x.device.type for x in moved.state_dict.values()} == {"meta"}
    assert moved.module()(values(1, 2).to("meta")).device.type == "meta"


def test_nodes_remember_their_modules():
    program = export(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (values(2, 3),))
    (linear,) = [n for n in program.graph.nodes if n.name == "linear"]
    assert linear.meta["nn_module_stack"] == {
        "L__self__": ("", "torch.nn.modules.container.Sequential"),
        "L__self__0": ("0", "torch.nn.modules.linear.Linear"),
    }
    assert [entry.fqn for entry in program.module_call_graph] == ["", "0", "1"]
    text = str(program)
    assert "p_0_weight: PARAMETER target='0.weight'" in text and "Range constraints: {}" in text


@torch.library.custom_op("tests_export::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


def test_operators_of_users():
    program = export(
        module_of(lambda self, x: twice(x) + 1), (values(3),), dynamic_shapes=(({0: B},),)
    )
    for each in (program, program.run_decompositions()):
        targets = [str(node.target) for node in each.graph.nodes if node.op == "call_function"]
        assert targets == ["tests_export.twice.default", "aten.add.Tensor"]
        buffer = io.BytesIO()
        torch.export.save(each, buffer)
        buffer.seek(0)
        for x in (values(3), values(5)):
            equal(each.module()(x), x * 2 + 1)
            equal(torch.export.load(io.BytesIO(buffer.getvalue())).module()(x), x * 2 + 1)


def test_copies_and_compiled_programs():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    program = export(model, (values(5, 3),), dynamic_shapes=({0: B},))
    other = copy.deepcopy(program)
    assert other.state_dict["0.weight"] is not program.state_dict["0.weight"]
    compiled = torch.compile(program.module())
    for each in (other.module(), copy.deepcopy(program.module()), compiled):
        for x in (values(5, 3), values(7, 3)):
            equal(each(x), model(x))
    with pytest.raises(AssertionError, match="Guard failed"):
        compiled(values(101, 3))


def test_modules_of_other_threads_are_not_part():
    done = threading.Event()

    def run():
        layer = nn.Linear(3, 3)
        while not done.is_set():
            layer(values(2, 3))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(5):
            program = export(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (values(2, 3),))
            assert [n.name for n in program.graph.nodes][-3:] == ["linear", "relu", "output"]
            stacks = [n.meta["nn_module_stack"] for n in program.graph.nodes if n.name == "relu"]
            assert [list(stack) for stack in stacks] == [["L__self__", "L__self__1"]]
    finally:
        done.set()
        thread.join()


def test_checks_of_data_in_decomposed_programs():
    class Checked(nn.Module):
        def forward(self, x):
            number = x.sum().item()
            torch._check(number > 3)
            return x + number

    program = export(Checked(), (torch.ones(4),))
    for each in (program, program.run_decompositions(), program.run_decompositions({})):
        assert torch.equal(each.module()(torch.ones(4)), torch.full((4,), 5.0))
        with pytest.raises(RuntimeError, match="assertion failed"):
            each.module()(torch.zeros(4))


@pytest.mark.parametrize("model", [nn.AdaptiveMaxPool2d(2), nn.AdaptiveMaxPool2d((3, None))])
def test_images_whose_sizes_vary(model):
    shapes = ({0: Dim("batch"), 2: Dim("height", min=4)},)
    program = export(model, (torch.rand(2, 3, 8, 9),), dynamic_shapes=shapes)
    module = program.module()
    for sizes in ((1, 3, 4, 9), (3, 3, 11, 9), (2, 3, 8, 9)):
        x = torch.rand(*sizes)
        assert torch.equal(module(x), model(x))

    class Rows(nn.Module):
        def forward(self, x):
            return torch.arange(model(x).shape[-1] + model(x).shape[-2])

    rows = export(Rows(), (torch.rand(2, 3, 8, 9),), dynamic_shapes=shapes).module()
    for height in (4, 5, 11):
        x = torch.rand(2, 3, height, 9)
        assert torch.equal(rows(x), Rows()(x))
