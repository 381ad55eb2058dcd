"""Two small models. `coilpack compile` calls such a function: it returns a module and example inputs."""

from __future__ import annotations

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
