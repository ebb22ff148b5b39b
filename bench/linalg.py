"""Linear algebra and Fourier transforms beside PyTorch, on one thread.

`python -m bench linalg`, or a selection: `python -m bench.linalg --sizes 4,64 --operators qr`, or
`python -m bench.linalg --only-fourier`. The note tells how far our result is from satisfying its
equation, relative to PyTorch's: at most 2 is the aim, at most 0.9 of its time in the mean and 1.5
in every row. Cases that take more than about a second are left out.
"""

from __future__ import annotations

import os

# As where nobody chose kernels for another processor; read when the library is loaded.
os.environ.pop("OPENBLAS_CORETYPE", None)

import argparse  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

import flambeau  # noqa: E402
from bench.harness import Row, compare, publish  # noqa: E402

SIZES = (4, 16, 64, 256, 512, 1024)
BATCHES = (1, 32, 1024)
DTYPES = ("float32", "float64", "complex64")
MULTIPLICATIONS = 3e9  # of a case, times what its operator costs more than a product
ELEMENTS = 1 << 24
SMALL_DRAWS = 32
Arrays = dict[str, Any]


@dataclass(frozen=True)
class Operator:
    """What is timed, how far a result is from its equation, and its cost in n^3 multiplications."""

    call: Callable[[Any, Arrays], Any]
    residual: Callable[[Arrays, list[Any]], Any]
    cost: float


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return x.conj().swapaxes(-1, -2)


def _eigen(x: Any, found: list[Any]) -> Any:
    values, vectors = found
    return x @ vectors - vectors * values[..., None, :]


def _sorted(x: Any, found: list[Any]) -> Any:
    """Eigenvalues in NumPy's double precision, each beside the nearest one found."""
    exact = np.linalg.eigvals(x.reshape(-1, *x.shape[-2:])[0].astype("complex128"))
    first = found[0].reshape(-1, x.shape[-1])[0]
    return np.abs(exact[:, None] - first).min(1)


def _normal(x: Any, b: Any, found: Any) -> Any:
    return adjoint(x) @ (x @ found - b)


OPERATORS: dict[str, Operator] = {
    "cholesky": Operator(
        lambda t, x: t.linalg.cholesky(x["positive"]),
        lambda x, r: r[0] @ adjoint(r[0]) - x["positive"], 0.3,
    ),
    "lu_factor": Operator(
        lambda t, x: t.linalg.lu_factor(x["general"]), lambda x, r: np.zeros(1), 0.7
    ),
    "solve": Operator(
        lambda t, x: t.linalg.solve(x["general"], x["right"]),
        lambda x, r: x["general"] @ r[0] - x["right"], 0.7,
    ),
    "solve_triangular": Operator(
        lambda t, x: t.linalg.solve_triangular(x["triangular"], x["general"], upper=True),
        lambda x, r: x["triangular"] @ r[0] - x["general"], 0.5,
    ),
    "inv": Operator(
        lambda t, x: t.linalg.inv(x["general"]),
        lambda x, r: x["general"] @ r[0] - np.eye(r[0].shape[-1]), 2,
    ),
    "det": Operator(lambda t, x: t.linalg.det(x["small"]), lambda x, r: np.zeros(1), 0.7),
    "ldl_factor": Operator(
        lambda t, x: t.linalg.ldl_factor(x["hermitian"], hermitian=True),
        lambda x, r: np.zeros(1), 0.5,
    ),
    "ldl_solve": Operator(
        lambda t, x: t.linalg.ldl_solve(*x["ldl"], x["right"], hermitian=True),
        lambda x, r: x["hermitian"] @ r[0] - x["right"], 0.5,
    ),
    "ormqr": Operator(
        lambda t, x: t.ormqr(x["packed"], x["scales"], x["right"]),
        lambda x, r: adjoint(r[0]) @ r[0] - adjoint(x["right"]) @ x["right"], 1,
    ),
    "householder_product": Operator(
        lambda t, x: t.linalg.householder_product(x["packed"], x["scales"]),
        lambda x, r: adjoint(r[0]) @ r[0] - np.eye(r[0].shape[-1]), 2,
    ),
    "qr": Operator(
        lambda t, x: t.linalg.qr(x["general"]), lambda x, r: r[0] @ r[1] - x["general"], 3
    ),
    "eigh": Operator(
        lambda t, x: t.linalg.eigh(x["positive"]), lambda x, r: _eigen(x["positive"], r), 9
    ),
    "eigvalsh": Operator(
        lambda t, x: t.linalg.eigvalsh(x["positive"]),
        lambda x, r: np.sort(_sorted(x["positive"], r)), 2,
    ),
    "eig": Operator(
        lambda t, x: t.linalg.eig(x["general"]), lambda x, r: _eigen(x["general"], r), 40
    ),
    "eigvals": Operator(
        lambda t, x: t.linalg.eigvals(x["general"]), lambda x, r: _sorted(x["general"], r), 20
    ),
    "svd": Operator(
        lambda t, x: t.linalg.svd(x["general"]),
        lambda x, r: (r[0] * r[1][..., None, :]) @ r[2] - x["general"], 20,
    ),
    "svdvals": Operator(
        lambda t, x: t.linalg.svdvals(x["general"]),
        lambda x, r: r[0] - np.linalg.svd(x["general"].astype(x["wide"]), compute_uv=False), 3,
    ),
    "lstsq": Operator(
        lambda t, x: t.linalg.lstsq(x["tall"], x["tall_right"])[0],
        lambda x, r: _normal(x["tall"], x["tall_right"], r[0]), 3,
    ),
    "pinv": Operator(
        lambda t, x: t.linalg.pinv(x["general"]),
        lambda x, r: x["general"] @ r[0] @ x["general"] - x["general"], 22,
    ),
}  # fmt: skip


