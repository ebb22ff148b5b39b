"""What the epilogue of a convolution computes, stores and leaves to others, in U-Net's pattern:
convolution, batch norm, relu, pooling, and another convolution behind it.
"""

import pytest

import flambeau as torch
from flambeau import nn


@pytest.fixture(scope="module")
def kernels():
    """Texts of the scheduled launches' kernels, by what their launch is called."""

    def block(before, after):
        return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]

    model = nn.Sequential(*block(32, 32), nn.MaxPool2d(2), *block(32, 64)).eval()
    with torch.no_grad():
        found = torch.compiler.stages(model, torch.randn(1, 32, 12, 12))
    [text] = [text for name, _, text in found if name == "lower"]
    return text.split("\nlaunch ")[1:]


def test_what_is_dear_and_the_same_for_a_channel_is_computed_apart(kernels):
    templates = [text for text in kernels if "template convolution" in text]
    assert templates
    assert not any("rsqrt" in text or " sqrt" in text for text in templates)
    assert any("rsqrt" in text for text in kernels)


def test_pooling_reads_what_the_epilogue_stored(kernels):
    [pooling] = [text for text in kernels if "where f32" in text and "template" not in text]
    assert " sub " not in pooling and " mul " not in pooling


def test_epilogues_store_along_rows_where_sizes_are_quotients(kernels):
    stores = [line for text in kernels for line in text.splitlines() if "store " in line]
    assert stores
    assert not any("%" in line.split("]")[0] for line in stores if "p1" in line)


def test_an_optimizer_step_is_no_epilogue_of_the_gradient():
    linear = nn.Linear(24, 40, bias=False)
    optimizer = torch.optim.AdamW(linear.parameters(), lr=1e-3)

    def step(x):
        linear(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step(torch.randn(16, 24))  # makes the moments
    found = torch.compiler.stages(step, torch.randn(16, 24))
    [text] = [text for name, _, text in found if name == "lower"]
    launches = text.split("\nlaunch ")[1:]
    templates = [launch for launch in launches if "template product" in launch]
    assert templates and not any("sqrt" in launch for launch in templates)
    [update] = [launch for launch in launches if "sqrt" in launch]
    assert update.count("store ") == 3  # the weight and both moments, in one pass
