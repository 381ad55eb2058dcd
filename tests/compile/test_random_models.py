"""Models that draw random numbers: from the seed of a call, as Inductor's kernels define them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import compile_in_process, export, write  # noqa: E402
from small_models import Lambda  # noqa: E402
from torch._inductor.runtime import triton_helpers  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.runtime.errors import InputError, UnsupportedError  # noqa: E402
from coilpack.runtime.philox import check_seed, philox, random_seeds  # noqa: E402
from coilpack.runtime.program import ir  # noqa: E402


def _package(function, inputs: tuple[torch.Tensor, ...], path: Path) -> Path:
    return write(compile_in_process({"main": export(Lambda(function), inputs)}), path / "random.coil")


def _uniform(seed: int, count: int) -> np.ndarray:
    """The uniform numbers of one operation: all four words of each Philox evaluation, before torch 2.13 the first."""
    each = 4 if hasattr(triton_helpers, "rand4x") else 1
    counter = np.arange(-(-count // each), dtype=np.uint64)
    zero = np.zeros_like(counter)
    words = philox((counter, zero, zero, zero), (seed & 0xFFFFFFFF, seed >> 32))[:each]
    signed = np.stack(words, axis=1).ravel()[:count].astype(np.uint32).view(np.int32)
    return np.where(signed < 0, -signed - 1, signed).astype(np.float32) * np.float32(4.6566127342e-10)


def test_each_operation_takes_the_next_seed_that_the_call_draws(device, tmp_path: Path) -> None:
    def model(x: torch.Tensor):
        first, second = torch.rand(300), torch.rand(x.shape)
        return first, second + x, torch.rand_like(x) < x

    x = torch.rand(7, 5)
    path = _package(model, (x,), tmp_path)
    with runtime.open(path, device=device.name) as program:
        for seed in (0, 7, -1, 2**40 + 3):
            seeds = [int(s) for s in random_seeds(check_seed(seed, "main"), 3, 0).view(np.uint64)]
            one, two, three = program(x.numpy(), seed=seed)
            np.testing.assert_array_equal(one.numpy(), _uniform(seeds[0], 300))
            # The sum may be rounded once with the scaling of the words.
            expected = _uniform(seeds[1], 35).reshape(7, 5) + x.numpy()
            np.testing.assert_allclose(two.numpy(), expected, rtol=2e-7, atol=2e-7)
            np.testing.assert_array_equal(three.numpy(), _uniform(seeds[2], 35).reshape(7, 5) < x.numpy())


def test_distributions_have_their_moments(device, tmp_path: Path) -> None:
    size = 4000

    def model(x: torch.Tensor):
        noise = torch.empty(size)
        return (
            torch.randn(size),
            torch.randint(-3, 9, (size,)),
            torch.nn.functional.dropout(x, 0.25, training=True),
            torch.bernoulli(x * 0.3),
            noise.uniform_(2, 5),
            torch.empty(size).normal_(4, 0.5),
            torch.normal(1.0, 3.0, (size,)),
            torch.empty(size).exponential_(2.0),
            torch.bernoulli(x, 0.8),
        )

    expected = [  # mean, variance
        (0, 1),
        (2.5, 143 / 12),
        (1, 1 / 3),
        (0.3, 0.21),
        (3.5, 9 / 12),
        (4, 0.25),
        (1, 9),
        (0.5, 0.25),
        (0.8, 0.16),
    ]
    x = torch.ones(size)
    with runtime.open(_package(model, (x,), tmp_path), device=device.name) as program:
        results = [array.numpy() for array in program(x.numpy(), seed=3)]
        again = [array.numpy() for array in program(x.numpy(), seed=3)]
        other = [array.numpy() for array in program(x.numpy(), seed=4)]
    for number, (mean, variance) in enumerate(expected):
        drawn = results[number].astype(np.float64)
        assert abs(drawn.mean() - mean) < 5 * np.sqrt(variance / size), number
        assert abs(drawn.var() / variance - 1) < 0.2, number
        np.testing.assert_array_equal(results[number], again[number])
        assert (results[number] != other[number]).any()


def test_a_random_function_says_so_and_needs_a_seed(tmp_path: Path) -> None:
    bundle = compile_in_process({"main": export(Lambda(lambda x: x + torch.rand(2)), (torch.ones(2),))})
    (signature,) = bundle.program.signatures
    assert signature.random
    (drawn,) = (op for op in bundle.program.targets[0].functions[0].operations if isinstance(op, ir.RandomSeeds))
    assert drawn.philox_offset == 0
    path = write(bundle, tmp_path / "m.coil")
    with runtime.open(path, device="emulator") as program, pytest.raises(InputError, match="seed"):
        program(np.ones(2, np.float32))


def test_a_random_operation_without_a_kernel_is_refused_by_name_and_line() -> None:
    program = export(Lambda(torch.poisson), (torch.ones(6),))
    with pytest.raises(UnsupportedError, match=r"aten.poisson.* at .*\.py:\d+ draws random numbers"):
        compile_in_process({"main": program})