def matrices(n: int, batch: int, dtype: str, seed: int = 0) -> Arrays:
    """Random matrices that suit the operators, and right sides."""
    generator = np.random.default_rng([n + batch, seed])
    lead = () if batch == 1 else (batch,)

    def draw(*shape: int) -> Any:
        x = generator.standard_normal((*lead, *shape))
        if dtype.startswith("complex"):
            x = x + 1j * generator.standard_normal((*lead, *shape))
        return x.astype(dtype)

    general = draw(n, n)
    positive = (general @ adjoint(general) + n * np.eye(n)).astype(dtype)
    hermitian = (general + adjoint(general)) / 2
    packed, scales = (x.numpy() for x in torch.geqrf(torch.from_numpy(general)))
    factors = torch.linalg.ldl_factor(torch.from_numpy(hermitian), hermitian=True)
    return {
        "hermitian": hermitian, "packed": packed, "scales": scales,
        "ldl": tuple(x.numpy() for x in factors), "general": general, "positive": positive,
        "triangular": np.triu(positive),
        "small": general / np.sqrt(n).astype(dtype), "right": draw(n, 4), "tall": draw(2 * n, n),
        "tall_right": draw(2 * n, 4),
    }  # fmt: skip


def _results(found: Any, wide: str) -> list[Any]:
    values = found if isinstance(found, tuple) else (found,)
    arrays = [x.resolve_conj().numpy() if hasattr(x, "resolve_conj") else x.numpy() for x in values]
    return [x.astype(np.result_type(x.dtype, wide)) if x.dtype.kind in "fc" else x for x in arrays]


def residual(operator: Operator, arrays: Arrays, result: Any) -> float:
    """The largest residual of a result, computed in double precision."""
    wide = "complex128" if arrays["general"].dtype.kind == "c" else "float64"
    matrices = {name: x for name, x in arrays.items() if not isinstance(x, tuple)}
    exact = {name: x.astype(wide) for name, x in matrices.items()} | {"wide": wide}
    return float(np.abs(operator.residual(exact, _results(result, wide))).max())


def residual_ratio(operator: Operator, n: int, batch: int, dtype: str) -> str:
    """How much larger our largest residual is; empty where both are none.

    One small matrix says little about rounding, so several are drawn where there is one.
    """
    worst = [0.0, 0.0]
    for seed in range(SMALL_DRAWS if batch == 1 and n <= 64 else 1):
        arrays = matrices(n, batch, dtype, seed)
        for side, t in enumerate((flambeau, torch)):
            found = operator.call(t, _tensors(t, arrays))
            worst[side] = max(worst[side], residual(operator, arrays, found))
    return f"residual x {worst[0] / worst[1]:.2g}" if worst[1] > 0 else ""


def matrix_cases(sizes: tuple[int, ...], names: tuple[str, ...], dtype: str) -> Iterator[Row]:
    """A row for each operator, size and batch that is neither too large nor too slow."""
    for name in names:
        operator = OPERATORS[name]
        for n in sizes:
            for batch in BATCHES:
                work = batch * n**3 * operator.cost * (4 if dtype == "complex64" else 1)
                if work > MULTIPLICATIONS * 4 or batch * n * n > ELEMENTS:
                    continue
                yield matrix_row(name, operator, n, batch, dtype)


