"""Convolutions: the distinct layers of ResNet-50, MobileNet-V2 (depthwise) and a U-Net.

Forward and both gradients, batches of 1 and 8 images, one and two threads. Rows are the numbers of
channels, the size of the image, the kernel and the stride.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import flambeau
from bench.harness import Row, compare, geometric_mean, publish

BATCHES = (1, 8)


@dataclass(frozen=True)
class Layer:
    """One convolution: channels in and out, image, kernel, stride, groups."""

    model: str
    channels: int
    out: int
    image: int
    kernel: int = 3
    stride: int = 1
    depthwise: bool = False
    transposed: bool = False

    @property
    def name(self) -> str:
        """For the table."""
        kind = "depthwise" if self.depthwise else "up" if self.transposed else ""
        return (
            f"{self.model} {kind + ' ' if kind else ''}{self.channels} to {self.out}, image "
            f"{self.image}, kernel {self.kernel}, stride {self.stride}"
        )

    def operands(self, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Image and weight."""
        torch.manual_seed(0)
        x = torch.randn(batch, self.channels, self.image, self.image)
        inner = 1 if self.depthwise else self.channels
        lead = (self.channels, self.out) if self.transposed else (self.out, inner)
        return x, torch.randn(*lead, self.kernel, self.kernel)

    def call(self, functional: Any) -> Callable[[Any, Any], Any]:
        """The layer as a function of image and weight."""
        if self.transposed:
            return lambda x, w: functional.conv_transpose2d(x, w, stride=self.stride)
        groups = self.channels if self.depthwise else 1
        padding = self.kernel // 2
        return lambda x, w: functional.conv2d(
            x, w, stride=self.stride, padding=padding, groups=groups
        )


def resnet() -> Iterator[Layer]:
    """ResNet-50 on images of 224."""
    yield Layer("ResNet", 3, 64, 224, 7, 2)
    image, channels = 56, 64
    for width in (64, 128, 256, 512):
        stride = 1 if width == 64 else 2
        yield Layer("ResNet", channels, width, image, 1)
        yield Layer("ResNet", width, width, image, 3, stride)
        yield Layer("ResNet", channels, 4 * width, image, 1, stride)
        image, channels = image // stride, 4 * width
        yield Layer("ResNet", width, channels, image, 1)
        yield Layer("ResNet", channels, width, image, 1)
        yield Layer("ResNet", width, width, image, 3)


def mobilenet() -> Iterator[Layer]:
    """The depthwise layers of MobileNet-V2 on images of 224."""
    for channels, image, stride in (
        (32, 112, 1), (96, 112, 2), (144, 56, 1), (144, 56, 2), (192, 28, 1), (192, 28, 2),
        (384, 14, 1), (576, 14, 1), (576, 14, 2), (960, 7, 1),
    ):  # fmt: skip
        yield Layer("MobileNet", channels, channels, image, 3, stride, depthwise=True)


def unet() -> Iterator[Layer]:
    """A U-Net of width 64 on images of 128."""
    image, width = 128, 64
    yield Layer("U-Net", 3, width, image)
    while image > 8:
        yield Layer("U-Net", width, width, image)
        yield Layer("U-Net", 2 * width, width, image)
        yield Layer("U-Net", width, 2 * width, image // 2)
        yield Layer("U-Net", 2 * width, width, image // 2, 2, 2, transposed=True)
        image, width = image // 2, 2 * width
    yield Layer("U-Net", width, width, image)
    yield Layer("U-Net", 64, 21, 128, 1)


def passes(layer: Layer, batch: int) -> Iterator[tuple[str, Any, Any]]:
    """Name, our call and PyTorch's, of the forward pass and of either gradient."""
    given = layer.operands(batch)
    calls = []
    for library in (flambeau, torch):
        function = layer.call(library.nn.functional)
        # a model's weights lie in memory of its own library, not in NumPy's
        x, w = (flambeau.from_numpy(t.numpy()).clone() if library is flambeau else t for t in given)
        calls.append([_forward(function, x, w), *(_backward(library, function, x, w))])
    yield from zip(("forward", "input", "weight"), *calls, strict=True)


def _forward(function: Any, x: Any, w: Any) -> Callable[[], Any]:
    return lambda: function(x, w)


def _backward(library: Any, function: Any, x: Any, w: Any) -> Iterator[Callable[[], Any]]:
    for wanted in (0, 1):
        operands = [x.detach(), w.detach()]
        operands[wanted] = operands[wanted].clone().requires_grad_()
        y = function(*operands)
        start = library.ones_like(y) * 0.5
        leaf = operands[wanted]
        yield lambda y=y, leaf=leaf, start=start: library.autograd.grad(
            y, leaf, start, retain_graph=True
        )


def layers() -> list[Layer]:
    """All distinct layers."""
    return list(dict.fromkeys([*resnet(), *mobilenet(), *unet()]))


def rows(threads: int, batch: int) -> dict[str, list[Row]]:
    """Rows by pass."""
    flambeau.set_num_threads(threads)
    torch.set_num_threads(threads)
    found: dict[str, list[Row]] = {}
    for layer in layers():
        for name, ours, theirs in passes(layer, batch):
            row = compare(layer.name, ours, theirs, blocks=5, seconds=0.01, threads=threads)
            found.setdefault(name, []).append(row)
    return found


def main() -> None:
    """Runs everything and publishes after each part: batches of 1 first, as they take less long.

    `python -m bench.convolution quick` only measures batches of 1 on one thread.
    """
    tables: list[tuple[str, list[Row], float | None]] = []
    for batch in BATCHES:
        for threads in (1, 2):
            for name, found in rows(threads, batch).items():
                tables.append((f"{name}, batch {batch}, {threads} thread(s)", found, 0.8))
            publish("convolution", tables)
            every = [row.ratio for _, found, _ in tables for row in found]
            above = sum(ratio > 1.2 for ratio in every)
            print(f"all: {geometric_mean(every):.3f}; {above} of {len(every)} rows above 1.2")
            if "quick" in sys.argv:
                return


if __name__ == "__main__":
    main()
