"""The schema that a body's header states."""

from __future__ import annotations

import pytest

from flambeau.language.schema import annotated_schema, returns_single


def every_kind(
    self: Mutable[Tensor],  # noqa: F821 - annotations are text
    other: Tensor | Scalar,  # noqa: F821
    lists: Sequence[Tensor | None],  # noqa: F821
    size: Sequence[SymInt] | None = None,  # noqa: F821
    *,
    key: Any,  # noqa: F821
    visit: Callable[[int], int] | None = None,  # noqa: F821
    dtype: DType | None = None,  # noqa: F821
    eps: float = 1e-05,
    mode: str = "mean",
) -> tuple[Tensor, Tensor]:  # noqa: F821
    local = self
    return local, other


def test_every_kind():
    arguments = (
        "Tensor! self, TensorOrScalar other, Tensor?[] lists, SymInt[]? size=None, *, object key, "
        "object visit=None, dtype? dtype=None, float eps=1e-05, str mode='mean'"
    )
    assert annotated_schema(every_kind, "f") == f"f({arguments}) -> (Tensor, Tensor)"
    named = f"f({arguments}) -> (Tensor values, Tensor indices)"
    assert annotated_schema(every_kind, "f", "values indices") == named


@pytest.mark.parametrize(
    ("annotation", "results", "single"),
    [
        ("Tensor", "Tensor", True),
        ("bool", "bool", True),
        ("None", "()", False),
        ("list[Tensor]", "Tensor[]", False),
        ("tuple[Tensor, ...]", "(Tensor...)", False),
    ],
)
def test_results(annotation, results, single):
    def body(): ...

    body.__annotations__["return"] = annotation
    assert annotated_schema(body, "f") == f"f() -> {results}"
    assert returns_single("", body) is returns_single(f"f() -> {results}", body) is single


def test_missing_annotation():
    with pytest.raises(ValueError, match="f's body lacks annotations"):
        annotated_schema(lambda self: self, "f")
