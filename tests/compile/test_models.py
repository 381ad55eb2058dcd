"""Compiled models against torch in higher precision, on fresh random inputs."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from core_operations import EXPORTED_SINCE, OPERATIONS  # noqa: E402
from in_process import compile_in_process, export, write  # noqa: E402
from inductor_kernels import KERNELS  # noqa: E402
from small_models import MODELS  # noqa: E402

from coilpack import runtime  # noqa: E402

_QUICKSTART = runpy.run_path(str(Path(__file__).parents[2] / "samples" / "quickstart" / "model.py"))
SAMPLES = {f"quickstart_{name}": _QUICKSTART[name] for name in ("square", "perceptron")}
ROWS = {**MODELS, **KERNELS, **OPERATIONS, **SAMPLES}

# Relative to the reference's norm, by the coarsest element type that takes part.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def _doubled(value):
    return value.double() if torch.is_floating_point(value) else value


def _results(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    with torch.no_grad():
        results = module.eval()(*inputs)
    return list(results) if isinstance(results, tuple) else [results]


def _reference(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """What torch computes on the CPU: in double precision, save for results that the model itself casts."""
    exact = _results(copy.deepcopy(module).double(), tuple(map(_doubled, inputs)))
    plain = _results(module, inputs)
    inner = {x.dtype for x in inputs if torch.is_floating_point(x)} or {torch.float32}
    return [e if p.dtype in inner or e.dtype == torch.float64 else p for e, p in zip(exact, plain, strict=True)]


def _fresh(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Other values of the same types; indices and masks stay, for not every value of theirs is valid."""
    return tuple(torch.randn_like(x) if torch.is_floating_point(x) else x for x in inputs)


def _as_numpy(tensor: torch.Tensor):
    """As numpy where it has the type, else the tensor itself, which speaks DLPack."""
    return tensor.contiguous() if tensor.dtype == torch.bfloat16 else tensor.contiguous().numpy()


def _assert_close(got: np.ndarray, want: torch.Tensor, tolerance: float) -> None:
    """Relative to the norm of the finite values; infinities and NaNs must stand where they should."""
    expected, actual = want.double().numpy(), got.astype(np.float64)
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    finite = np.isfinite(expected) & (np.abs(expected) < 1e38)
    huge = ~finite & ~np.isnan(expected)
    np.testing.assert_array_equal(actual[huge] > 0, expected[huge] > 0)
    scale = np.linalg.norm(expected[finite]) or 1.0
    assert np.linalg.norm((actual - expected)[finite]) / scale <= tolerance


@pytest.mark.parametrize("name", ROWS)
def test_the_compiled_model_computes_what_torch_computes(name, device, tmp_path) -> None:
    if torch.__version__ < EXPORTED_SINCE.get(name, "0"):
        pytest.skip(f"torch.export takes it from torch {EXPORTED_SINCE[name]} on")
    torch.manual_seed(0)
    module, inputs = ROWS[name]()
    programs = {"main": export(module, inputs)}
    bundle = compile_in_process(programs)
    path = write(bundle, tmp_path / "model.coil")
    seed = {"seed": 1} if bundle.program.signatures[0].random else {}
    dtype = next((x.dtype for x in inputs if torch.is_floating_point(x)), torch.float32)
    with runtime.open(path, device=device.name) as program:
        # The example's own values, then others: the second call finds the arena as the first left it.
        for values in (inputs, _fresh(inputs)):
            outputs = program(*map(_as_numpy, values), **seed)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            expected = _reference(module, values)
            assert len(outputs) == len(expected)
            for got, want in zip(outputs, expected, strict=True):
                if torch.is_floating_point(want):
                    _assert_close(got.numpy(), want, max(TOLERANCE[dtype], TOLERANCE.get(want.dtype, 0)))
                else:
                    np.testing.assert_array_equal(got.numpy(), want.numpy())
