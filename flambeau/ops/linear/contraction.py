"""Contractions of any dimensions: einsum, tensordot, products of many matrices.

A contraction of two operands becomes one batched matrix product: dimensions are sorted into batch
(in both and kept), free (in one) and summed (in both, dropped).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.core.tensors import is_tensor
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.language import layout
from flambeau.language.definition import REGISTRY, function, op
from flambeau.language.promotion import CATEGORY, compute_dtype, promote_types
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import SymInt, Tensor
from flambeau.ops.broadcasting import broadcast_sizes
from flambeau.ops.cast_rules import call_with
from flambeau.ops.common import columns, is_one, normalise_dim, number_shown
from flambeau.ops.linear.complex_products import running_product
from flambeau.ops.linear.factorisations import check_matrices
from flambeau.ops.linear.matrix import product
from flambeau.ops.linear.solutions import inverted

Labels = tuple[str, ...]


def _labels(name: str, text: str, ndim: int) -> Labels:
    """One label per dimension; those an ellipsis covers are "0", "1" ... from the right."""
    before, dots, after = text.partition("...")
    if "." in before or "." in after:
        raise failure(RuntimeError, name, f"found '.' that is not part of '...' in {text!r}", "...")
    letters = before + after
    if not all(c.isalpha() and c.isascii() for c in letters):
        problem = f"invalid subscript given in {text!r}, subscripts must be in [a-zA-Z]"
        raise failure(RuntimeError, name, problem, "one letter per dimension")
    covered = ndim - len(letters)
    if covered < 0 or (covered and not dots):
        problem = f"the number of subscripts in {text!r} does not match the number of dimensions "
        problem += f"({ndim}) of the operand"
        raise failure(RuntimeError, name, problem, "use ... for the rest")
    middle = tuple(str(i) for i in reversed(range(covered)))
    return (*before, *middle, *after)


def _parse(name: str, equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Labels of each operand and of the result."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        problem = "fewer or more operands were provided than specified in the equation: "
        problem += f"{len(ranks)} for {len(terms)} terms"
        raise failure(RuntimeError, name, problem, "one term per operand")
    labels = [_labels(name, term, ndim) for term, ndim in zip(terms, ranks, strict=True)]
    everything = [label for term in labels for label in term]
    dots = sorted({x for x in everything if x.isdigit()}, key=int, reverse=True)
    if not arrow:
        once = sorted(x for x in set(everything) if everything.count(x) == 1 and x.isalpha())
        return labels, (*dots, *once)
    before, _, after = output.partition("...")
    result = (*before, *(dots if "..." in output else ()), *after)
    for label in result:
        if result.count(label) > 1 or label not in everything:
            problem = f"output subscript {label} appears more than once in the output, or does "
            problem += "not appear in the equation for any input operand"
            raise failure(RuntimeError, name, problem, "check the right side")
    return labels, result


def _diagonal(name: str, x: Node, labels: Labels) -> tuple[Node, Labels]:
    """Repeated labels of one operand become one dimension: its diagonal."""
    for label in labels:
        places = [d for d, other in enumerate(labels) if other == label]
        if len(places) < 2:
            continue
        first, second = places[:2]
        extent = x.shape[first]
        if not layout.same(extent, x.shape[second]):
            problem = f"subscript {label} is repeated for operand but the sizes don't match, "
            problem += f"{number_shown(x.shape[second])} != {number_shown(extent)}"
            raise failure(RuntimeError, name, problem, "a diagonal")
        others = [d for d in range(x.ndim) if d not in (first, second)]
        moved = prims.permute(x, [*others, first, second])
        lead = tuple(x.shape[d] for d in others)
        flat = prims.reshape(moved, (*lead, extent * extent))
        line = prims.slice(flat, len(others), 0, extent, extent + 1)
        left = tuple(labels[d] for d in others)
        return _diagonal(name, line, (*left, label))
    return x, labels


def _summed(x: Node, labels: Labels, keep: set[str]) -> tuple[Node, Labels]:
    """Labels that nobody else needs are summed away."""
    drop = [d for d, label in enumerate(labels) if label not in keep]
    if drop:
        wide = {"f16": "f32", "bf16": "f32"}.get(x.dtype, x.dtype)
        x = prims.cast(prims.reduce_dims("sum", prims.cast(x, wide), drop), x.dtype)
    return x, tuple(label for label in labels if label in keep)


def _sizes(name: str, *operands: tuple[Node, Labels]) -> dict[str, Size]:
    sizes: dict[str, Size] = {}
    for x, labels in operands:
        for label, extent in zip(labels, x.shape, strict=True):
            current = sizes.get(label, 1)
            if is_one(current):
                sizes[label] = extent
            elif not is_one(extent) and not layout.same(current, extent):
                problem = f"subscript {label} has size {number_shown(extent)} for one operand "
                problem += "which does not broadcast with previously seen size "
                problem += f"{number_shown(current)}"
                raise failure(RuntimeError, name, problem, "equal letters are equal sizes")
    return sizes


def _arranged(x: Node, labels: Labels, order: Sequence[str], sizes: dict[str, Size]) -> Node:
    """x with its dimensions in this order, stretched to these sizes."""
    moved = prims.permute(x, [labels.index(label) for label in order])
    return prims.broadcast_to(moved, tuple(sizes[label] for label in order))


def _contract(
    name: str, a: Node, first: Labels, b: Node, second: Labels, keep: set[str]
) -> tuple[Node, Labels]:
    """Two operands become one; labels in neither the result nor other operands are summed."""
    a, first = _summed(a, first, keep | set(second))
    b, second = _summed(b, second, keep | set(first))
    sizes = _sizes(name, (a, first), (b, second))
    batch = [x for x in first if x in second and x in keep]
    inner = [x for x in first if x in second and x not in keep]
    rows = [x for x in first if x not in second]
    columns = [x for x in second if x not in first]

    def joined(labels: Sequence[str]) -> Size:
        return layout.numel([sizes[x] for x in labels])

    left = _arranged(a, first, [*batch, *rows, *inner], sizes)
    right = _arranged(b, second, [*batch, *inner, *columns], sizes)
    lead = tuple(sizes[x] for x in batch)
    left = prims.reshape(left, (*lead, joined(rows), joined(inner)))
    right = prims.reshape(right, (*lead, joined(inner), joined(columns)))
    labels = (*batch, *rows, *columns)
    if not inner:  # no sum: an outer product, cheaper as a multiplication
        common = promote_types(a.dtype, b.dtype)
        wide = compute_dtype(common)
        contracted = prims.cast(prims.cast(left, wide) * prims.cast(right, wide), common)
    else:
        contracted = product(name, left, right)
    return prims.reshape(contracted, tuple(sizes[x] for x in labels)), labels


def _einsum_samples() -> Iterator[Sample]:
    yield sample("ij,jk->ik", T(3, 4), T(4, 5))
    yield sample("bij,bjk->bik", T(2, 3, 4), T(2, 4, 5))
    yield sample("ij->ji", T(3, 4))
    yield sample("ij->", T(3, 4))
    yield sample("ii->i", T(3, 3))
    yield sample("ii", T(3, 3))
    yield sample("i,j->ij", T(3), T(4))
    yield sample("i,i->", T(3), T(3))
    yield sample("bhqd,bhkd->bhqk", T(2, 3, 4, 5), T(2, 3, 6, 5))
    yield sample("...ij,...jk->...ik", T(2, 3, 4), T(4, 5))
    yield sample("ij,jk,kl->il", T(2, 3), T(3, 4), T(4, 5))
    yield sample("ijk,kj", T(2, 3, 4), T(4, 3))


def _einsum_parts(op: Any, equation: str, tensors: Sequence[Any]) -> Any:
    """Pair by pair: those with a sum over a common letter are products, whose operands are cast."""
    terms, result = _parse("einsum", equation, [x.ndim for x in tensors])
    if len(tensors) == 1:
        return call_with("", op, equation, list(tensors))
    labels = dict.fromkeys(label for term in terms for label in term)
    letters = dict(zip(labels, map(chr, (*range(65, 91), *range(97, 123))), strict=False))

    def text(term: Sequence[str]) -> str:
        return "".join(letters[label] for label in term)

    current, first = tensors[0], terms[0]
    for position, (x, term) in enumerate(zip(tensors[1:], terms[1:], strict=True), 1):
        later = {label for other in terms[position + 1 :] for label in other}
        keep = later | set(result)
        both = tuple(dict.fromkeys((*first, *term)))
        out = tuple(label for label in both if label in keep) if later else result
        rule = "lower" if set(first) & set(term) - keep else ""
        step = f"{text(first)},{text(term)}->{text(out)}"
        current, first = call_with(rule, op, step, [current, x]), out
    return current


@op(where="torch", autocast=_einsum_parts)
def _einsum(equation: str, tensors: Sequence[Tensor]) -> Tensor:
    """One program for a whole equation; operands are contracted from left to right."""
    terms, result = _parse("einsum", equation, [x.ndim for x in tensors])
    operands = [_diagonal("einsum", x, t) for x, t in zip(tensors, terms, strict=True)]
    _sizes("einsum", *operands)
    current, labels = operands[0]
    for position, (x, term) in enumerate(operands[1:], 1):
        later = {label for _, t in operands[position + 1 :] for label in t}
        current, labels = _contract("einsum", current, labels, x, term, later | set(result))
    current, labels = _summed(current, labels, set(result))
    return prims.permute(current, [labels.index(label) for label in result])


@function(
    where="torch",
    samples=_einsum_samples,
    errors=lambda: [
        ErrorSample(sample("ij,jk", T(2, 3), T(4, 5)), RuntimeError, "does not broadcast")
    ],
    reference="numpy.einsum",
)
def einsum(equation: Any, *operands: Any) -> Any:
    """Sums of products by Einstein's convention: letters name dimensions.

    A letter that is missing on the right of "->" is summed over; without "->" letters that occur
    once are kept, in alphabetical order; "..." stands for broadcast dimensions; a letter repeated
    in one term takes the diagonal. Operands are contracted from left to right, two at a time, each
    pair as one batched matrix product. Sublists (`einsum(x, [0, 1], y, [1, 2], [0, 2])`) work too.

    Raises:
        RuntimeError: an equation that cannot be read, or sizes that do not fit.
        ValueError: nothing behind the equation.

    Example:
        >>> torch.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(3, 4)).shape
        torch.Size([2, 4])
    """
    if not operands:
        problem = "must specify the equation string and at least one operand, or at least one "
        problem += "operand and its subscripts list"
        raise failure(ValueError, "einsum", problem, "einsum('ij,jk->ik', a, b)")
    if not isinstance(equation, str):
        equation, operands = _from_sublists((equation, *operands))
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not operands:
        raise failure(RuntimeError, "einsum", "must provide at least one operand", "pass tensors")
    return _einsum(equation, list(operands))


def _letter(number: Any) -> str:
    if number is Ellipsis:
        return "..."
    return chr(ord("A") + number) if number < 26 else chr(ord("a") + number - 26)


def _from_sublists(arguments: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """The equation and operands of the form tensor, list, tensor, list, ..., [list]."""
    pairs = len(arguments) // 2
    terms = ["".join(map(_letter, arguments[2 * i + 1])) for i in range(pairs)]
    equation = ",".join(terms)
    if len(arguments) % 2:
        equation += "->" + "".join(map(_letter, arguments[-1]))
    return equation, tuple(arguments[2 * i] for i in range(pairs))


# ------------------------------------------------------------------------------------ tensordot


def _tensordot_samples() -> Iterator[Sample]:
    yield sample(T(2, 3, 4), T(3, 4, 5))
    yield sample(T(2, 3), T(3, 4), 1)
    yield sample(T(2, 3), T(4), 0)
    yield sample(T(3, 4, 5), T(4, 3, 2), ([1, 0], [0, 1]))


@op(kind="product", where="torch")
def _tensordot(
    self: Tensor, other: Tensor, dims_self: Sequence[int], dims_other: Sequence[int]
) -> Tensor:
    """Sums of products over pairs of dimensions."""
    first, second = dims_self, dims_other
    if self.dtype != other.dtype:
        problem = f"both inputs should have same dtype, but got {self.dtype} and {other.dtype}"
        raise failure(RuntimeError, "tensordot", problem, "convert one of them")
    if len(first) != len(second):
        problem = f"both dimension lists should have same length, got {len(first)} and "
        problem += f"{len(second)}"
        raise failure(RuntimeError, "tensordot", problem, "pair the dimensions")
    a = [normalise_dim(d, self.ndim, "tensordot") for d in first]
    b = [normalise_dim(d, other.ndim, "tensordot") for d in second]
    for d, e in zip(a, b, strict=True):
        broadcast_sizes("tensordot", (self.shape[d],), (other.shape[e],))
    names = {d: f"s{i}" for i, d in enumerate(a)}
    left = tuple(names.get(d, f"a{d}") for d in range(self.ndim))
    names = {e: f"s{i}" for i, e in enumerate(b)}
    right = tuple(names.get(e, f"b{e}") for e in range(other.ndim))
    keep = {label for label in (*left, *right) if not label.startswith("s")}
    return _contract("tensordot", self, left, other, right, keep)[0]


@function(where="torch", out="exact", samples=_tensordot_samples, reference="numpy.tensordot")
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Any:
    """Sums of products over pairs of dimensions.

    `dims` is how many of the last of `a` and the first of `b` to pair, or two lists of dimensions.

    Raises:
        RuntimeError: lists of different length, a negative number, or sizes that differ.

    Example:
        >>> torch.tensordot(torch.ones(2, 3), torch.ones(3, 4), 1).shape
        torch.Size([2, 4])
    """
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            problem = f"tensordot expects dims >= 0, but got dims={dims}"
            raise failure(RuntimeError, "tensordot", problem, "dims=1")
        if dims > min(a.dim(), b.dim()):
            problem = f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}"
            raise failure(
                RuntimeError, "tensordot", problem, "both tensors need so many dimensions"
            )
        first, second = list(range(-dims, 0)), list(range(dims))
    else:
        first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    return _tensordot(a, b, first, second, out=out)


# ------------------------------------------------------------------------------------ many matrices


@op(
    kind="product",
    where="linalg",
    samples=lambda: [
        sample([T(2, 3), T(3, 4), T(4, 5)]),
        sample([T(3), T(3, 4), T(4)]),
        sample([T(2, 3), T(3, 4)]),
    ],
)
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices in the order that needs the fewest multiplications.

    The first and the last may be vectors. The order is found from the sizes of the first call of
    a class (Cormen et al., Introduction to Algorithms, 15.2).

    Raises:
        RuntimeError: fewer than two operands, or inner sizes that differ.

    Example:
        >>> torch.linalg.multi_dot([torch.ones(2, 3), torch.ones(3, 4), torch.ones(4, 5)]).shape
        torch.Size([2, 5])
    """
    if len(tensors) < 2:
        problem = f"multi_dot(): expected at least 2 tensors but got {len(tensors)}"
        raise failure(RuntimeError, "multi_dot", problem, "use matmul")
    row, column = tensors[0].ndim == 1, tensors[-1].ndim == 1
    matrices = list(tensors)
    if row:
        matrices[0] = prims.unsqueeze(matrices[0], 0)
    if column:
        matrices[-1] = prims.unsqueeze(matrices[-1], 1)
    for x in matrices:
        if x.ndim != 2:
            problem = f"multi_dot(): tensors must be 2D but one is {x.ndim}D"
            raise failure(RuntimeError, "multi_dot", problem, "matmul")
    result = _chain(matrices, _best_splits(matrices), 0, len(matrices) - 1)
    if row:
        result = prims.squeeze(result, 0)
    return prims.squeeze(result, result.ndim - 1) if column else result


