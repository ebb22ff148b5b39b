"""The random streams on CPU are PyTorch's: same seed, same calls, same bits.

Every test makes the same sequence of calls through both libraries and compares the values
exactly, then the generator's state, so that a distribution that draws one word too many fails
here and not three calls later. docs/random.md describes the streams.
"""

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

# Both sides of sixteen (the block transform of normal) and of 624 (a block of words).
SIZES = [1, 2, 3, 7, 15, 16, 17, 31, 32, 40, 311, 312, 623, 624, 625, 1047, 10007]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]


def assert_same_stream(call, seed=20260):
    """Runs call(library) with both libraries; compares the values and the state left behind."""
    results = []
    for library in (flambeau, torch):
        library.manual_seed(seed)
        values = call(library)
        values = values if isinstance(values, list) else [values]
        numbers = [value.tolist() for value in values]
        results.append((numbers, bytes(library.get_rng_state().tolist())))
    (ours, our_state), (theirs, their_state) = results
    assert ours == theirs
    assert our_state == their_state


def empty(library, size, dtype):
    return library.empty(size, dtype=getattr(library, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES)
def test_rand(size, dtype):
    assert_same_stream(lambda lib: lib.rand(size, dtype=getattr(lib, dtype)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bounds", [(-0.3, 0.7), (-1 / 3, 1 / 3), (0.1, 0.11), (1.0, 1.0000005)])
def test_uniform(bounds, dtype):
    assert_same_stream(lambda lib: empty(lib, 1047, dtype).uniform_(*bounds))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES)
def test_randn(size, dtype):
    assert_same_stream(lambda lib: lib.randn(size, dtype=getattr(lib, dtype)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [5, 16, 1047])
def test_normal_with_parameters(size, dtype):
    assert_same_stream(lambda lib: empty(lib, size, dtype).normal_(0.3, 1.7))


def test_normal_keeps_its_second_value_across_calls_and_dtypes():
    assert_same_stream(
        lambda lib: [lib.randn(1), lib.rand(3), lib.randn(1, dtype=lib.float64), lib.randn(3)]
    )


def test_normal_of_parameter_tensors():
    def call(lib):
        mean, std = lib.rand(20), lib.rand(20)
        return [lib.normal(mean, std), lib.normal(mean, 2.5), lib.normal(1.5, std)]

    assert_same_stream(call)


@pytest.mark.parametrize("size", [5, 40])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex(size, dtype):
    def call(lib):
        dtype_of = getattr(lib, dtype)
        return [lib.rand(size, dtype=dtype_of), lib.randn(size, dtype=dtype_of)]

    assert_same_stream(call)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_randint(dtype):
    assert_same_stream(lambda lib: lib.randint(3, 120, (1047,), dtype=getattr(lib, dtype)))


@pytest.mark.parametrize("high", [2**28 - 1, 2**28, 2**32 - 1, 2**32, 2**62])
def test_randint_changes_to_64_bits(high):
    assert_same_stream(lambda lib: [lib.randint(0, high, (313,)), lib.randint(-5, high, (313,))])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_random_without_arguments(dtype):
    assert_same_stream(lambda lib: empty(lib, 1047, dtype).random_())


@pytest.mark.parametrize("size", [0, *SIZES])
def test_randperm(size):
    assert_same_stream(lambda lib: lib.randperm(size))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_bernoulli_with_a_number(probability, dtype):
    assert_same_stream(lambda lib: empty(lib, 1047, dtype).bernoulli_(probability))


@pytest.mark.parametrize("dtype", FLOATS)
def test_bernoulli_with_a_tensor(dtype):
    assert_same_stream(lambda lib: lib.bernoulli(lib.rand(1047, dtype=getattr(lib, dtype))))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 1.0])
def test_dropout(probability, dtype):
    def call(lib):
        ones = lib.ones(1047, dtype=getattr(lib, dtype))
        return lib.nn.functional.dropout(ones, probability, training=True)

    assert_same_stream(call)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_continuous_distributions(dtype):
    assert_same_stream(
        lambda lib: [
            empty(lib, 313, dtype).exponential_(0.3),
            empty(lib, 313, dtype).cauchy_(0.3, 1.7),
            empty(lib, 313, dtype).log_normal_(0.3, 1.7),
            empty(lib, 313, dtype).geometric_(0.1),
        ]
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [3, 60, 10**6])
def test_binomial(scale, dtype):
    """Counts and probabilities of every regime: few successes, many, more than half, none, all."""

    def call(lib):
        counts = lib.rand(3000, dtype=getattr(lib, dtype)) * scale - scale / 100
        share = lib.rand(3000, dtype=getattr(lib, dtype)) * 1.1 - 0.05
        return [lib.binomial(counts.floor(), share), lib.binomial(counts, share)]

    assert_same_stream(call)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rrelu(dtype, training):
    def call(lib):
        x = lib.randn(7, 31, dtype=getattr(lib, dtype))
        found = [lib.rrelu(x, 0.1, 0.3, training), lib.rrelu(x.t(), 0.1, 0.3, training)]
        return [*found, lib.rrelu_(x, training=training)]

    assert_same_stream(call)


def test_multinomial():
    def call(lib):
        weights = lib.rand(3, 40)
        return [
            lib.multinomial(weights, 1),
            lib.multinomial(weights, 4),
            lib.multinomial(weights, 9, replacement=True),
        ]

    assert_same_stream(call)


def test_a_transposed_tensor_is_filled_in_the_order_of_memory():
    assert_same_stream(
        lambda lib: [lib.empty(4, 40).t().uniform_(), lib.empty(4, 40).t().normal_()]
    )


def test_a_stepped_tensor_is_filled_in_logical_order():
    assert_same_stream(
        lambda lib: [lib.empty(4, 40)[:, ::2].uniform_(), lib.empty(4, 40)[:, ::2].normal_()]
    )


@pytest.mark.parametrize("order", range(4))
def test_mixed_calls_share_one_stream(order):
    def call(lib):
        calls = [
            lambda: lib.rand(5),
            lambda: lib.randn(3),
            lambda: lib.randn(100),
            lambda: lib.randint(0, 10, (7,)),
            lambda: lib.rand(3, dtype=lib.float64),
            lambda: lib.randperm(11),
            lambda: lib.randn(17, dtype=lib.bfloat16),
            lambda: lib.empty(9).bernoulli_(0.3),
            lambda: lib.rand(600),
        ]
        return [calls[(position * (2 * order + 5)) % 9]() for position in range(40)]

    assert_same_stream(call, seed=2**40 + order)


def test_states_are_exchanged_both_ways():
    torch.manual_seed(3)
    torch.randn(5)  # leaves a cached normal value
    flambeau.set_rng_state(flambeau.tensor(torch.get_rng_state().tolist(), dtype=flambeau.uint8))
    assert flambeau.randn(20).tolist() == torch.randn(20).tolist()
    flambeau.rand(100)
    torch.set_rng_state(torch.tensor(flambeau.get_rng_state().tolist(), dtype=torch.uint8))
    assert flambeau.randn(3).tolist() == torch.randn(3).tolist()


def test_a_generator_of_its_own():
    ours = flambeau.Generator().manual_seed(11)
    theirs = torch.Generator().manual_seed(11)
    assert ours.initial_seed() == theirs.initial_seed() == 11
    for _ in range(3):
        assert (
            flambeau.rand(100, generator=ours).tolist()
            == torch.rand(100, generator=theirs).tolist()
        )


def test_weights_of_a_fresh_layer_are_the_same():
    def call(lib):
        layers = [lib.nn.Linear(30, 20), lib.nn.Embedding(10, 4)]
        return [parameter for layer in layers for parameter in layer.parameters()]

    assert_same_stream(call)
