"""Impossible shapes, strides, dilations, paddings and dtypes of the heavy operators: PyTorch's
exception type, or its success."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle is PyTorch 2.13")

import flambeau  # noqa: E402

# o: ones, i: int64 zeros, x: an image, w: weights of a convolution, q: queries, b: a table.
CALLS = """
F.conv2d(o(5),w())
F.conv2d(o(1,1,1,2,5,5),w())
F.conv2d(o(1,3,5,5),w())
F.conv2d(x(),w(),groups=2)
F.conv2d(x(),w(),groups=0)
F.conv2d(x(),w(),groups=-1)
F.conv2d(x(),o(3,2,3,3),groups=3)
F.conv2d(x(),w(),stride=0)
F.conv2d(x(),w(),stride=-1)
F.conv2d(x(),w(),dilation=0)
F.conv2d(x(),w(),padding=-1)
F.conv2d(x(),w(),padding='sam')
F.conv2d(x(),w(),padding='same',stride=2)
F.conv2d(x(),w(),stride=(1,2,3))
F.conv2d(x(),o(2,2,7,7))
F.conv2d(x(),w(),o(3))
F.conv2d(x(),w(),o(2,1))
F.conv2d(x(),w().double())
F.conv2d(i(1,2,5,5),w())
F.conv2d(x(),w(),o(2).double())
F.conv2d(x().bool(),w().bool())
F.conv2d(x(),w(),stride=1.5)
F.conv2d(x(),None)
F.conv1d(x(),o(2,2,3))
F.conv3d(x(),o(2,2,3,3,3))
F.conv2d(o(1,0,5,5),o(2,0,3,3))
F.conv2d(x(),o(2,2,0,3))
F.conv_transpose2d(x(),w(),output_padding=1)
F.conv_transpose2d(x(),w(),stride=2,output_padding=-1)
F.conv_transpose2d(o(1,3,5,5),w())
F.conv_transpose2d(x(),w(),padding=9)
F.conv_transpose2d(x(),w(),groups=3)
F.max_pool2d(x(),0)
F.max_pool2d(x(),-1)
F.max_pool2d(x(),2,0)
F.max_pool2d(x(),2,-1)
F.max_pool2d(x(),9)
F.max_pool2d(o(1,1,1,5,5),2)
F.max_pool2d(x(),(2,2,2))
F.max_pool2d(i(1,2,5,5),2)
F.max_pool2d(x(),2,1,2)
F.max_pool2d(x(),2,1,-1)
F.avg_pool2d(x(),0)
F.avg_pool2d(x(),-1)
F.avg_pool2d(x(),2,0)
F.avg_pool2d(x(),2,-1)
F.avg_pool2d(x(),9)
F.avg_pool2d(o(1,1,1,5,5),2)
F.avg_pool2d(x(),(2,2,2))
F.avg_pool2d(i(1,2,5,5),2)
F.avg_pool2d(x(),2,1,2)
F.avg_pool2d(x(),2,1,-1)
F.lp_pool2d(x(),2,0)
F.lp_pool2d(x(),2,-1)
F.lp_pool2d(x(),2,2,0)
F.lp_pool2d(x(),2,2,-1)
F.lp_pool2d(x(),2,9)
F.max_pool2d(o(5,5),2)
F.avg_pool2d(x().bool(),2)
F.max_pool2d(x(),2,dilation=0)
F.max_pool2d(x(),3,dilation=9)
F.avg_pool2d(x(),2,divisor_override=0)
F.max_pool1d(x(),2)
F.max_pool3d(x()[0],2)
F.adaptive_avg_pool2d(o(5),2)
F.adaptive_avg_pool2d(x(),-2)
F.adaptive_avg_pool2d(x(),(1,2,3))
F.adaptive_max_pool2d(x(),-2)
F.adaptive_avg_pool2d(o(1,2,0,5),2)
F.adaptive_avg_pool2d(i(1,2,5,5),2)
F.max_unpool2d(o(1,1,2,2),i(1,1,2,2)+99,2)
F.max_unpool2d(o(1,1,2,2),i(1,1,2,3),2)
F.max_unpool2d(o(1,1,2,2),o(1,1,2,2),2)
F.fractional_max_pool2d(x(),2)
F.fractional_max_pool2d(x(),2,output_size=9)
t.mm(o(2,3),o(2,3))
t.mm(o(2,3,1),o(2,3))
t.mm(o(2,3),o(3,2).double())
t.mm(i(2,3),o(3,2))
t.mm(o(2,3).bool(),o(3,2).bool())
t.matmul(o(()),o(2))
t.matmul(o(2,3,4),o(5,4,2))
t.matmul(o(2),None)
t.bmm(o(2,3,4),o(3,4,2))
t.bmm(o(3,4),o(4,2))
t.bmm(o(2,3,4),o(2,4,2).double())
t.addmm(o(7),o(2,3),o(3,2))
t.addmm(o(2).double(),o(2,3),o(3,2))
t.addmm(i(2),i(2,3),i(3,2),alpha=0.5)
t.baddbmm(o(9),o(2,3,4),o(2,4,2))
t.mv(o(2,3),o(2))
t.mv(o(2,3),o(3,1))
t.dot(o(2),o(3))
t.dot(o(2,1),o(2))
t.dot(o(2),o(2).double())
t.vdot(o(2),o(3))
t.outer(o(2,2),o(2))
t.addr(o(3),o(2),o(2))
F.linear(o(2,3),o(2,4))
F.linear(o(2,3),o(2,3),o(5))
F.linear(o(2,3),o(2,3).double())
F.bilinear(o(2,3),o(2,4),o(5,3,3))
t.einsum('ij,jk->ik',o(2,3),o(2,3))
t.einsum('ij,j k->il',o(2,3),o(3,3))
t.einsum('ij,jk->ik',o(2,3))
t.einsum('ijk->ik',o(2,3))
t.tensordot(o(2,3),o(2,3),1)
t.tensordot(o(2,3),o(2,3),([0],[0,1]))
t.tensordot(o(2,3),o(2,3),-1)
t._int_mm(o(2,3),o(3,2))
t.chain_matmul(o(2,3),o(2,3))
sdpa(q(),q(1,2,4,7),q())
sdpa(q(),q(3,2,4,8),q(3,2,4,8))
sdpa(o(8),o(8),o(8))
sdpa(q(),q().double(),q())
sdpa(i(1,2,4,8),i(1,2,4,8),i(1,2,4,8))
sdpa(q(),q(),q(),o(3,3))
sdpa(q(),q(),q(),i(4,4))
sdpa(q(),q(),q(),o(4,4).double())
sdpa(q(),q(),q(),dropout_p=1.5)
sdpa(q(1,4,4,8),q(1,2,4,8),q(1,2,4,8))
sdpa(q(1,3,4,8),q(1,2,4,8),q(1,2,4,8),enable_gqa=True)
F.embedding_bag(o(2,2),b())
F.embedding_bag(i(2,2,2),b())
F.embedding_bag(i(2,2),o(4))
F.embedding_bag(i(2,2),b(),i(2))
F.embedding_bag(i(4),b())
F.embedding_bag(i(4),b(),i(1,1))
F.embedding_bag(i(4),b(),i(1)+1)
F.embedding_bag(i(4),b(),t.tensor([0,9]))
F.embedding_bag(i(4),b(),o(1))
F.embedding_bag(i(2,2)+9,b())
F.embedding_bag(i(2,2)-1,b())
F.embedding_bag(i(2,2),b(),mode='x')
F.embedding_bag(i(2,2),b(),per_sample_weights=o(2,2))
F.embedding_bag(i(2,2),b(),mode='sum',per_sample_weights=o(3,2))
F.embedding_bag(i(2,2),b(),mode='sum',per_sample_weights=o(2,2).double())
F.embedding_bag(i(2,2),b(),padding_idx=9)
F.embedding_bag(i(2,2),i(4,3))
F.embedding(o(2),b())
F.embedding(i(2),o(4))
F.embedding(i(2)+9,b())
F.interpolate(x(),2,mode='x')
F.interpolate(x())
F.interpolate(x(),2,2)
F.interpolate(x(),0)
F.interpolate(x(),2,mode='linear')
F.max_pool2d(x().bool(),2)
F.avg_pool2d(o(5,5),2)
F.lp_pool2d(o(5,5),2,2)
F.lp_pool2d(x(),2,(2,2,2))
F.lp_pool3d(o(1,1,5,5,5),2,(2,2))
F.lp_pool2d(x(),2,2.5)
F.embedding(i(2),b(),padding_idx=4)
F.embedding(i(2),b(),padding_idx=-5)
F.embedding(i(2),b(),padding_idx=-4)
sdpa(q(),q(),q(),dropout_p=-0.5)
sdpa(q(),q(),q(),o(4,4),is_causal=True)
sdpa(o(2,4,8),o(2,4,8),o(2,4,8),o(4,4),is_causal=True)
t.empty(2**64)
t.zeros(2**64)
o(1).expand(2**64)
o(1)+2**64
o(1).narrow(0,2**64,1)
o(1).resize_(2**64,4)
o(1).resize_(2**62,4)
t.arange(0,1,0.5,dtype=t.int64)
F.unfold(x(),9)
F.unfold(x(),2,stride=0)
F.fold(o(1,8,5),(4,4),2)
""".split("\n")[1:-1]


def names(package):
    """What the calls are written in."""
    functional = package.nn.functional

    def query(*shape):
        return package.ones(*(shape or (1, 2, 4, 8)))

    return {
        "t": package,
        "F": functional,
        "sdpa": functional.scaled_dot_product_attention,
        "o": package.ones,
        "i": lambda *shape: package.zeros(*shape, dtype=package.int64),
        "x": lambda: package.ones(1, 2, 5, 5),
        "w": lambda: package.ones(2, 2, 3, 3),
        "b": lambda: package.ones(4, 3),
        "q": query,
    }


def outcome(call, package):
    """The name of the exception's type, or none."""
    try:
        eval(call, names(package))
    except Exception as error:
        return type(error).__name__, str(error)
    return "no error", ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_exception_type(call):
    theirs, ours = outcome(call, torch), outcome(call, flambeau)
    assert ours[0] == theirs[0], (ours, theirs)
    if ours[1].startswith("["):
        assert "\nhint: " in ours[1]


