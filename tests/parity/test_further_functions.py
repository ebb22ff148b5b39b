"""Functions beside the operator library that PyTorch writes in Python: values and refusals."""

from __future__ import annotations

import pytest
import torch

import flambeau
from tests.parity.expressions import lines, names_of, plain

OPERANDS = """
x = torch.arange(24.0).reshape(2, 3, 4) / 8
image = torch.linspace(-1, 1, 96).reshape(2, 6, 8)
kernel = torch.linspace(-2, 1, 36).reshape(4, 3, 3)
tokens = torch.linspace(-1, 1, 64).reshape(8, 8)
experts = torch.linspace(-2, 3, 192).reshape(3, 8, 8)
ends = torch.tensor([2, 2, 8], dtype=torch.int32)
grouped = torch.nn.functional.grouped_mm
grad = torch.nn.grad
turn, mask = torch.func.rearrange, (False, True, False)
backward = torch.ops.aten.convolution_backward
"""
CALLS = """
grad.conv1d_input((2, 6, 8), kernel, torch.ones(2, 4, 4), 2, 1, 1, 2)
grad.conv1d_input([2, 6, 7], kernel, torch.ones(2, 4, 4), stride=2, padding=(1,), groups=2)
grad.conv1d_weight(image, (4, 3, 3), torch.ones(2, 4, 6), groups=2)
grad.conv2d_input((2, 4, 4, 5), kernel[None], torch.ones(2, 1, 2, 1), padding=0, dilation=(1, 2))
grad.conv2d_input((1, 4, 5, 5), torch.ones(2, 4, 3, 3), torch.ones(1, 2, 5, 5), padding=1)
grad.conv2d_weight(image[:, :, None], (4, 6, 1, 3), torch.ones(2, 4, 1, 3), (1, 2), dilation=1)
grad.conv3d_input((1, 1, 2, 3, 3), torch.ones(2, 1, 1, 2, 2), torch.ones(1, 2, 2, 2, 2))
grad.conv3d_weight(x[None, None], (2, 1, 1, 2, 2), torch.ones(1, 2, 2, 2, 3))
torch.nn.functional.grad is torch.nn.grad
backward(image[:, 2:, 2:], image, kernel, [4], [1], [0], [1], False, [0], 2, mask)[1]
grouped(tokens, experts, offs=ends); grouped(experts, experts.mT.contiguous())
grouped(experts.mT.contiguous(), tokens, offs=ends); grouped(tokens.mT, tokens, offs=ends)
grouped(tokens.bfloat16(), experts.bfloat16(), offs=ends); torch._grouped_mm(tokens, experts, ends)
grouped(experts.half(), experts.mT.contiguous().half(), out_dtype=torch.half)
turn(x, 'a b c -> c b a'); turn(x, 'a b c -> a (b c)'); turn(x, 'a b (c d) -> a d b c', c=2)
turn(x, 'a b c -> a b c 1'); turn(x, 'a b c -> a () (b c)'); turn(x, '... c -> c ...')
turn(x, 'a ... -> (a ...)'); turn(x, 'a ... -> a (...)'); turn(x, 'a b c -> (a b) 1 c')
turn(x, '(a a2) ... -> a ... a2', a2=2); turn(x, 'a (b 1) c->c b a')
turn(x, ' a b  c_d-> c_d b a ')
turn(x, '(a b) c d -> a b c d', a=1, b=2); turn(x, 'a b c ... -> b a c ...'); turn(x, '... -> ...')
turn([x, x + 1], 'k a b c -> a (k b) c'); turn((x, x), 'k a b c -> a b c k')
turn(torch.ones(1, 2), '1 b -> b'); turn(torch.ones(()), ' -> ')
"""
REFUSED = """
grad.conv1d_input((2, 6, 8), kernel, torch.ones(2, 4, 5)); grad.conv1d_input((6, 8), kernel, image)
grad.conv1d_input((2, 6, 8), kernel, torch.ones(2, 4, 6)); grad.conv1d_input(None, kernel, image)
grad.conv1d_weight(image, (4, 2, 3), torch.ones(2, 4, 6))
grad.conv2d_input((2, 6, 8), kernel, image)
grad.conv1d_input((2, 6, 8), kernel.double(), torch.ones(2, 4, 6), groups=2)
grad.conv1d_input((2, 6, 8), kernel.long(), torch.ones(2, 4, 6).long(), groups=2)
grad.conv1d_input((2, 6, 8), kernel, torch.ones(2, 4, 6), stride=(1, 1), groups=2)
grouped(tokens, experts); grouped(experts, experts, offs=ends); grouped(tokens[0], experts)
grouped(tokens.double(), experts.double(), offs=ends); grouped(tokens, experts, offs=ends.long())
grouped(tokens, experts, offs=ends[None]); grouped(tokens, experts, offs=ends, bias=tokens)
grouped(tokens, experts, offs=ends, out_dtype=torch.double); grouped(tokens, tokens)
grouped(tokens.half(), experts, offs=ends); grouped(tokens[:, :4], experts, offs=ends)
grouped(tokens, experts[:2], offs=ends); grouped(experts[:2], experts)
grouped(tokens, experts, ends)
torch.nn.functional.scaled_grouped_mm(tokens, tokens)
turn(x, 'a b c -> a b'); turn(x, 'a b c -> a b c d'); turn(x, 'a b -> a b'); turn(x, 'a b c')
turn(x, 'a b c d -> a b c d'); turn(x, 'a b -> c -> a'); turn(x, 'a a b -> a b'); turn(x, '')
turn(x, 'a b c -> a b c', e=2); turn(x, 'a ... b ... -> a b ...'); turn(x, 'a b c -> a ... b c')
turn(x, 'a b 4 -> a b'); turn(x, 'a (b (c)) -> a b c'); turn(x, 'a b c_ -> a b c_'); turn(x, '->')
turn(x, 'a b _ -> a b _'); turn(x, 'a (...) -> a ...'); turn(x, 'a b c) -> a b c')
turn([], 'a -> a')
turn(x, '1a b c -> 1a b c'); turn(x, 'a .. c -> a c'); turn(5, 'a -> a')
turn([x, x[0]], 'k ... -> ... k')
"""
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("call", lines(CALLS))
def test_same_result(call):
    ours, theirs = (eval(call, names_of(m, OPERANDS)) for m in (flambeau, torch))
    if not isinstance(theirs, torch.Tensor):
        assert ours == theirs
        return
    assert str(ours.dtype) == str(theirs.dtype)
    torch.testing.assert_close(plain(ours), theirs)
    assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("call", lines(REFUSED))
def test_same_exception(call):
    with pytest.raises(Exception) as theirs:
        eval(call, names_of(torch, OPERANDS))
    with pytest.raises(theirs.type):
        eval(call, names_of(flambeau, OPERANDS))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_sparse_gradient_checks(layout, masked):
    """Right derivatives pass, wrong ones do not, in both libraries."""
    for package in (torch, flambeau):
        check = package.sparse.as_sparse_gradcheck(package.autograd.gradcheck)
        x = package.tensor([[0.0, 1.0], [2.0, 3.0]], dtype=package.float64)
        block = [(1, 2)] if layout.startswith("b") else []
        sparse = getattr(x, f"to_sparse_{layout}")(*block).requires_grad_()
        options = {"masked": masked, "raise_exception": False}
        assert check(lambda s: s.to_dense() ** 2, sparse, **options)
        assert not check(lambda s: s.to_dense() * s.detach().to_dense(), sparse, **options)
        assert check(lambda a, b: a.to_dense() @ b, (sparse, x.requires_grad_()), **options)
