"""`torch.utils.cpp_extension`: functions in C++ on tensors; one extension for all tests."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import flambeau as torch
from flambeau.utils import cpp_extension

SOURCE = r"""
#include <vector>

// A cell with input, output and candidate gates.
std::vector<torch::Tensor> cell_forward(torch::Tensor input, torch::Tensor weights,
                                        torch::Tensor bias, torch::Tensor h, torch::Tensor c) {
  auto x = torch::cat({h, input}, 1);
  auto gates = torch::addmm(bias, x, weights.t()).chunk(3, 1);
  auto in = torch::sigmoid(gates[0]), out = torch::sigmoid(gates[1]);
  auto candidate = torch::tanh(gates[2]);
  auto new_c = c + candidate * in;
  auto new_h = torch::tanh(new_c) * out;
  return {new_h, new_c, in, out, candidate, x};
}

std::vector<torch::Tensor> cell_backward(torch::Tensor grad_h, torch::Tensor grad_c,
                                         torch::Tensor new_c, torch::Tensor in, torch::Tensor out,
                                         torch::Tensor candidate, torch::Tensor x,
                                         torch::Tensor weights) {
  auto bent = torch::tanh(new_c);
  auto d_out = bent * grad_h * out * (1 - out);
  auto d_c = out * grad_h * (1 - bent.pow(2)) + grad_c;
  auto d_in = candidate * d_c * in * (1 - in);
  auto d_candidate = in * d_c * (1 - candidate.pow(2));
  auto d_gates = torch::cat({d_in, d_out, d_candidate}, 1);
  auto d_x = d_gates.mm(weights);
  const auto state = grad_h.size(1);
  return {d_x.slice(1, state), d_gates.t().mm(x), d_gates.sum({0}), d_x.slice(1, 0, state), d_c};
}

double trace(const at::Tensor& x) {
  TORCH_CHECK(x.dim() == 2, "expected a matrix, got ", x.dim(), " dimensions");
  const auto a = x.accessor<double, 2>();
  double sum = 0;
  for (int64_t i = 0; i < std::min(a.size(0), a.size(1)); ++i) sum += a[i][i];
  return sum;
}

at::Tensor halves(at::Tensor x) {
  x = x.contiguous();
  auto result = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "halves", [&] {
    const scalar_t* from = x.data_ptr<scalar_t>();
    scalar_t* to = result.data_ptr<scalar_t>();
    const int64_t count = x.numel();
    py::gil_scoped_release unlocked;
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = from[i] / 2;
    });
  });
  return result;
}

std::tuple<at::Tensor, int64_t, std::string> described(
    const at::Tensor& x, double scale, c10::optional<at::Tensor> shift, std::vector<int64_t> dims) {
  auto y = scale * x.view(dims);
  if (shift) y += *shift;
  return {y, y.numel(), c10::str(y.scalar_type(), " ", y.sizes(), " ", y.strides())};
}

at::Tensor created(at::IntArrayRef sizes) {
  auto x = torch::full(sizes, 3, torch::dtype(torch::kFloat64)) + torch::ones(sizes);
  return torch::stack({x, torch::zeros_like(x), torch::arange(2, torch::kDouble).sum() - x});
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "functions of a test";
  m.def("cell_forward", &cell_forward, "one step");
  m.def("cell_backward", &cell_backward);
  m.def("trace", &trace, py::arg("x"));
  m.def("halves", &halves);
  m.def("described", &described, py::arg("x"), py::arg("scale") = 2.0,
        py::arg("shift") = c10::nullopt, py::arg("dims") = std::vector<int64_t>{-1});
  m.def("created", &created);
  m.def("fails", [](int64_t kind) {
    if (kind == 0) throw std::invalid_argument("no such value");
    TORCH_CHECK_INDEX(kind != 1, "no such index");
    torch::ones({2}).view({3});
  });
}