def _best_splits(matrices: Sequence[Node]) -> dict[tuple[int, int], int]:
    """Where to split each run of matrices, by dynamic programming over the costs."""
    from flambeau.ir.environment import hint

    sizes = [hint(x.shape[0]) for x in matrices] + [hint(matrices[-1].shape[1])]
    cost: dict[tuple[int, int], int] = {(i, i): 0 for i in range(len(matrices))}
    best: dict[tuple[int, int], int] = {}
    for length in range(1, len(matrices)):
        for i in range(len(matrices) - length):
            j = i + length
            options = [
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            ]
            cost[i, j], best[i, j] = min(options)
    return best


def _chain(matrices: Sequence[Node], best: dict[tuple[int, int], int], i: int, j: int) -> Node:
    if i == j:
        return matrices[i]
    k = best[i, j]
    left, right = _chain(matrices, best, i, k), _chain(matrices, best, k + 1, j)
    return product("multi_dot", left, right)


@function(where="torch", out="exact", samples=lambda: [sample(T(2, 3), T(3, 4), T(4, 5))])
def chain_matmul(*matrices: Tensor) -> Any:
    """The product of several matrices; see `linalg.multi_dot`, which replaces it.

    Example:
        >>> torch.chain_matmul(torch.ones(2, 3), torch.ones(3, 4)).shape
        torch.Size([2, 4])
    """
    late("flambeau.core.warned").warn_once(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use "
        "torch.linalg.multi_dot instead, which accepts a list of two or more tensors rather than "
        "multiple parameters."
    )
    for x in matrices:
        if not is_tensor(x):
            problem = f"expected Tensor as an argument, but got {type(x).__name__}"
            raise failure(TypeError, "chain_matmul", problem, "matrices as arguments")
    return matrices[0] if len(matrices) == 1 else multi_dot(list(matrices))


