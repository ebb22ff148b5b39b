"""Modules against PyTorch: text, initial weights (same bits), results, gradients, errors."""

import warnings

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

from module_cases import CASES  # noqa: E402 - beside this file

# Weights that are computed from drawn ones: equal up to the order of a sum.
COMPUTED = ("original0", "weight_g", "._u", "._v")


def flatten(value, library, found):
    if isinstance(value, library.Tensor):
        found.append(value)
    elif isinstance(value, (tuple, list)):
        for part in value:
            flatten(part, library, found)
    return found


def arrays(tensors):
    """Values by name; of those that a first call has still to make, the text."""
    return {
        name: np.array(repr(t)) if "Uninitialized" in repr(type(t)) else t.detach().numpy().copy()
        for name, t in tensors
        if t is not None
    }


def run(library, constructor, call):
    """Everything comparable about one case, or the exception."""
    names = {
        "torch": library,
        "nn": library.nn,
        "F": library.nn.functional,
        "R": lambda *s: library.randn(*s),
        "L": lambda *s, n=5: library.randint(0, n, s),
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.manual_seed(1234)
            module = eval(constructor, names)
            start = arrays(module.state_dict().items())
            library.manual_seed(99)
            outputs = flatten(eval(call, names | {"m": module}), library, [])
            wanted = [t for t in outputs if t.requires_grad]
            if wanted:
                sum((t * t * 0.5 + t).sum() for t in wanted).backward()
            gradients = arrays((n, p.grad) for n, p in module.named_parameters())
    except Exception as error:
        return error
    end = arrays(module.state_dict().items())
    results = arrays((str(i), t) for i, t in enumerate(outputs))
    return repr(module), start, results, gradients, end


def assert_close(ours, theirs, rtol, atol):
    assert list(ours) == list(theirs)
    for name, expected in theirs.items():
        assert ours[name].dtype == expected.dtype, name
        np.testing.assert_allclose(ours[name], expected, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("constructor,call", CASES, ids=[a + " " + b for a, b in CASES])
def test_module(constructor, call):
    ours, theirs = run(flambeau, constructor, call), run(torch, constructor, call)
    if isinstance(theirs, Exception):
        assert type(ours) is type(theirs), ours
        return
    if isinstance(ours, Exception):
        raise ours
    assert ours[0] == theirs[0]
    assert list(ours[1]) == list(theirs[1])
    for name, expected in theirs[1].items():
        if name.endswith(COMPUTED):
            np.testing.assert_allclose(ours[1][name], expected, rtol=1e-5, atol=1e-7)
        else:
            np.testing.assert_array_equal(ours[1][name], expected, err_msg=name)
    assert_close(ours[2], theirs[2], 1e-4, 1e-5)
    assert_close(ours[3], theirs[3], 2e-4, 2e-5)
    assert_close(ours[4], theirs[4], 2e-4, 2e-5)
