"""What a body is told about the dtypes of its operands, before the driver converted them."""

from __future__ import annotations

from flambeau import prims
from flambeau.language.definition import Options, Overload, evaluate, given_dtype


def asked(promote, body, *operands):
    """What `body` notes when it runs under a promotion rule."""
    text = f"probe({', '.join(f'Tensor x{i}' for i in range(len(operands)))}) -> Tensor"
    seen = []

    def noting(*inner):
        seen.append(body(*inner))
        return inner[0]

    evaluate(Overload("probe", text, noting, Options({"promote": promote})), operands)
    return seen[0]


def vector(dtype):
    return prims.full(1.0, (4,), dtype)


def test_widened_and_promoted_operands():
    assert asked("keep", lambda x: (x.dtype, given_dtype(x)), vector("bf16")) == ("f32", "bf16")
    both = asked("default", lambda a, b: (given_dtype(a), given_dtype(b), a.dtype),
                 vector("f16"), vector("f64"))  # fmt: skip
    assert both == ("f16", "f64", "f64")
    assert asked("float", given_dtype, vector("i64")) == "i64"


def test_a_sample_to_which_a_batch_was_added():
    batched = asked("keep", lambda x: given_dtype(prims.reshape(x, (1, 4))), vector("f16"))
    assert batched == "f16"


def test_what_the_body_cast_by_itself_is_no_half():
    """Though the nodes are the same as the driver's: only who cast them differs."""
    wide = asked("none", lambda x: given_dtype(prims.cast(x, "f32")), vector("bf16"))
    assert wide == "f32"
    inner = asked(
        "none", lambda x: asked("keep", given_dtype, prims.cast(x, "f32")), vector("bf16")
    )
    assert inner == "f32"


def test_an_operator_inside_of_another():
    inner = asked("keep", lambda x: asked("keep", given_dtype, x), vector("bf16"))
    assert inner == "bf16"
    computed = asked("keep", lambda x: asked("keep", given_dtype, x + x), vector("bf16"))
    assert computed == "f32"
    assert asked("keep", given_dtype, vector("f32")) == "f32", "nothing is left of earlier bodies"