TORCH_LIBRARY(flambeau_test_extension, m) {
  m.def("scaled(Tensor x, float k) -> Tensor");
  m.def("shifted", [](const at::Tensor& x, int64_t by) { return x + by; });
}
TORCH_LIBRARY_IMPL(flambeau_test_extension, CPU, m) {
  m.impl("scaled", [](const at::Tensor& x, double k) { return x * k; });
}
"""


def build(directory):
    return cpp_extension.load_inline(
        "flambeau_test_extension", SOURCE, extra_cflags=["-O0"], build_directory=str(directory)
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("extension")


@pytest.fixture(scope="module")
def extension(directory):
    return build(directory)


class Cell(torch.autograd.Function):
    extension = None

    @staticmethod
    def forward(ctx, input, weights, bias, h, c):
        new_h, new_c, *saved = Cell.extension.cell_forward(input, weights, bias, h, c)
        ctx.save_for_backward(new_c, *saved, weights)
        return new_h, new_c

    @staticmethod
    def backward(ctx, grad_h, grad_c):
        return tuple(Cell.extension.cell_backward(grad_h, grad_c, *ctx.saved_tensors))


def test_cell_with_its_gradient(extension):
    Cell.extension = extension
    shapes = [(2, 3), (12, 7), (12,), (2, 4), (2, 4)]
    inputs = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    x, weights, bias, h, c = inputs
    gates = torch.addmm(bias, torch.cat([h, x], 1), weights.t()).chunk(3, 1)
    new_c = c + gates[2].tanh() * gates[0].sigmoid()
    expected = new_c.tanh() * gates[1].sigmoid(), new_c
    results = Cell.apply(*inputs)
    assert all(torch.equal(a, b) for a, b in zip(results, expected))
    assert torch.autograd.gradcheck(Cell.apply, inputs)
    direct = extension.cell_forward(*inputs)[0]  # operators record themselves, too
    left, right = (torch.autograd.grad(y.sum(), x)[0] for y in (direct, expected[0]))
    assert torch.equal(left, right)


def test_memory_is_read_and_written(extension):
    x = torch.arange(12.0, dtype=torch.float64).view(3, 4)
    assert extension.trace(x) == extension.trace(x=x.t()) == 15.0
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        values = torch.tensor([3.0, -1.5, 65504.0, 6e-8, 1e-5, float("inf")]).to(dtype)
        assert torch.equal(extension.halves(values), values / 2)
    assert extension.halves(torch.tensor([float("nan")])).isnan().all()
    with pytest.raises(NotImplementedError, match="\"halves\" not implemented for 'Int'"):
        extension.halves(torch.ones(2, dtype=torch.int32))


def test_arguments_and_results(extension):
    y, count, text = extension.described(torch.ones(2, 2), shift=torch.ones(1), scale=3)
    assert y.tolist() == [4.0] * 4 and (count, text) == (4, "Float [4] [1]")
    assert extension.described(torch.ones(4), dims=(2, 2))[2] == "Float [2, 2] [2, 1]"
    made = extension.created([2])
    assert made.dtype is torch.float64 and made.tolist() == [[4, 4], [0, 0], [-3, -3]]
    assert extension.cell_forward.__doc__ == "one step" and extension.__doc__


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda m: m.trace(torch.ones(2)), RuntimeError, "expected a matrix, got 1 dimensions"),
        (
            lambda m: m.trace(torch.ones(2, 2)),
            RuntimeError,
            "expected scalar type Double but found",
        ),
        (lambda m: m.trace([1]), TypeError, "expected Tensor, got list"),
        (lambda m: m.trace(), TypeError, "argument 0 is missing"),
        (lambda m: m.trace(torch.ones(1, 1), 2), TypeError, "2 arguments, expected 1"),
        (lambda m: m.trace(y=1), TypeError, "keyword 'y'"),
        (lambda m: m.described(torch.ones(1), "a"), TypeError, "real number"),
        (lambda m: m.fails(0), ValueError, "no such value"),
        (lambda m: m.fails(1), IndexError, "no such index"),
        (lambda m: m.fails(2), RuntimeError, "shape|size"),
    ],
)
def test_errors(extension, call, kind, text):
    with pytest.raises(kind, match=text):
        call(extension)


def test_operators_of_a_library(extension):
    operators = torch.ops.flambeau_test_extension
    assert operators.scaled(torch.ones(2), 3.0).tolist() == [3, 3]
    assert operators.shifted(torch.ones(2), 4).tolist() == [5, 5]


def test_a_library_is_compiled_once(extension, directory, monkeypatch):
    assert build(directory) is extension
    written = os.stat(extension.__file__).st_mtime_ns
    monkeypatch.setattr(cpp_extension, "_modules", {})  # as another process
    again = build(directory)
    assert again.__file__ == extension.__file__
    assert os.stat(again.__file__).st_mtime_ns == written
    assert not list(directory.glob("*/*.tmp"))


def test_errors_of_the_compiler_are_shown(tmp_path):
    with pytest.raises(RuntimeError, match="(?s)Error building extension 'broken'.*no_such_name"):
        cpp_extension.load_inline(
            "broken", "int f() { return no_such_name; }", build_directory=str(tmp_path),
            no_implicit_headers=True,
        )  # fmt: skip
    assert not list(tmp_path.glob("*/*.so"))


def test_devices_that_are_not_there(tmp_path):
    for call in (
        lambda: cpp_extension.CUDAExtension("a", ["a.cu"]),
        lambda: cpp_extension.SyclExtension("a", ["a.sycl"]),
        lambda: cpp_extension.load("a", ["a.cu"]),
        lambda: cpp_extension.load("a", ["a.cpp"], with_cuda=True),
        lambda: cpp_extension.load_inline("a", "", cuda_sources="b"),
        lambda: cpp_extension.include_paths("cuda"),
    ):
        with pytest.raises(OSError, match="CUDA_HOME"):
            call()


def test_what_is_known_of_the_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    assert cpp_extension.get_default_build_root() == os.path.realpath(tmp_path)
    compiler = cpp_extension.get_cxx_compiler()
    assert cpp_extension.check_compiler_ok_for_platform(compiler)
    assert not cpp_extension.check_compiler_ok_for_platform("no-such-compiler")
    compatible, version = cpp_extension.get_compiler_abi_compatibility_and_version(compiler)
    assert compatible and version > "1.0"
    (folder,) = cpp_extension.include_paths()
    assert os.path.exists(os.path.join(folder, "torch", "extension.h"))


def test_setuptools(tmp_path):
    pytest.importorskip("setuptools")
    (tmp_path / "plus.cpp").write_text(
        "#include <torch/extension.h>\n"
        "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"
        '  m.def("plus", [](at::Tensor x) { return x + 1; });\n}'
    )
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\n"
        "from flambeau.utils.cpp_extension import BuildExtension, CppExtension\n"
        "setup(name='plus', ext_modules=[CppExtension('plus', ['plus.cpp'],"
        " extra_compile_args=['-O0'])], cmdclass={'build_ext': BuildExtension.with_options()})\n"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    code = "import flambeau as torch, plus; print(plus.plus(torch.ones(1)).item())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True,
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.strip() == "2.0"