def _power_samples() -> Iterator[Sample]:
    for n in (0, 1, 2, 3, 7):
        yield sample(T(3, 3), n)
    yield sample(T(2, 3, 3), 2)


def _power_rule(op: Any, self: Any, n: int) -> Any:
    """Products are cast; inverses are float32."""
    if n < 0:
        self = REGISTRY["inverse"].native(self)
    return call_with("lower" if abs(n) > 1 else "", op, self, abs(n))


@op(
    where="torch method linalg",
    out="exact contiguous",
    autocast=_power_rule,
    overlap="partial",
    overlap_when=lambda x, n: n == 1,
    samples=_power_samples,
    reference="numpy.linalg.matrix_power",
)
def matrix_power(self: Tensor, n: int) -> Tensor:
    """The n-th power of square matrices, by repeated squaring; n = 0 gives the identity.

    Negative powers are those of the inverse.

    Raises:
        RuntimeError: matrices that are not square.
        torch.linalg.LinAlgError: `n` is negative and a matrix is singular.

    Example:
        >>> torch.linalg.matrix_power(torch.tensor([[2.0]]), 3)
        tensor([[8.]])
    """
    if self.ndim < 2 or not layout.same(self.shape[-1], self.shape[-2]):
        problem = "linalg.matrix_power: A must be batches of square matrices"
        raise failure(RuntimeError, "matrix_power", problem, "n x n")
    if n < 0:
        check_matrices(self, "linalg.inv", True, "none")
        self, n = inverted(self, True)[0], -n
        if n == 1:
            return columns(self)
    if n == 0:
        last = self.ndim - 1
        same = prims.eq(prims.iota(self.shape, last - 1), prims.iota(self.shape, last))
        return prims.with_derivative(prims.cast(same, self.dtype), self, rule="flat")
    result: Node | None = None
    square = self
    while True:
        if n % 2:
            result = square if result is None else prims.matmul(result, square)
        n //= 2
        if n == 0:
            return result  # type: ignore[return-value]
        square = prims.matmul(square, square)


