"""Datasets, loaders, samplers, collation, random streams."""

from __future__ import annotations

import collections
import random

import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    random_split,
)

from tests.differential.show import describe, numbers, raised


class _Squares(Dataset):
    def __init__(self, size=10):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        if i >= self.size:
            raise IndexError(i)
        return {"x": torch.tensor([i, i * i]), "y": float(i), "name": f"item{i}"}


def batches() -> None:
    for batch in DataLoader(_Squares(), batch_size=4, shuffle=True):
        print({k: v if isinstance(v, list) else (v.dtype, v.tolist()) for k, v in batch.items()})
    loader = DataLoader(_Squares(), batch_size=4, drop_last=True)
    print(
        len(loader),
        sum(1 for _ in loader),
        loader.batch_size,
        type(loader.sampler).__name__,
        loader.num_workers,
    )
    print(
        raised(lambda: DataLoader(_Squares(), shuffle=True, sampler=SequentialSampler(range(3)))),
        raised(lambda: DataLoader(_Squares(), batch_size=0)),
    )
    print(
        raised(lambda: DataLoader(_Squares(), num_workers=-1)),
        raised(lambda: setattr(loader, "batch_size", 3)),
        len(ConcatDataset([_Squares(2), _Squares(3)])),
    )


def collation() -> None:
    Point = collections.namedtuple("Point", "x y")
    for items in (
        [1, 2],
        [1.5, 2.5],
        [torch.ones(2), torch.zeros(2)],
        [(1, "a"), (2, "b")],
        [{"a": 1}, {"a": 2}],
        [Point(1, 2.0), Point(3, 4.0)],
        [[1, [2, 3]], [4, [5, 6]]],
        ["x", "y"],
        [True, False],
        [None, None],
        [b"a", b"b"],
    ):
        try:
            print(default_collate(items))
        except Exception as error:
            print(type(error).__name__)
    print(
        raised(lambda: default_collate([torch.ones(2), torch.ones(3)])),
        raised(lambda: default_collate([[1], [1, 2]])),
    )
    print(
        default_collate(
            [torch.tensor(1.0, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)]
        ).dtype
    )


def samplers() -> None:
    data = list(range(8))
    print(
        list(RandomSampler(data)),
        list(RandomSampler(data, replacement=True, num_samples=5)),
        list(BatchSampler(SequentialSampler(data), 3, False)),
    )
    print(
        list(WeightedRandomSampler([0.1, 0.9, 0.5], 6)),
        list(torch.utils.data.SubsetRandomSampler([3, 5, 7])),
    )
    g = torch.Generator().manual_seed(7)
    print(
        [s.indices for s in random_split(data, [5, 3], generator=g)],
        [len(s) for s in random_split(data, [0.5, 0.5])],
    )
    print(
        Subset(data, [1, 3])[1],
        raised(lambda: random_split(data, [5, 5])),
        raised(lambda: WeightedRandomSampler([1.0], 0)),
        raised(lambda: RandomSampler([])),
    )
    loader = DataLoader(data, 3, shuffle=True, generator=torch.Generator().manual_seed(3))
    print([b.tolist() for b in loader], [b.tolist() for b in loader], torch.initial_seed())


class _Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        start = 0 if info is None else info.id
        return iter(range(start, 10, 1 if info is None else info.num_workers))


def iterable_data() -> None:
    print(
        [b.tolist() for b in DataLoader(_Stream(), batch_size=3)],
        raised(lambda: len(DataLoader(_Stream()))),
        raised(lambda: DataLoader(_Stream(), shuffle=True)),
    )
    print([b for b in DataLoader(_Stream(), batch_size=None)][:3], raised(lambda: len(_Stream())))
    print([b.tolist() for b in DataLoader(_Stream() + _Stream(), batch_size=5)])


