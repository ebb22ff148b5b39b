"""Subscripts against PyTorch: values, errors, and for views strides and offsets."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="the oracle is PyTorch 2.13")

import flambeau  # noqa: E402

READS = [
    "x[3]",
    "x[-1]",
    "x[0]",
    "x[4]",
    "x[-5]",
    "x[0,0,0]",
    "x[0,0,0,0]",
    "x[1,2,3]",
    "x[:,5]",
    "x[:,1]",
    "x[...,2]",
    "x[1:3]",
    "x[::2]",
    "x[1:4:2,::3]",
    "x[-3:-1]",
    "x[5:]",
    "x[3:1]",
    "x[::-1]",
    "x[None]",
    "x[:,None]",
    "x[...,None]",
    "x[None,1,...,None,2]",
    "x[()]",
    "x[...]",
    "x[:]",
    "x[True]",
    "x[False]",
    "x[[0,1]]",
    "x[[0,1],[1,2]]",
    "x[[[0,1],[1,2]]]",
    "x[t.tensor([0,3])]",
    "x[t.tensor([0,5])]",
    "x[t.tensor([-1,-4])]",
    "x[t.tensor([[0,1],[2,3]])]",
    "x[:,t.tensor([0,3])]",
    "x[:,:,t.tensor([0,3])]",
    "x[t.tensor([0,1]),:,t.tensor([0,1])]",
    "x[0,:,[0,1]]",
    "x[:,[0,1],[0,1]]",
    "x[[0,1],[0,1,2]]",
    "x[t.tensor([True,False,True,False])]",
    "x[t.tensor([True,False])]",
    "x>3",
    "x[x>30]",
    "x[x[:,:,0]>30]",
    "x[:,x[0,:,0]>5]",
    "x[1.5]",
    'x["a"]',
    "x[t.tensor([0.])]",
    "x[...,...]",
    "x[0:t.tensor(1)]",
    "x[range(2)]",
    "x[True,[0,1]]",
    "x[:,True]",
    "x[:,:,:,None,0]",
    "x[[]]",
    "x[t.tensor([],dtype=t.int64)]",
    "x[t.tensor(1)].clone()",
    "x[t.tensor(1),:,[0,1]]",
    "x[:,None,[0,1]]",
    "x[1,:,[0,2]]",
    "x[[1,2],1:3]",
    "x[1:3,[0,2],::2]",
    "x[None,[0,1]]",
    "x[t.tensor([1,2],dtype=t.int32)]",
    "x[x[0,0].long()%3]",
    "x[{}]",
    "x[[True,False,True,False]]",
    "x[t.tensor(True)]",
    "x[1][2][3]",
    "x[0:0]",
    "x[3,4,5].sum()",
    "x[-1,...,-1]",
    "x[slice(None,None,2),1]",
]
WRITES = [
    "x[0]=5",
    "x[0]=t.ones(5,6)",
    "x[0,1]=2.7",
    "x[1:3]=t.ones(6)",
    "x[x>30]=1",
    "x[x>117]=t.tensor([5.,6.])",
    "x[x>117]=t.tensor([5.,6.,7.])",
    "x[[0,1],[1,2]]=t.ones(2,6)",
    "x[0]=t.ones(3)",
    "x[0]=t.ones(1,5,6)",
    "x[:,0]=t.ones(1,1,6)",
    "x[0]=[1,2]",
    "x[True]=3",
    "x[False]=3",
    "x[None]=4",
    "x[[0,0]]=t.ones(2,5,6)",
    "x[t.tensor([1])]=t.ones(1,1,5,6)",
    "x[1,[0,2]]=9",
    "x[...]=t.zeros(6)",
    "x[9]=1",
    "x[[0,1]]=1.5",
    "x[x>3]=2.5",
    "x[0]=True",
    "x[:,:,::2]=7",
    "x[:,[0,1],:]=t.ones(2,6)",
    "x[t.tensor([0,1]),:,t.tensor([0,1])]=t.ones(2,5)*4",
    "x[0,0,0]=t.tensor(4)",
    "x[x[:,:,0]>30]=0",
    "x[:,x[0,:,0]>5]=t.tensor(2.)",
    "x[t.tensor([0,1])]=t.ones(5,6,dtype=t.float64)",
    "x[0]=1+2j",
    "x[0]=t.ones(5,6,dtype=t.int64)",
    "x[0,1:3]+=1",
    "x[x>5]+=1",
    "x[[0,1]]*=2",
    "x[1]=x[0]",
    "x[t.tensor(2)]=3",
]
INTEGER_WRITES = [
    "x[0]=5", "x[0]=2.7", "x[x>1]=2.5", "x[[0,1]]=1.5", "x[0]=t.tensor(1.7)",
    "x[t.tensor([0,1])]=t.tensor([1.5,2])", "x[x>1]=t.tensor(1.7)",
]  # fmt: skip


def names(library, shape, dtype="float32"):
    numel = 1
    for n in shape:
        numel *= n
    x = library.arange(numel, dtype=getattr(library, dtype)).reshape(shape)
    return {"x": x, "t": library}


def outcome(code, library, shape, dtype="float32", write=False):
    scope = names(library, shape, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if not write:
                return eval(code, scope)
            exec(code, scope)
        except Exception as error:
            return error
    return scope["x"]


def compare(code, shape, dtype="float32", write=False):
    expected = outcome(code, torch, shape, dtype, write)
    found = outcome(code, flambeau, shape, dtype, write)
    if isinstance(expected, Exception):
        assert type(found) is type(expected), f"{found!r} instead of {expected!r}"
        return
    assert not isinstance(found, Exception), repr(found)
    assert tuple(found.shape) == tuple(expected.shape)
    assert found.tolist() == expected.tolist()
    if not write:
        assert found._is_view() == expected._is_view()
        if expected._is_view():
            assert found.stride() == expected.stride()
            assert found.storage_offset() == expected.storage_offset()


@pytest.mark.parametrize("code", READS)
def test_read(code):
    compare(code, (4, 5, 6))


@pytest.mark.parametrize("code", ["x[0]", "x[()]", "x[None]", "x[...]", "x[True]", "x[0,0]"])
def test_read_of_a_number(code):
    compare(code, ())


@pytest.mark.parametrize("code", ["x[0]", "x[:]", "x[[]]", "x[x>0]", "x[None]"])
def test_read_of_nothing(code):
    compare(code, (0, 3))


@pytest.mark.parametrize("code", WRITES)
def test_write(code):
    compare(code, (4, 5, 6), write=True)


@pytest.mark.parametrize("code", INTEGER_WRITES)
def test_write_to_integers(code):
    compare(code, (4,), "int64", write=True)
