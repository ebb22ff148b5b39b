"""Types per dtype from before tensors had dtypes, typed storages, and older methods of tensors."""

import pytest

import flambeau as torch


@pytest.fixture
def x():
    return torch.arange(6.0).reshape(2, 3)


def test_types_make_tensors(x):
    assert torch.FloatTensor().shape == (0,)
    assert torch.LongTensor(2, 3).shape == (2, 3)
    assert torch.DoubleTensor(torch.Size([0, 2])).dtype == torch.float64
    assert torch.BoolTensor([1, 0]).tolist() == [True, False]
    assert torch.FloatTensor(x).data_ptr() == x.data_ptr()
    assert torch.FloatTensor(x.untyped_storage()).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(TypeError, match="expected a tensor"):
        torch.LongTensor(x)
    with pytest.raises(TypeError, match="sequence"):
        torch.FloatTensor(2.5)
    with pytest.raises(RuntimeError, match="negative"):
        torch.FloatTensor(-1)
    with pytest.raises(RuntimeError, match="device type"):
        torch.FloatTensor(2, device="meta")


def test_types_answer_isinstance(x):
    assert isinstance(x, torch.FloatTensor)
    assert isinstance(torch.nn.Parameter(x), torch.FloatTensor)
    assert not isinstance(x, torch.DoubleTensor)
    assert not isinstance(x.to("meta"), torch.FloatTensor)
    assert not isinstance(3, torch.FloatTensor)
    assert not issubclass(torch.FloatTensor, torch.Tensor)


@pytest.mark.parametrize(
    "title", "Float Double Half BFloat16 Byte Char Short Int Long Bool".split()
)
def test_type_agrees(x, title):
    kind = getattr(torch, f"{title}Tensor")
    y = x.type(kind)
    assert isinstance(y, kind)
    assert y.type() == f"torch.{title}Tensor"
    assert x.type(y.type()).dtype == kind.dtype
    assert y.storage_type() is getattr(torch, f"{title}Storage")


def test_type_of_something_else(x):
    with pytest.raises(TypeError):
        x.type(3)
    with pytest.raises(TypeError):
        x.type(int)


def test_default_tensor_type():
    torch.set_default_tensor_type(torch.DoubleTensor)
    try:
        assert torch.tensor([1.5]).dtype == torch.float64
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")
    with pytest.raises(TypeError):
        torch.set_default_tensor_type(torch.IntTensor)
    with pytest.raises(AttributeError):
        torch.set_default_tensor_type("torch.foo")


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_typed_storage_shares_memory(x):
    held = x.storage()
    assert (len(held), held.nbytes(), held.dtype) == (6, 24, torch.float32)
    held[0] = 7
    assert x[0, 0] == 7
    assert held[-1] == 5
    assert isinstance(held, torch.FloatStorage)
    assert isinstance(held, torch.TypedStorage)
    assert not isinstance(held, torch.LongStorage)
    assert held.long().tolist() == [7, 1, 2, 3, 4, 5]
    assert torch.is_storage(held)
    assert torch.is_storage(held.untyped())
    assert not torch.is_storage(x)
    assert held.clone().fill_(1).tolist() == [1] * 6
    assert x[0, 0] == 7
    assert torch.FloatTensor(held).data_ptr() == x.data_ptr()
    with pytest.raises(IndexError):
        held[6]
    with pytest.raises(RuntimeError, match="slices"):
        held[1:2]


def test_storages_are_made():
    assert torch.FloatStorage([1, 2]).tolist() == [1, 2]
    assert torch.IntStorage(3).size() == 3
    assert torch.TypedStorage([1], dtype=torch.int64).type() == "torch.LongStorage"
    assert torch.LongStorage.from_buffer(bytes(8), "native").tolist() == [0]
    with pytest.raises(TypeError):
        torch.FloatStorage(torch.ones(2))
    with pytest.raises(RuntimeError, match="dtype"):
        torch.TypedStorage(wrap_storage=torch.ones(1).untyped_storage())


def test_older_methods(x):
    assert x.new([1, 2]).tolist() == [1, 2]
    assert x.long().new(2, 0).dtype == torch.int64
    assert x.const_data_ptr() == x.data_ptr()
    assert x.name is None
    assert x.grad_dtype == torch.float32
    assert x.module_load(torch.ones(2, 3)).tolist() == [[1] * 3] * 2
    other = torch.zeros(2, 3)
    assert x.module_load(other, assign=True).data_ptr() == other.data_ptr()
    for name in ("eig", "symeig", "reinforce"):
        with pytest.raises(RuntimeError, match="removed"):
            getattr(x, name)()


def test_order_of_dimensions(x):
    assert x.t().dim_order() == (1, 0)
    images = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert images.dim_order() == (0, 2, 3, 1)
    assert x.expand(2, 2, 3).dim_order() == (0, 1, 2)
    formats = [torch.contiguous_format, torch.channels_last]
    assert torch.ones(1, 3, 4, 5).dim_order(ambiguity_check=formats) == (0, 1, 2, 3)
    with pytest.raises(RuntimeError):
        torch.ones(1, 1, 4, 5).dim_order(ambiguity_check=formats)
    with pytest.raises(RuntimeError):
        torch.ones(1, 3).dim_order(ambiguity_check=True)
    with pytest.raises(TypeError):
        x.dim_order(ambiguity_check=3)


def test_untyped_storage_slices_share_memory(x):
    held = x.untyped_storage()
    part = held[4:8]
    part[0:4] = 0
    assert x[0, 1] == 0
    held[7], held[6] = 0x3F, 0x80
    assert (x[0, 1], part[2]) == (1, 0x80)
    assert torch.Tensor(held).data_ptr() == x.data_ptr()
    del x, held
    assert part.tolist() == [0, 0, 0x80, 0x3F]
    with pytest.raises(TypeError):
        del part[0]
    with pytest.raises(RuntimeError, match="resizable"):
        part.resize_(8)


def test_writes_to_a_storage_are_seen():
    x = torch.arange(3.0, requires_grad=True)
    y = x.exp()
    y.untyped_storage()[0] = 1
    with pytest.raises(RuntimeError, match="modified"):
        y.sum().backward()
    swapped = torch.UntypedStorage([1, 2, 3, 4])
    swapped.byteswap(torch.int16)
    assert swapped.tolist() == [2, 1, 4, 3]


def test_constructor_of_subclasses(x):
    class Mine(torch.Tensor):
        pass

    assert type(Mine([1, 2])) is Mine
    assert type(Mine(2, 3)) is Mine
    assert type(torch.Tensor(Mine(x))) is torch.Tensor
    assert torch.Tensor(Mine(x)).data_ptr() == x.data_ptr()