def workers() -> None:
    loader = DataLoader(_Squares(), batch_size=4, num_workers=1, shuffle=True)
    print(
        [b["x"].tolist() for b in loader],
        [b["y"].dtype for b in loader][0],
        loader.prefetch_factor,
        loader.persistent_workers,
    )
    print(sorted(v for b in DataLoader(_Stream(), batch_size=2, num_workers=2) for v in b.tolist()))

    class Bad(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            raise KeyError("missing")

    print(
        raised(lambda: list(DataLoader(Bad(), num_workers=1))),
        raised(lambda: list(DataLoader(Bad()))),
    )
    DataLoader(_Squares(), num_workers=500)
    DataLoader(_Squares(), pin_memory=True)


def tensor_datasets() -> None:
    data = TensorDataset(torch.arange(6).view(3, 2), torch.tensor([0.0, 1, 2]))
    print(
        data[1],
        data[:2],
        len(data),
        raised(lambda: TensorDataset(torch.ones(2), torch.ones(3))),
        data.tensors[0].shape,
    )
    for x, y in DataLoader(data, batch_size=2):
        print(describe(x), y, type((x, y)).__name__)
    print(
        next(iter(DataLoader(data, batch_size=2)))[0].tolist(),
        type(next(iter(DataLoader(data)))).__name__,
    )
    print(
        list(DataLoader(data, collate_fn=lambda items: len(items), batch_size=2)),
        type(
            DataLoader(data)._get_iterator() if hasattr(DataLoader(data), "_get_iterator") else 0
        ).__name__,
    )


def random_streams() -> None:
    print(
        torch.rand(3),
        torch.randn(3),
        torch.randint(0, 100, (5,)),
        torch.randperm(6),
        torch.rand(2, dtype=torch.float64),
        torch.randn(2, dtype=torch.bfloat16),
    )
    print(
        torch.bernoulli(torch.full((6,), 0.3)),
        torch.multinomial(torch.tensor([0.1, 0.2, 0.7]), 5, replacement=True),
        torch.normal(torch.zeros(2), torch.ones(2)),
        torch.normal(1.0, 2.0, (2,)),
    )
    print(
        torch.empty(3).exponential_(),
        torch.empty(2).uniform_(2, 3),
        torch.empty(2).log_normal_(),
        torch.empty(2).cauchy_(),
        torch.empty(3).geometric_(0.5),
        torch.empty(3).random_(10),
        torch.poisson(torch.tensor([1.0, 5.0])),
    )
    print(
        torch.randn(17)[-3:],
        torch.rand_like(torch.ones(2)),
        torch.randint_like(torch.ones(2), 5),
        torch.randn(2, dtype=torch.complex64),
        torch.nn.functional.dropout(torch.ones(8), 0.5),
        torch.randint(5, (2,)).dtype,
    )
    print(
        torch.multinomial(torch.ones(4), 3),
        raised(lambda: torch.multinomial(torch.zeros(3), 1)),
        raised(lambda: torch.randint(5, 2, (1,))),
        raised(lambda: torch.bernoulli(torch.tensor([2.0]))),
        raised(lambda: torch.normal(0.0, -1.0, (2,))),
        torch.normal(1.0, 2.0, (2,), requires_grad=True).requires_grad,
        raised(lambda: torch.normal(torch.zeros(2), 1.0, requires_grad=True)),
    )


def generators() -> None:
    g = torch.Generator()
    g.manual_seed(5)
    a = torch.rand(2, generator=g)
    state = g.get_state()
    b = torch.rand(2, generator=g)
    g.set_state(state)
    print(
        a,
        torch.equal(b, torch.rand(2, generator=g)),
        g.initial_seed(),
        g.device,
        state.dtype,
        state.shape,
        g.clone_state().initial_seed(),
    )
    saved = torch.get_rng_state()
    x = torch.rand(1)
    torch.set_rng_state(saved)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        print(torch.rand(1))
    print(
        torch.equal(x, torch.rand(1)),
        torch.initial_seed(),
        torch.seed() != 0,
        torch.default_generator.device,
        raised(lambda: torch.rand(1, generator=5)),
    )
    random.seed(1)
    print(
        random.random(),
        torch.manual_seed(-1).initial_seed(),
        torch.manual_seed(2**63).initial_seed()
        if raised(lambda: torch.manual_seed(2**63)) == "returned Generator"
        else "refused",
    )


def transforms_pipeline() -> None:
    class Augmented(Dataset):
        def __init__(self, images, transform):
            self.images, self.transform = images, transform

        def __len__(self):
            return len(self.images)

        def __getitem__(self, i):
            return self.transform(self.images[i]), i % 2

    def transform(image):
        if torch.rand(1) < 0.5:
            image = image.flip(-1)
        top, left = torch.randint(0, 3, (2,)).tolist()
        image = image[:, top : top + 4, left : left + 4]
        return (image.float() / 255 - 0.5) / 0.25

    images = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8)
    for x, y in DataLoader(Augmented(images, transform), batch_size=3, shuffle=True):
        print(describe(x), numbers(x.mean()), numbers(x.std((0, 2, 3))), y)


def padded_batches() -> None:
    from torch.nn.utils.rnn import pack_sequence, pad_sequence, unpad_sequence

    sentences = [torch.arange(n) for n in (3, 1, 4)]

    def collate(items):
        lengths = torch.tensor([len(i) for i in items])
        return pad_sequence(items, batch_first=True, padding_value=-1), lengths

    for padded, lengths in DataLoader(sentences, batch_size=2, collate_fn=collate):
        mask = torch.arange(padded.size(1))[None] < lengths[:, None]
        print(
            padded,
            lengths,
            mask,
            padded.masked_fill(~mask, 0).sum(1) / lengths,
            unpad_sequence(padded, lengths, batch_first=True),
        )
    packed = pack_sequence(sentences, enforce_sorted=False)
    print(
        packed,
        packed.data.shape,
        packed.to(torch.float32).data.dtype,
        pad_sequence(sentences, padding_side="left"),
    )
