"""Sparse, nested, masked, named and quantized tensors; storages; dtypes with few bits."""

from __future__ import annotations

import torch

from tests.differential.show import describe, numbers, raised


def coordinate_tensors() -> None:
    i = torch.tensor([[0, 1, 1, 0], [2, 0, 0, 2]])
    s = torch.sparse_coo_tensor(i, torch.tensor([3.0, 4.0, 5.0, 1.0]), (2, 3))
    print(
        s,
        s.is_coalesced(),
        s.coalesce(),
        s.to_dense(),
        s._nnz(),
        s.sparse_dim(),
        s.dense_dim(),
        s.layout,
    )
    print(
        (s + s).to_dense(),
        (s * 2).coalesce().values(),
        torch.sparse.mm(s, torch.eye(3)),
        s @ torch.ones(3),
        s.t().shape,
        s.sum(),
    )
    print(
        raised(lambda: s.indices()),
        s.coalesce().indices(),
        raised(lambda: torch.sparse_coo_tensor(i, torch.ones(3))),
        raised(lambda: torch.sparse_coo_tensor(i, torch.ones(4), (1, 1))),
    )
    print(
        torch.sparse.softmax(s, 1),
        s.dtype,
        s.float().is_sparse,
        raised(lambda: s.view(6)),
        s.clone().coalesce().values(),
        torch.eye(2).to_sparse().to_dense(),
    )


def sparse_gradients() -> None:
    w = torch.ones(3, 2, requires_grad=True)
    s = torch.eye(3).to_sparse()
    torch.sparse.mm(s, w).sum().backward()
    print(w.grad, torch.sparse.mm(s, w).requires_grad)
    v = torch.tensor([1.0, 2.0], requires_grad=True)
    a = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), v, (2, 2))
    (a @ torch.ones(2, 1)).sum().backward()
    print(v.grad, a.requires_grad, a.to_dense().tolist())
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([0, 2])).sum().backward()
    torch.optim.SGD(table.parameters(), lr=1.0).step()
    print(table.weight.grad, raised(lambda: torch.optim.Adam(table.parameters()).step()))


def kinds_of_tensors() -> None:
    s = torch.eye(2).to_sparse().requires_grad_()
    n = torch.nested.nested_tensor([torch.ones(1)])
    print(type(s).__name__, type(n).__name__, type(s.to_dense().grad_fn).__name__)
    print(type(torch.sparse.mm(s, torch.eye(2)).grad_fn).__name__)


def compressed_tensors() -> None:
    d = torch.tensor([[0.0, 1, 0], [2, 0, 3]])
    c = d.to_sparse_csr()
    print(
        c, c.crow_indices(), c.col_indices(), c.values(), c @ torch.ones(3), c.to_dense(), c.layout
    )
    print(
        torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0]),
        d.to_sparse_csc().ccol_indices(),
        (c * 2).values(),
        c.to_sparse_coo().layout,
        raised(lambda: torch.sparse_csr_tensor([0, 5], [0], [1.0])),
    )


def nested_tensors() -> None:
    n = torch.nested.nested_tensor([torch.arange(2.0), torch.arange(3.0)])
    print(
        n,
        n.is_nested,
        n.size(0),
        n.dim(),
        [t.shape for t in n.unbind()],
        n.to_padded_tensor(-1.0),
        raised(lambda: n.shape),
        raised(lambda: n.size(1)),
    )
    j = torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(4, 3)], layout=torch.jagged)
    print(
        j.offsets(),
        j.values().shape,
        (j * 2).values().sum(),
        torch.nn.functional.linear(j, torch.ones(5, 3)).values().shape,
        j.is_nested,
        j.layout,
    )
    print(
        torch.nested.as_nested_tensor([torch.ones(1), torch.ones(2)]).to_padded_tensor(0),
        torch.nested.to_padded_tensor(n, 0).shape,
    )


