"""autograd.Function."""

import gc
import weakref

import pytest

import flambeau as torch
from flambeau import autograd
from flambeau.autograd import Function, once_differentiable


def leaf(*values):
    return torch.tensor(list(values), dtype=torch.float64).requires_grad_()


class Product(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad * b, grad * a


class Exponential(Function):
    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return grad * result


class Double(Function):
    """Doubles in place."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def identity_with(backward):
    body = {"forward": staticmethod(lambda ctx, x: x * 1), "backward": staticmethod(backward)}
    return type("Custom", (Function,), body)


def test_gradients_and_names():
    x, w = leaf(1, 2), leaf(3, 4)
    y = Product.apply(x, w)
    y.sum().backward()
    assert x.grad.tolist() == [3, 4]
    assert w.grad.tolist() == [1, 2]
    assert y.grad_fn.name() == type(y.grad_fn).__name__ == "ProductBackward"


def test_double_backward():
    x, w = leaf(1, 2), leaf(3, 4)
    first = autograd.grad(Product.apply(x, w).sum(), x, create_graph=True)[0]
    assert autograd.grad((first * first).sum(), w)[0].tolist() == [6, 8]
    z = leaf(0.5, 1)
    first = autograd.grad(Exponential.apply(z).sum(), z, create_graph=True)[0]
    assert autograd.grad(first.sum(), z)[0].tolist() == z.exp().tolist()


def test_saved_outputs_make_no_cycle():
    gc.disable()
    try:
        y = Exponential.apply(leaf(1, 2))
        reference = weakref.ref(y)
        del y
        assert reference() is None
    finally:
        gc.enable()


def test_setup_context():
    class Split(Function):
        @staticmethod
        def forward(a, factor):
            return a * factor

        @staticmethod
        def setup_context(ctx, inputs, output):
            _, ctx.factor = inputs
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, grad):
            assert ctx.saved_tensors[0].tolist() == [5, 10]
            return grad * ctx.factor, None

    x = leaf(1, 2)
    y = Split.apply(x, 5)
    y.sum().backward()
    assert x.grad.tolist() == [5, 5]
    assert y.grad_fn.factor == 5


def test_needs_input_grad():
    seen = []

    class Looks(Function):
        @staticmethod
        def forward(ctx, a, b, c):
            seen.append(ctx.needs_input_grad)
            return a * 2

        @staticmethod
        def backward(ctx, grad):
            seen.append(ctx.needs_input_grad)
            return grad * 2, None, None

    Looks.apply(leaf(1, 2), 3, torch.tensor([1.0])).sum().backward()
    assert seen == [(True, False, False)] * 2
    with torch.no_grad():
        assert not Looks.apply(leaf(1), 2, 3).requires_grad
    assert seen[-1] == (False, False, False)


@pytest.mark.parametrize("materialize", [True, False])
def test_absent_gradients(materialize):
    seen = []

    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3, 5

        @staticmethod
        def backward(ctx, first, second, third):
            seen.append((second if second is None else second.tolist(), third))
            return first * 2

    x = leaf(1, 2)
    first, _, number = Two.apply(x)
    assert number == 5
    first.sum().backward()
    assert seen == [([0, 0] if materialize else None, None)]
    assert x.grad.tolist() == [2, 2]


def test_non_differentiable_outputs():
    class Mask(Function):
        @staticmethod
        def forward(ctx, x):
            mask, copy = x > 1, x * 3
            ctx.mark_non_differentiable(mask, copy)
            return x * 2, mask, copy

        @staticmethod
        def backward(ctx, grad, *others):
            return grad * 2

    x = leaf(1, 2)
    y, mask, copy = Mask.apply(x)
    assert (y.requires_grad, mask.requires_grad, copy.requires_grad) == (True, False, False)
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_in_place():
    x = leaf(1, 2, 3)
    y = x * 3
    assert Double.apply(y) is y
    Double.apply(y.narrow(0, 0, 1))
    y.sum().backward()
    assert x.grad.tolist() == [12, 6, 6]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        Double.apply(leaf(1, 2))


def test_dirty_inputs_must_be_inputs_and_outputs():
    class NotReturned(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x * 1

    class NotInput(Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 1
            ctx.mark_dirty(y)
            return y

    with pytest.raises(RuntimeError, match="not returned as output"):
        NotReturned.apply(leaf(1) * 1)
    with pytest.raises(RuntimeError, match="only input Tensors should be given to ctx.mark_dirty"):
        NotInput.apply(leaf(1) * 1)


def test_returned_inputs_and_views():
    class Identity(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 10

    class Column(Function):
        @staticmethod
        def forward(ctx, x):
            return x.view(2, 1)

        @staticmethod
        def backward(ctx, grad):
            return grad.view(2)

    x = leaf(1, 2)
    y = Identity.apply(x)
    assert y is not x
    assert not y.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [10, 10]
    with pytest.raises(RuntimeError, match="created inside a custom Function"):
        Identity.apply(x * 1).mul_(2)
    z = leaf(1, 2)
    Column.apply(z).sum().backward()
    assert z.grad.tolist() == [1, 1]


def test_gradients_are_fitted():
    x = leaf(1, 2)
    identity_with(lambda ctx, grad: torch.ones(4, 2, dtype=torch.float64)).apply(x).sum().backward()
    assert x.grad.tolist() == [4, 4]
    x.grad = None
    identity_with(lambda ctx, grad: torch.ones(2)).apply(x).sum().backward()
    assert x.grad.dtype == torch.float64
    identity_with(lambda ctx, grad: (grad, None, None)).apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (lambda ctx, grad: (grad, grad), "returned an incorrect number of gradients"),
        (lambda ctx, grad: 3, "expected Variable or None"),
        (lambda ctx, grad: torch.ones(3).double(), "returned an invalid gradient at index 0"),
    ],
)
def test_bad_gradients(backward, message):
    with pytest.raises(RuntimeError, match=message):
        identity_with(backward).apply(leaf(1, 2)).sum().backward()


def test_once_differentiable():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 2 * x

    x, scale = leaf(1, 2), leaf(1)
    assert autograd.grad(Square.apply(x).sum(), x)[0].tolist() == [2, 4]
    found = autograd.grad((Square.apply(x) * scale).sum(), x, create_graph=True)[0]
    assert found.tolist() == [2, 4]
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        found.sum().backward()


def test_refusals():
    y = Product.apply(leaf(1, 2), leaf(3, 4))
    y.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.sum().backward()
    a = leaf(1, 2) * 1
    y = Product.apply(a, leaf(3, 4))
    a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.warns(DeprecationWarning, match="not instantiated"):
        Product()

    class SavesNumber(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)
            return x * 1

    with pytest.raises(TypeError, match="can only save variables"):
        SavesNumber.apply(leaf(1))


def test_backward_inside_backward():
    class Checkpoint(Function):
        @staticmethod
        def forward(ctx, function, x):
            ctx.function = function
            ctx.save_for_backward(x)
            return function(x)

        @staticmethod
        def backward(ctx, grad):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = ctx.function(x)
            autograd.backward(y, grad)
            return None, x.grad

    x = leaf(1, 2)
    (Checkpoint.apply(lambda t: t * t * t, x) * 2).sum().backward()
    assert x.grad.tolist() == [6, 24]