@pytest.mark.parametrize(
    "call",
    [
        "t.empty(2**62, 4)",
        "t.zeros(2**62, 4)",
        "t.arange(2**62)",
        "t.ones(1).expand(2**62, 4)",
        "t.ones(1).expand(2**61) + 1",
        "t.ones(4).repeat(2**40, 2**40)",
        "F.pad(t.ones(2, 2), (2**61, 0, 2**61, 0))",
        "F.conv_transpose2d(t.ones(1, 1, 4, 4), t.ones(1, 1, 3, 3), stride=2**60)",
        "F.adaptive_avg_pool2d(t.ones(1, 1, 4, 4), (2**32, 2**32))",
        "F.interpolate(t.ones(1, 1, 4, 4), size=(2**32, 2**32))",
        "F.unfold(t.ones(1, 1, 4, 4), 2, padding=2**61)",
        "F.one_hot(t.tensor([1, 2]), 2**62)",
        "t.ones(1, 1).expand(2**40, 1) @ t.ones(1, 1).expand(1, 2**40)",
    ],
)
def test_sizes_that_overflow_are_refused(call):
    """Before any allocation, by an exception that PyTorch's callers catch."""
    for package in (torch, flambeau):
        with pytest.raises(RuntimeError):
            eval(call, names(package))
