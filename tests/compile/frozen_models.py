# ruff: noqa: N803 (constants of Triton kernels are written in capitals)
"""Small models whose compiled kernels are recorded on a GPU (`record_bundles.py`), and frozen in tests without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

BLOCK = 128


@dataclass(frozen=True)
class FrozenModel:
    """A model with what it is exported and run with, always the same numbers.

    Attributes:
        make: makes the model.
        inputs: makes its inputs, on the CPU.
        dynamic_shapes: as `torch.export.export` takes them.
        mode: of `torch.compile`.
        options: settings of Inductor besides.
    """

    make: Callable[[], torch.nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    dynamic_shapes: tuple[Mapping[int, object], ...] | None = None
    mode: str = "max-autotune"
    options: Mapping[str, object] = field(default_factory=dict)

    def module(self) -> torch.nn.Module:
        """The model, with the same weights each time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.make().eval()

    def export(self) -> torch.export.ExportedProgram:
        """The exported program."""
        with torch.no_grad():
            return torch.export.export(self.module(), self.inputs(), dynamic_shapes=self.dynamic_shapes)


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Layer(torch.nn.Module):
    """A transformer layer, norms first."""

    def __init__(self, width: int = 64, heads: int = 2, inner: int = 128) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm_2(x))))


class Transformer(torch.nn.Sequential):
    def __init__(self) -> None:
        super().__init__(Layer(), Layer())
        self.to(torch.bfloat16)


class Convolution(torch.nn.Sequential):
    def __init__(self) -> None:
        super().__init__(torch.nn.Conv2d(8, 16, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2))


class Reductions(torch.nn.Module):
    """A softmax, a scan, and reductions of both kinds, over a dynamic number of rows."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (torch.softmax(x, -1) + y.sum(0, keepdim=True)).cumsum(1), (x * y).amax()


@triton.jit
def affine(x, out, BLOCK: tl.constexpr, n, scale, NEGATE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * scale
    tl.store(out + at, -value if NEGATE else value, mask=at < n)


@triton_op("coilpack_frozen::affine", mutates_args={})
def affine_op(x: torch.Tensor, scale: float, negate: bool) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    wrap_triton(affine)[grid](x, out, BLOCK, x.numel(), scale, NEGATE=negate)
    return out


class UserKernels(torch.nn.Module):
    """One function of the author's as two kernels, between Inductor's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return affine_op(affine_op(x + 1, 0.5, True), 0.25, False).sum(-1)


class Epilogue(torch.nn.Module):
    """A product of matrices, with something after it that may be fused into its kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(self.linear(x)) * 2


_ROWS = torch.export.Dim("rows", min=2, max=4096)

MODELS: dict[str, FrozenModel] = {
    "transformer": FrozenModel(
        Transformer, lambda: (numbers(2, 32, 64, dtype=torch.bfloat16),), options={"benchmark_epilogue_fusion": False}
    ),
    "convolution": FrozenModel(Convolution, lambda: (numbers(2, 8, 16, 16),)),
    "reductions": FrozenModel(Reductions, lambda: (numbers(8, 300), numbers(8, 300, seed=2)), ({0: _ROWS}, {0: _ROWS})),
    "user_kernels": FrozenModel(UserKernels, lambda: (numbers(20, 50),)),
    "epilogue": FrozenModel(Epilogue, lambda: (numbers(96, 64),)),
}
"""By name. Inductor measures whether to fuse the epilogue of `epilogue`; the transformer's it decides without that."""
