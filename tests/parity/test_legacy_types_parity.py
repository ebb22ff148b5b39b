"""Old tensor types, typed storages and old methods of tensors beside PyTorch."""

from __future__ import annotations

import pytest
import torch

import flambeau
from tests.parity.expressions import lines, names_of, plain

OPERANDS = "x = torch.arange(6.0).reshape(2, 3)"
CALLS = """
torch.FloatTensor(); torch.FloatTensor(2, 0); torch.FloatTensor([[1, 2], [3, 4]])
torch.FloatTensor((1, 2)); torch.FloatTensor(torch.Size([0, 2])); torch.FloatTensor(x)
torch.LongTensor([1.5, 2]); torch.BoolTensor([1, 0]); torch.HalfTensor([1, 0])
torch.FloatTensor(size=(2, 0)); torch.FloatTensor(data=[1]); torch.FloatTensor(range(3))
torch.FloatTensor(0, device="cpu"); torch.FloatTensor(x.untyped_storage())
torch.FloatTensor(x.storage()); isinstance(x, torch.FloatTensor); isinstance(x, torch.LongTensor)
isinstance(torch.nn.Parameter(x), torch.FloatTensor); isinstance(x.to("meta"), torch.FloatTensor)
issubclass(torch.FloatTensor, torch.Tensor); repr(torch.FloatTensor); torch.LongTensor.__module__
torch.LongTensor.is_cuda; torch.LongTensor.is_sparse; x.type(torch.LongTensor); x.type()
x.new(); x.new(2, 0); x.new([1, 2]); x.new(x); x.long().new([1.5]); x.new(size=(1, 0))
x.new(x.storage()); x.name; x.dim_order(); x.t().dim_order(); x.expand(2, 2, 3).dim_order()
torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).dim_order(); torch.ones(()).dim_order()
torch.ones(1, 3, 4, 5).dim_order(ambiguity_check=[torch.contiguous_format, torch.channels_last])
torch.ones(40).as_strided((3, 3, 1, 3), (1, 6, 2, 2)).dim_order()
x.module_load(torch.ones(2, 3)); x.storage().tolist(); x.storage().size(); x.storage().nbytes()
x.storage().element_size(); x.storage().type(); x.storage().double().tolist(); x.storage()[-1]
str(x.storage()); x.storage().clone().fill_(2).tolist(); x.storage().pickle_storage_type()
isinstance(x.storage(), torch.FloatStorage); isinstance(x.storage(), torch.LongStorage)
torch.FloatStorage([1, 2, 3]).tolist(); torch.FloatStorage(3).size(); len(torch.FloatStorage())
torch.TypedStorage([1, 2], dtype=torch.int64).tolist(); torch.is_storage(x)
torch.FloatStorage.from_buffer(b'abcdefgh', byte_order='little').tolist()
torch.is_storage(x.storage()); torch.is_storage(torch.UntypedStorage(2)); torch.Storage.__name__
torch.Tensor(x.untyped_storage()); torch.Tensor(x.storage()); torch.Tensor(x.double())
torch.Tensor(x.numpy()); torch.Tensor(data=[1, 2]); torch.Tensor(size=(2, 0)); torch.Tensor([1, 2])
torch.Tensor(torch.tensor(3)); torch.Tensor(torch.tensor(2), 0); torch.Tensor(range(3))
type(torch.Tensor(torch.nn.Parameter(x))).__name__; torch.LongTensor(torch.tensor(0), 3)
x.untyped_storage()[7]; x.untyped_storage()[-2]; list(x.untyped_storage()[4:9])
list(x.untyped_storage()[-4:]); len(x.untyped_storage()[9:2]); 63 in x.untyped_storage()
str(torch.UntypedStorage([1, 300, -1])); torch.UntypedStorage(b'ab').tolist()
torch.UntypedStorage(range(3)).fill_(260).tolist(); torch.UntypedStorage(2).element_size()
torch.UntypedStorage([1, 2]).copy_(torch.UntypedStorage([3, 4])).tolist()
str(torch.UntypedStorage([1, 2]).float()); torch.UntypedStorage([1, 0]).bool().tolist()
str(torch.UntypedStorage(2, device='meta')); torch.UntypedStorage(2).type()
len(x.storage().untyped())
torch.UntypedStorage.from_buffer(b'abcdef', 'big', 2, 2, torch.int16).tolist()
torch.UntypedStorage.from_buffer(b'abcdef', dtype=torch.uint8, offset=4).tolist()
torch.FloatStorage.from_buffer(b'abcdefgh', 'big', count=1).tolist()
"""
REFUSED = """
torch.FloatTensor(x.double()); torch.LongTensor(x); torch.FloatTensor(2.5); torch.FloatTensor('a')
torch.FloatTensor(None); torch.FloatTensor(2, device="meta"); torch.DoubleTensor(x.storage())
torch.FloatTensor(-1); torch.FloatTensor([x[0], x[1]]); torch.FloatTensor(1, requires_grad=True)
torch.FloatTensor.foo; x.type('torch.foo'); x.type(3); x.to(torch.DoubleTensor); x.new(x.long())
torch.zeros(2, dtype=torch.DoubleTensor); x.new(1, 0, dtype=torch.double); x.eig(); x.symeig()
torch.ones(1, 3, 4, 5).dim_order(ambiguity_check=True); x.dim_order(ambiguity_check=3)
x.dim_order(ambiguity_check=[3]); x.to_sparse().dim_order(); x.module_load(torch.ones(3, 3))
x.reinforce(2); x.solve(x); x.lstsq(x); x.storage()[1:3]; x.storage()['a']; x.storage()[7]
torch.FloatStorage(2.5); torch.FloatStorage(torch.ones(2)); torch.FloatStorage('a')
torch.FloatStorage(x.untyped_storage()); torch.TypedStorage(wrap_storage=x.untyped_storage())
torch.set_default_tensor_type(torch.IntTensor); torch.set_default_tensor_type('torch.foo')
torch.set_default_tensor_type(3); torch.set_default_tensor_type('foo')
torch.set_default_tensor_type(torch.float32)
torch.Tensor(2, device='meta'); torch.Tensor(True); torch.Tensor(foo=1); torch.Tensor({1: 2})
torch.Tensor(torch.arange(3).storage()); torch.Tensor(x.untyped_storage(), 1); torch.Tensor(2.5)
x.untyped_storage()[24]; x.untyped_storage()[-25]; x.untyped_storage()['a']
x.untyped_storage()[True]; x.untyped_storage()[1.5]; x.untyped_storage()[0:4:2]
x.untyped_storage().__setitem__(0, 1.5); x.untyped_storage().__setitem__(-1, 1)
x.untyped_storage().__setitem__(24, 1); x.untyped_storage().__setitem__('a', 1)
x.untyped_storage().__setitem__(slice(0, 4, 2), 1); x.to('meta').untyped_storage()[0]
x.untyped_storage().fill_(1.5); x.untyped_storage().copy_(3); torch.UntypedStorage(2.5)
x.untyped_storage().copy_(torch.UntypedStorage(2)); torch.UntypedStorage('ab')
torch.UntypedStorage([1.5]); torch.UntypedStorage(torch.ones(2)); torch.UntypedStorage(2, 3)
torch.UntypedStorage([1, 2]).byteswap(torch.int32); torch.UntypedStorage.from_buffer(b'ab')
torch.UntypedStorage.from_buffer(b'ab', dtype=torch.int16)
torch.UntypedStorage.from_buffer(b'ab', 'x', dtype=torch.int16)
torch.UntypedStorage.from_buffer(b'abc', 'big', dtype=torch.int16)
torch.UntypedStorage.from_buffer(b'abc', 'big', 2, dtype=torch.int16)
torch.UntypedStorage.from_buffer(b'abc', 'big', 1, 4, dtype=torch.int16)
"""
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("call", lines(CALLS))
def test_same_result(call):
    ours, theirs = (eval(call, names_of(m, OPERANDS)) for m in (flambeau, torch))
    if not isinstance(theirs, torch.Tensor):
        assert type(ours) is type(theirs)
        assert ours == theirs
        return
    assert str(ours.dtype) == str(theirs.dtype)
    torch.testing.assert_close(plain(ours), theirs)


@pytest.mark.parametrize("call", lines(REFUSED))
def test_same_exception(call):
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - the type is compared
        eval(call, names_of(torch, OPERANDS))
    with pytest.raises(theirs.type):
        eval(call, names_of(flambeau, OPERANDS))
