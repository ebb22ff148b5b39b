"""Calls as text that names `torch` and some operands, evaluated in both libraries."""

import torch


def lines(text):
    """The expressions of a text: one a line, or several with semicolons between them."""
    parts = (part for line in text.strip().splitlines() for part in line.split(";"))
    return [part.strip() for part in parts if part.strip()]


def names_of(library, operands):
    """What the statements `operands` name, made by a library."""
    names = {"torch": library}
    exec(operands, names)
    return names


def plain(value):
    """A dense tensor of ours as one of PyTorch's."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    kind = getattr(torch, str(value.dtype).removeprefix("torch."))
    return torch.tensor(value.detach().tolist(), dtype=kind).reshape(tuple(value.shape))