def masked_tensors() -> None:
    from torch.masked import masked_tensor

    m = masked_tensor(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True]))
    print(m, m.sum(), m.mean(), (m + m).get_data(), m.get_mask(), m.to_tensor(0), type(m).__name__)
    print(
        torch.masked.sum(torch.ones(3), mask=torch.tensor([True, False, True])),
        torch.masked.softmax(torch.ones(3), 0, mask=torch.tensor([True, False, True])),
        torch.masked.amax(torch.arange(3.0), 0, mask=torch.tensor([True, True, False])),
    )
    x = torch.tensor([1.0, 0.0], requires_grad=True)
    masked_tensor(x, torch.tensor([True, False])).sqrt().sum().backward()
    print(x.grad)


def named_dimensions() -> None:
    x = torch.zeros(2, 3, names=("N", "C"))
    print(
        x.names,
        x,
        x.sum("C").names,
        x.align_to("C", "N").shape,
        x.rename(N="B").names,
        x.rename(None).names,
        x.transpose("N", "C").names,
    )
    print(
        raised(lambda: x + torch.zeros(2, 3, names=("N", "H"))),
        (x + 1).names,
        x.refine_names("N", "C").names,
        x.flatten(["N", "C"], "F").names,
        raised(lambda: x.sum("H")),
    )


def storages() -> None:
    x = torch.arange(4, dtype=torch.float32)
    s = x.untyped_storage()
    print(
        type(s).__name__,
        s.nbytes(),
        s.size(),
        len(s),
        s.device,
        s.is_shared(),
        x.storage_offset(),
        x[2:].untyped_storage().data_ptr() == s.data_ptr(),
    )
    print(
        type(x.storage()).__name__,
        x.storage()[1],
        x.storage().dtype,
        x.storage().size(),
        torch.FloatTensor([1, 2]),
        torch.LongTensor(2).dtype,
    )
    y = torch.empty(0).set_(s, 1, (3,), (1,))
    y.zero_()
    print(
        x,
        x.element_size(),
        x.view(torch.int32),
        x.view(torch.uint8).shape,
        raised(lambda: x[:3].view(torch.float64)),
        s.tolist()[:4],
    )
    s.resize_(0)
    print(
        s.nbytes(),
        torch.frombuffer(bytearray(b"\x01\x00\x02\x00"), dtype=torch.int16),
        torch.tensor([1]).share_memory_().is_shared(),
    )


def few_bits() -> None:
    x = torch.tensor([0.1, 1.5, 300.0, -1e-8, 70000.0])
    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        y = x.to(dtype)
        print(dtype, y.float(), y.element_size(), torch.finfo(dtype).max, torch.finfo(dtype).tiny)
    print(
        (torch.ones(3, dtype=torch.float16) / 3),
        torch.tensor(1.0, dtype=torch.bfloat16) + 0.001,
        torch.full((2,), 60000.0).half() * 2,
        torch.arange(2049, dtype=torch.float16)[-1],
    )
    print(
        torch.ones(2, 2).half() @ torch.ones(2, 2).half(),
        torch.ones(1000).half().sum(),
        torch.tensor([300], dtype=torch.int32).to(torch.int8),
        torch.tensor([-1]).to(torch.uint8),
        torch.uint16,
        torch.tensor([1, 2], dtype=torch.uint16),
    )
    print(
        raised(lambda: torch.ones(2, dtype=torch.uint16) + 1),
        raised(lambda: torch.ones(2).to(torch.float8_e4m3fn) + 1),
        torch.can_cast(torch.float, torch.int),
        torch.promote_types(torch.int8, torch.uint8),
        torch.result_type(torch.ones(1, dtype=torch.half), 1.0),
    )