def _tensors(t: Any, arrays: Arrays) -> Arrays:
    def tensor(x: Any) -> Any:
        return tuple(map(tensor, x)) if isinstance(x, tuple) else t.from_numpy(x.copy())

    return {key: tensor(x) for key, x in arrays.items()}


def matrix_row(name: str, operator: Operator, n: int, batch: int, dtype: str) -> Row:
    """Both frameworks on one case."""
    arrays = matrices(n, batch, dtype)
    operands = [(t, _tensors(t, arrays)) for t in (flambeau, torch)]
    ours, theirs = (lambda pair=pair: operator.call(*pair) for pair in operands)
    title = f"{name} {n}" + ("" if batch == 1 else f" x {batch}")
    row = compare(title, ours, theirs, blocks=5, seconds=0.01)
    row.note = residual_ratio(operator, n, batch, dtype)
    print(f"{dtype} {row.name}: {row.ratio:.2f} {row.note}", file=sys.stderr, flush=True)
    return row


TRANSFORMS: dict[str, Callable[[Any, Any, int], Any]] = {
    "fft": lambda t, x, n: t.fft.fft(x),
    "rfft": lambda t, x, n: t.fft.rfft(x),
    "fft of complex": lambda t, x, n: t.fft.fft(x),
    "irfft": lambda t, x, n: t.fft.irfft(x, n),
}
LARGER: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "fft2 512 x 512": (lambda t, x: t.fft.fft2(x), (512, 512)),
    "fftn 64 x 64 x 64": (lambda t, x: t.fft.fftn(x), (64, 64, 64)),
    "stft of 10 s": (lambda t, x: _spectrogram(t, x), (160000,)),
    "istft of 10 s": (lambda t, x: t.istft(x, 400, 160, window=t.hann_window(400)), (-1,)),
}


def fourier_cases() -> Iterator[Row]:
    """Transforms of smooth and prime lengths, of 1 to 3 dimensions, and of 10 s of audio."""
    shapes = [(64, 256), (64, 1000), (64, 1009), (1, 65536), (1, 65537)]
    for dtype in ("float32", "float64"):
        for kind, call in TRANSFORMS.items():
            for rows, n in shapes:
                x = np.random.default_rng(0).standard_normal((rows, n)).astype(dtype)
                if kind == "irfft":
                    x = np.fft.rfft(x).astype(np.result_type(dtype, "complex64"))
                elif kind == "fft of complex":
                    x = x + 1j * x[:, ::-1].astype(dtype)
                name = f"{kind} {rows} x {n}" + (", float64" if dtype == "float64" else "")
                yield _beside(name, lambda t, x, call=call, n=n: call(t, x, n), x)
    for name, (larger, shape) in LARGER.items():
        x = np.random.default_rng(0).standard_normal(160000 if shape == (-1,) else shape)
        x = x.astype("float32")
        if shape == (-1,):
            x = _spectrogram(torch, torch.from_numpy(x)).contiguous().numpy()
        yield _beside(name, larger, x)


def _beside(name: str, call: Callable[[Any, Any], Any], x: Any) -> Row:
    """Both frameworks on one case."""
    operands = [(t, t.from_numpy(x.copy())) for t in (flambeau, torch)]
    ours, theirs = (lambda pair=pair: call(*pair) for pair in operands)
    row = compare(name, ours, theirs, blocks=5, seconds=0.01)
    print(f"{name}: {row.ratio:.2f}", file=sys.stderr, flush=True)
    return row


def _spectrogram(t: Any, x: Any) -> Any:
    return t.stft(x, 400, 160, window=t.hann_window(400), return_complex=True)


def main(arguments: Sequence[str] = ()) -> None:
    """Prints and publishes a table per dtype, and one of transforms."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--operators", default=",".join(OPERATORS))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--only-fourier", action="store_true")
    options = parser.parse_args(arguments)
    for t in (flambeau, torch):
        t.set_num_threads(1)
    sizes = tuple(map(int, options.sizes.split(",")))
    names = tuple(options.operators.split(","))
    tables: list[tuple[str, list[Row], float | None]] = []
    if not options.only_fourier:
        for dtype in options.dtypes.split(","):
            rows = list(matrix_cases(sizes, names, dtype))
            tables.append((f"Linear algebra, {dtype}", rows, 0.9))
    if options.only_fourier or not arguments:
        tables.append(("Fourier transforms", list(fourier_cases()), 0.9))
    publish("fourier" if options.only_fourier else "linalg", tables)


if __name__ == "__main__":
    main(sys.argv[1:])
