"""Models, and functions of odd names, that this project's runtime and IREE's both run; what they must compute."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from coilpack.runtime.dtypes import DType

Array = npt.NDArray[Any]

QUICKSTART = Path(__file__).parents[2] / "samples" / "quickstart" / "model.py"


@dataclass(frozen=True)
class Case:
    """A model with its inputs.

    Attributes:
        build: makes the module.
        shape: of its input; -1 is any size.
        tolerance: how far a result may be from the one in float64, relative to that one's largest element.
        sizes: what -1 stands for when the model is run.
        dtype: of its weights and its input.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    tolerance: float = 1e-5
    sizes: tuple[int, ...] = (0,)
    dtype: torch.dtype = torch.float32

    def module(self) -> nn.Module:
        """The module with its weights, which are the same everywhere."""
        return _filled(self.build()).to(self.dtype).eval()

    def inputs(self, size: int) -> tuple[torch.Tensor, ...]:
        """Inputs where -1 is `size`, the same everywhere."""
        shape = [size if n < 0 else n for n in self.shape]
        values = np.random.default_rng(size).standard_normal(shape)
        return (torch.from_numpy(values).to(self.dtype),)

    def export(self) -> torch.export.ExportedProgram:
        """The exported program."""
        dims = {i: torch.export.Dim("rows", max=4096) for i, n in enumerate(self.shape) if n < 0}
        with torch.no_grad():
            return torch.export.export(
                self.module(), self.inputs(7), dynamic_shapes=(dims,) if dims else None, strict=False
            )

    def expected(self, size: int) -> list[Array]:
        """The results in float64, of the weights and inputs as they are."""
        return _results(self.module().double(), [x.double() for x in self.inputs(size)])

    def computed(self, size: int, device: str) -> list[Array]:
        """What torch computes on a device."""
        return _results(self.module().to(device), [x.to(device) for x in self.inputs(size)])

    def check(self, found: Sequence[Array], reference: Sequence[Array], slack: float = 1) -> None:
        """Asserts that results differ from others by no more than `slack` times the tolerance."""
        assert [f.shape for f in found] == [r.shape for r in reference]
        for result, wanted in zip(found, reference, strict=True):
            error = np.abs(result.astype(np.float64) - wanted).max() / np.abs(wanted).max()
            assert error <= slack * self.tolerance, f"relative error {error}"

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The type of its results."""
        return DType.from_numpy_name(str(self.dtype).removeprefix("torch.")).numpy


def _results(module: nn.Module, inputs: Sequence[torch.Tensor]) -> list[Array]:
    with torch.no_grad():
        results = module(*inputs)
    return [r.double().cpu().numpy() for r in (results if isinstance(results, tuple) else (results,))]


def _filled(module: nn.Module) -> nn.Module:
    """Gives a module weights from numpy's generator, whose numbers are the same with every torch."""
    rng = np.random.default_rng(5)
    for name, tensor in module.state_dict().items():
        if not tensor.is_floating_point():
            continue
        values = rng.standard_normal(tuple(tensor.shape))
        if tensor.ndim > 1:
            values /= np.sqrt(tensor[0].numel())
        else:  # of a layer's scale, around one; of its shift, around zero
            values = 0.1 * values + (0.0 if name.endswith(("bias", "running_mean")) else 1.0)
        tensor.copy_(torch.from_numpy(values))
    return module


def _quickstart() -> nn.Module:
    spec = importlib.util.spec_from_file_location("quickstart_model", QUICKSTART)
    assert spec is not None
    assert spec.loader is not None
    sample = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sample)
    module, _ = sample.square()
    return module


class Rows(nn.Module):
    """What a softmax and reductions make of the rows of a matrix of any height."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Probabilities [n, columns], their entropy [n], and the mean of each column."""
        probabilities = torch.softmax(x, -1)
        return probabilities, -(probabilities * torch.log_softmax(x, -1)).sum(-1), x.mean(0)


def _convolutional() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 8), (8, 16)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def _transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 128, activation="gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, nn.LayerNorm(64), enable_nested_tensor=False)


CASES = {
    "quickstart": Case(_quickstart, (4,), tolerance=1e-7),
    "perceptron": Case(
        lambda: nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.LayerNorm(64)),
        (8, 64),
        tolerance=2e-2,
        dtype=torch.bfloat16,
    ),
    "softmax": Case(Rows, (-1, 300), sizes=(1, 7, 1000)),
    "convolutional": Case(_convolutional, (2, 3, 16, 16)),
    "transformer": Case(_transformer, (2, 24, 64), tolerance=2e-5),
}

NAMES = ("a$b", "a_b", "a.b", "ä", "with space", "long_" * 60)


class Named(nn.Module):
    """The square of four numbers and a constant that tells the functions of `NAMES` apart."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.constant = NAMES.index(name) + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32 [4] in and out."""
        return x * x + self.constant


def exported(name: str) -> dict[str, torch.export.ExportedProgram]:
    """The functions of the model `name`, one of `MODELS`."""
    if name in CASES:
        return {"main": CASES[name].export()}
    with torch.no_grad():
        return {n: torch.export.export(Named(n), (torch.zeros(4),)) for n in NAMES}


MODELS = (*CASES, "names")