def quantization() -> None:
    x = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    print(
        torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127),
        numbers(
            torch.fake_quantize_per_channel_affine(
                x.view(2, 2), torch.tensor([0.1, 0.5]), torch.zeros(2, dtype=torch.int32), 0, 0, 255
            )
        ),
    )
    scale = x.abs().max() / 127
    q = torch.clamp((x / scale).round(), -128, 127).to(torch.int8)
    print(q, numbers(q.float() * scale), torch.equal(q, q.clone()))


def meta_tensors() -> None:
    x = torch.empty(3, 4, device="meta")
    y = x @ x.T + 1
    print(
        y,
        describe(y),
        y.device,
        y.is_meta,
        raised(lambda: y.item()),
        raised(lambda: y.tolist()),
        torch.empty_like(y, device="cpu").shape,
    )
    with torch.device("meta"):
        net = torch.nn.Linear(1000, 1000)
    print(
        net.weight.device,
        net.to_empty(device="cpu").weight.device,
        torch.nn.utils.skip_init(torch.nn.Linear, 2, 2).weight.shape,
        raised(lambda: torch.nn.Linear(2, 2, device="meta").to("cpu")),
    )
    torch.set_default_device("meta")
    print(torch.ones(1).device, torch.get_default_device())
    torch.set_default_device(None)
    print(
        torch.ones(1).device,
        raised(lambda: torch.ones(1, device="cuda")),
        raised(lambda: torch.ones(1).cuda()),
        raised(lambda: torch.device("nope")),
        torch.cuda.is_available(),
        torch.cuda.device_count(),
    )


def default_types() -> None:
    torch.set_default_dtype(torch.float64)
    print(
        torch.tensor(1.0).dtype,
        torch.ones(1).dtype,
        (torch.tensor([1]) / 2).dtype,
        torch.tensor(1j).dtype,
        torch.nn.Linear(1, 1).weight.dtype,
        torch.get_default_dtype(),
        torch.rand(1).dtype,
    )
    print(
        torch.tensor([1.5]),
        torch.tensor([1.5], dtype=torch.float32),
        raised(lambda: torch.set_default_dtype(torch.int32)),
    )
    torch.set_default_dtype(torch.float32)
    torch.set_default_tensor_type(torch.DoubleTensor)
    print(torch.ones(1).dtype)
    torch.set_default_tensor_type(torch.FloatTensor)
    print(
        torch.arange(3).float().type(),
        torch.ones(1).type(torch.int64).dtype,
        torch.ones(1).type("torch.DoubleTensor").dtype,
        torch.is_tensor(3),
        torch.is_floating_point(torch.ones(1)),
        torch.ones(2).type_as(torch.tensor([1])),
    )


def memory_formats() -> None:
    x = torch.randn(2, 3, 4, 5)
    y = x.to(memory_format=torch.channels_last)
    print(
        y.stride(),
        y.is_contiguous(),
        y.is_contiguous(memory_format=torch.channels_last),
        (y + 1).stride(),
        torch.empty_like(y).stride(),
        y.clone().stride(),
        y.contiguous().stride(),
    )
    print(
        torch.relu(y).stride(),
        y.permute(0, 2, 3, 1).is_contiguous(),
        (y * x).stride(),
        torch.cat([y, y]).stride(),
        y[:1].stride(),
        y.sum(1).stride(),
        torch.nn.Conv2d(3, 2, 1)(y).stride(),
    )
    print(
        x.transpose(1, 2).clone().stride(),
        x.transpose(1, 2).exp().stride(),
        torch.zeros_like(x.transpose(0, 3)).stride(),
        x.transpose(1, 2).contiguous().stride(),
        x.T.stride() if x.dim() == 2 else x.mT.stride(),
    )
    print(
        (x.transpose(0, 1) + x.transpose(0, 1)).stride(),
        x.expand(2, 3, 4, 5).stride(),
        torch.rand_like(y).stride(),
        y.bfloat16().stride(),
        y.reshape(2, -1).stride(),
        x.squeeze().stride(),
        torch.preserve_format,
    )
