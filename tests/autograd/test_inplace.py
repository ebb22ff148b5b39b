"""In-place writes and views: versions, rewritten histories, refusals."""

import pytest

import flambeau as torch
from flambeau import autograd
from flambeau.nn import functional as F
from tests.ops.inputs import same_bits


def leaf(*values):
    return torch.tensor(list(values), dtype=torch.float64).requires_grad_()


def test_writing_a_saved_input_is_noticed():
    y = leaf(1, 2, 3) * 2
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as error:
        z.sum().backward()
    text = str(error.value)
    assert "[torch.DoubleTensor [3]], which is output 0 of AddBackward0, is at version 1" in text
    assert "expected version 0 instead" in text


def test_writing_a_saved_output_is_noticed():
    y = leaf(1, 2, 3).exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_writing_leaves_is_refused():
    x = leaf(1, 2, 3)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x.narrow(0, 0, 1).add_(1)
    with torch.no_grad():
        x.add_(1)
    assert x.tolist() == [2, 3, 4]


def test_in_place_chain():
    x = leaf(1, 2, 3)
    y = x * 2
    y.mul_(3)
    y.add_(x)
    y.sum().backward()
    assert x.grad.tolist() == [7, 7, 7]


def test_write_through_a_view_changes_the_base():
    x = leaf(1, 2, 3)
    y = x * 2
    view = y.narrow(0, 1, 1)
    view.mul_(10)
    assert y.grad_fn.name() == "torch::autograd::CopySlices"
    assert view.grad_fn.name() == "AsStridedBackward0"
    y.sum().backward()
    assert x.grad.tolist() == [2, 20, 2]


def test_write_to_the_base_changes_its_views():
    x = leaf(1, 2, 3)
    y = x * 2
    view = y.narrow(0, 1, 1)
    y.mul_(10)
    view.sum().backward()
    assert x.grad.tolist() == [0, 20, 0]


def test_a_constant_base_starts_to_need_gradients():
    w = leaf(1, 2, 3)
    out = torch.zeros(2, 3, dtype=torch.float64)
    sibling = out.select(0, 1)
    out.select(0, 0).copy_(w)
    assert out.requires_grad
    assert sibling.requires_grad
    out.select(0, 1).copy_(w * 2)
    weight = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    (out * weight).sum().backward()
    assert w.grad.tolist() == [9, 12, 15]


def test_views_of_views():
    x = leaf(1, 2, 3, 4)
    y = (x * 1).view(2, 2)
    y.select(0, 0).t().mul_(2)
    y.select(1, 1).mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [2, 6, 1, 3]


def test_double_backward_through_a_written_view():
    x = leaf(1, 2, 3)
    y = x * x
    y.narrow(0, 1, 1).mul_(x.narrow(0, 0, 1))
    first = autograd.grad((y * y).sum(), x, create_graph=True)[0]
    # f = x0^4 + x0^2 x1^4 + x2^4
    assert first.tolist() == [4 + 2 * 16, 4 * 8, 4 * 27]
    second = autograd.grad(first.sum(), x)[0]
    assert second.tolist() == [12 + 2 * 16 + 8 * 8, 12 * 4 + 8 * 8, 12 * 9]


def test_overwritten_values_get_no_gradient():
    x = leaf(1, 2, 3)
    y = x * 2
    y.zero_()
    assert y.requires_grad
    assert y.grad_fn.name() == "ZeroBackward0"
    z = x * 2
    z.narrow(0, 0, 2).zero_()
    z.sum().backward()
    assert x.grad.tolist() == [0, 0, 2]


def test_views_made_without_gradients_are_not_written_with_them():
    x = leaf(1, 2, 3) * 2
    with torch.no_grad():
        view = x.narrow(0, 0, 1)
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        view.mul_(2)


def test_one_of_several_views_is_not_written():
    parts = (leaf(1, 2, 3) * 2).unbind()
    with pytest.raises(RuntimeError, match="a function that returns multiple views"):
        parts[0].mul_(2)


def test_detached_values_share_the_version():
    y = leaf(1, 2) * 2
    z = y * y
    y.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_changing_flags_of_interior_tensors_is_refused():
    y = leaf(1, 2) * 2
    with pytest.raises(RuntimeError, match="only change requires_grad flags of leaf variables"):
        y.requires_grad_(False)
    with pytest.raises(RuntimeError, match="floating point"):
        torch.tensor([1, 2]).requires_grad_()


@pytest.mark.parametrize("compiled", [False, True])
def test_adding_a_view_that_lies_between_the_written_elements(compiled):
    """The operand is copied before the write; its gradient goes to the view that was passed."""
    x = leaf(1, 2, 3, 4)

    def added(x):
        y = (x * 2).view(2, 2)
        y[:, 0].add_(y[:, 1])
        return y * torch.tensor([[1.0, 3.0], [5.0, 7.0]])

    call = torch.compile(added) if compiled else added
    assert autograd.grad(call(x).sum(), x)[0].tolist() == [2, 8, 10, 24]