def _powers(x: Node, count: Size, increasing: bool) -> Node:
    """Powers 0 ... count - 1 of each element, in a new last dimension."""
    if x.dtype == "bool":
        x = prims.cast(x, "i64")
    wide = compute_dtype(x.dtype)
    table_shape = (*x.shape, count)
    base = prims.broadcast(prims.cast(x, wide), table_shape, range(x.ndim))
    first = prims.eq(prims.iota(table_shape, x.ndim), prims.full(0, table_shape, "i64"))
    factors = prims.where(first, prims.full_like(1, base), base)
    if isinstance(count, int) and count == 0:
        return prims.cast(factors, x.dtype)
    powers = running_product(factors, x.ndim)
    return prims.cast(powers if increasing else prims.flip(powers, (x.ndim,)), x.dtype)


@op(
    where="torch",
    samples=lambda: [sample(T(4)), sample(T(4), 3), sample(T(4), 3, True)],
    reference="numpy.vander",
)
def vander(x: Tensor, N: SymInt | None = None, increasing: bool = False) -> Tensor:
    """The Vandermonde matrix: powers of a vector's elements in columns, from high to low.

    Example:
        >>> torch.vander(torch.tensor([1, 2]), 3)
        tensor([[1, 1, 1],
                [4, 2, 1]])
    """
    if x.ndim != 1:
        raise RuntimeError("[vander] x must be a one-dimensional tensor.\nhint: linalg.vander")
    return _powers(x, x.shape[0] if N is None else N, increasing)


@op(
    name="vander",
    where="linalg",
    saves_result=False,
    samples=lambda: [sample(T(4)), sample(T(2, 4), N=3)],
)
def linalg_vander(x: Tensor, *, N: SymInt | None = None) -> Tensor:
    """Vandermonde matrices: powers from low to high of the elements of the last dimension.

    `N` powers, by default as many as elements; a tensor without dimensions is one element.

    Raises:
        RuntimeError: fewer than two powers.

    Example:
        >>> torch.linalg.vander(torch.tensor([1, 2]), N=3)
        tensor([[1, 1, 1],
                [1, 2, 4]])
    """
    if x.dtype in ("bool", "f16", "bf16"):
        problem = "linalg.vander supports floating point, complex, and integer tensors, but got "
        problem += f"{x.dtype}"
        raise failure(RuntimeError, "vander", problem, "cast it")
    x = prims.reshape(x, (1,)) if x.ndim == 0 else x
    x = prims.cast(x, "i64") if CATEGORY[x.dtype] < 2 else x
    count = x.shape[-1] if N is None else N
    if less(count, 2):
        raise RuntimeError(f"[vander] N must be greater than 1.\nhint: not {number_shown(count)}")
    return _powers(x, count, True)
