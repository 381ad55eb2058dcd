"""Small models. `coilpack compile` calls such a function: it returns a module and example inputs."""

from __future__ import annotations

from typing import Any

import torch


class Square(torch.nn.Module):
    """The square of each element."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiplies `x` with itself."""
        return x * x


def square() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    """float32 [4] in and out."""
    return Square(), (torch.zeros(4),)


def perceptron() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    """float32 [2, 16] to probabilities [2, 4], with weights of its own."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4), torch.nn.Softmax(dim=-1)
    )
    return layers, (torch.zeros(2, 16),)


class RunningMean(torch.nn.Module):
    """The mean of all values seen so far; what it has seen is its state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Adds the values of `x` [n] to what was seen."""
        self.total += x.sum()
        self.count += x.shape[0]
        return self.total / self.count


def running_mean() -> dict[str, Any]:
    """float32 [n] to a scalar, for any n, with state that lives across calls."""
    return {
        "module": RunningMean(),
        "args": (torch.zeros(3),),
        "dynamic_shapes": {"x": {0: torch.export.Dim("n", max=4096)}},
    }