def test_writes_to_data_are_hidden_from_autograd():
    w, x = leaf(2.0, 3.0), leaf(1.0, 1.0)
    z = w * x
    w.data.mul_(2)
    assert (w._version, w.data._version) == (0, 0)
    z.sum().backward()  # with the new values, as in PyTorch
    assert x.grad.tolist() == [4, 6]
    flat = w.data.view(2, 1)
    plain = w.data
    seen = flat * x
    flat.add_(1)
    assert (flat._version, plain._version) == (1, 0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        seen.sum().backward()


def test_new_data_goes_on_with_the_version():
    x = leaf(1.0, 2.0)
    y = x.exp()
    with torch.no_grad():
        x.add_(1)
    x.data = torch.zeros(2, dtype=torch.float64)
    assert x._version == 1
    y.detach_().set_(torch.ones(3, dtype=torch.float64))
    assert y._version == 1 and y.shape == (3,)
    view = y[1:]
    y.add_(1)
    assert view._version == y._version == 2


@pytest.mark.parametrize("name", ["t_", "squeeze_", "unsqueeze_", "transpose_", "resize_"])
def test_a_new_geometry_is_a_write(name):
    arguments = {"unsqueeze_": (0,), "transpose_": (0, 1), "resize_": (3, 1)}
    x = torch.ones(1, 3)
    getattr(x, name)(*arguments.get(name, ()))
    assert x._version == 1
    x = torch.ones(1, 3, requires_grad=True)
    with pytest.raises(RuntimeError):
        getattr(x, name)(*arguments.get(name, ()))
    assert x._version == 0 and x.shape == (1, 3)


def test_flags_of_what_gets_a_history_later():
    x, y = torch.zeros(3, 3), leaf(1.0)
    view = x.double()[0], x[0]
    x.add_(y.float())
    assert not view[1].is_leaf and view[0].is_leaf
    z = y * 2
    assert z.requires_grad_() is z
    with pytest.raises(RuntimeError, match="leaf variables"):
        z.requires_grad_(False)
    with pytest.raises(RuntimeError, match="leaf variables"):
        z.requires_grad = True
    y.detach_()
    z.sum().backward()
    assert y.grad is None


AFTER = {
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm eval": lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)),
    "instance_norm": F.instance_norm,
    "layer_norm": lambda x: F.layer_norm(x, (5,)),
    "rms_norm": lambda x: F.rms_norm(x, (5,)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "native_layer_norm": lambda x: torch.native_layer_norm(x, (5,), None, None, 1e-5)[0],
    "normalize": F.normalize,
    "local_response_norm": lambda x: F.local_response_norm(x, 2),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x * 2 + 1),
    "div": lambda x: x / (x * x + 1),
    "softsign": F.softsign,
    "erfinv": lambda x: (x / 9).erfinv(),
    "linalg.vander": lambda x: torch.linalg.vander(x[0, 0], N=3),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", AFTER)
def test_results_that_no_backward_reads_may_be_written(name, compiled):
    def gradient(write):
        def run(x):
            return write(AFTER[name](x))

        torch.manual_seed(0)
        x = torch.randn(2, 4, 3, 5, requires_grad=True)
        y = (torch.compile(run) if compiled else run)(x)
        (y * y).sum().backward()
        return x.grad.tolist()

    expected = gradient(lambda y: F.leaky_relu(y, 0.1) * 2.0)
    assert gradient(lambda y: F.leaky_relu(y, 0.1, inplace=True).mul_(2.0)) == expected


def test_relu_reads_its_result_alone():
    x = torch.tensor([-1.0, 0.0, 2.0, float("nan")], requires_grad=True)
    v = x * 2
    y = v.relu()
    v.add_(1)
    y.sum().backward()
    assert x.grad.tolist()[:3] == [0.0, 0.0, 2.0]
    y = (x * 2).relu()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("split", ["tensor_split", "hsplit", "unsafe_chunk", "unsafe_split"])
def test_pieces_that_are_views_by_themselves_may_be_written(split):
    x = torch.arange(6.0, requires_grad=True)
    v = x * 1
    first, *_ = getattr(torch, split)(v, 2)
    first.mul_(3)
    v.sum().backward()
    assert x.grad.tolist() == [3.0] * len(first) + [1.0] * (6 - len(first))
    first, *_ = (x * 1).chunk(2)
    with pytest.raises(RuntimeError, match="returns multiple views"):
        first.mul_(3)


@pytest.mark.parametrize("name", ["sin_", "cos_", "sinh_", "cosh_", "pow_", "rsqrt of pow_"])
def test_results_that_no_gradient_needs_may_be_written_again(name):
    """Graph networks write into the result of pow_(-0.5)."""
    arguments = {"pow_": (3,), "rsqrt of pow_": (-0.5,)}.get(name, ())
    plain = name.split()[-1].removesuffix("_")
    x = torch.linspace(0.1, 0.9, 5).requires_grad_()
    (expected,) = torch.autograd.grad((getattr(x, plain)(*arguments) * 2).sum(), x)
    written = getattr(x * 1.0, f"{plain}_")(*arguments)
    written.mul_(2).sum().backward()
    assert same_bits(x.grad, expected)
