"""Compiled models against torch in higher precision, on fresh random inputs."""

from __future__ import annotations

import copy

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

import small_models as models  # noqa: E402
from in_process import compile_in_process, export, write  # noqa: E402

from coilpack import runtime  # noqa: E402

# Relative to the reference's norm, by the coarsest element type that takes part.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def _doubled(value):
    return value.double() if torch.is_floating_point(value) else value


def _reference(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    with torch.no_grad():
        results = copy.deepcopy(module).double().eval()(*map(_doubled, inputs))
    return list(results) if isinstance(results, tuple) else [results]


def _fresh(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Other values of the same types; indices and masks stay, for not every value of theirs is valid."""
    return tuple(torch.randn_like(x) if torch.is_floating_point(x) else x for x in inputs)


def _as_numpy(tensor: torch.Tensor):
    """As numpy where it has the type, else the tensor itself, which speaks DLPack."""
    return tensor.contiguous() if tensor.dtype == torch.bfloat16 else tensor.contiguous().numpy()


def _error(got: np.ndarray, expected: torch.Tensor) -> float:
    want = expected.double().numpy()
    assert got.shape == want.shape
    scale = np.linalg.norm(want) or 1.0
    return float(np.linalg.norm(got.astype(np.float64) - want) / scale)


@pytest.mark.parametrize("name", models.MODELS)
def test_the_compiled_model_computes_what_torch_computes(name, device, tmp_path) -> None:
    torch.manual_seed(0)
    module, inputs = models.MODELS[name]()
    programs = {"main": export(module, inputs)}
    path = write(compile_in_process(programs), tmp_path / "model.coil")
    dtype = next((x.dtype for x in inputs if torch.is_floating_point(x)), torch.float32)
    with runtime.open(path, device=device.name) as program:
        for _ in range(2):  # twice: the second call finds the arena as the first left it
            inputs = _fresh(inputs)
            outputs = program(*map(_as_numpy, inputs))
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            expected = _reference(module, inputs)
            assert len(outputs) == len(expected)
            for got, want in zip(outputs, expected, strict=True):
                if not torch.is_floating_point(want):
                    np.testing.assert_array_equal(got.numpy(), want.numpy())
                else:
                    assert _error(got.numpy(), want) <= TOLERANCE[dtype]
