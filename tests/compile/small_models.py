"""Small models over the operations that Inductor fuses; each row is a module and its example inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Lambda(nn.Module):
    """A module around a function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


class TiedHead(nn.Module):
    """An embedding whose weight is also the output projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(functional.gelu(self.embed(tokens)))


class Encoder(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


Row = tuple[nn.Module, tuple[torch.Tensor, ...]]


def _floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def _two(*shape: int) -> tuple[torch.Tensor, ...]:
    return tuple(_floats(*shape, dtype=torch.bfloat16) for _ in range(2))


def _attention(mask: bool) -> Row:
    query, key, value = (_floats(1, 2, 32, 64, dtype=torch.float16) for _ in range(3))
    if not mask:
        return Lambda(functional.scaled_dot_product_attention), (query, key, value)
    allowed = torch.rand(1, 1, 32, 32) > 0.3
    allowed[..., 0] = True  # a row that attends to nothing has no defined result
    return Lambda(lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, attn_mask=m)), (
        query,
        key,
        value,
        allowed,
    )


MODELS: dict[str, Callable[[], Row]] = {
    "pointwise": lambda: (Lambda(lambda x: x * x + 1), (_floats(4),)),
    "pointwise_bf16": lambda: (Lambda(lambda x, y: torch.tanh(x) - y), _two(33, 5)),
    "integers": lambda: (Lambda(lambda x: (x // 3, x % 3, x > 2)), (torch.arange(-8, 8),)),
    "constant": lambda: (Lambda(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0])), (_floats(4),)),
    "softmax": lambda: (nn.Softmax(-1), (_floats(7, 300),)),
    "layer_norm": lambda: (nn.LayerNorm(96), (_floats(3, 5, 96),)),
    "split_reduction": lambda: (Lambda(lambda x: (x.sum(), x.argmax())), (_floats(512, 1024),)),
    "cumsum": lambda: (Lambda(lambda x: x.cumsum(-1)), (_floats(3, 700),)),
    "gather": lambda: (Lambda(lambda x, i: x[i]), (_floats(10, 8), torch.tensor([3, -1, 0]))),
    "scatter_add": lambda: (
        Lambda(lambda x, i: torch.zeros(10, dtype=x.dtype).scatter_add(0, i, x)),
        (_floats(4), torch.tensor([1, 2, 1, 3])),
    ),
    "linear_bf16": lambda: (
        nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.LayerNorm(64)).bfloat16(),
        (_floats(8, 64, dtype=torch.bfloat16),),
    ),
    "batched_matmul": lambda: (Lambda(torch.bmm), (_floats(3, 33, 65), _floats(3, 65, 17))),
    "matrix_vector": lambda: (Lambda(torch.mv), (_floats(64, 128), _floats(128))),
    "integer_matmul": lambda: (
        Lambda(torch._int_mm),
        (torch.randint(-5, 5, (32, 64), dtype=torch.int8), torch.randint(-5, 5, (64, 32), dtype=torch.int8)),
    ),
    "convolution": lambda: (
        nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        (_floats(1, 3, 16, 16),),
    ),
    "attention_fp16": lambda: _attention(mask=False),
    "attention_bool_mask_fp16": lambda: _attention(mask=True),
    "tied_weights": lambda: (TiedHead(), (torch.randint(0, 50, (2, 7)),)),
    "encoder_layer": lambda: (Encoder(), (_floats(1, 24, 64),)),
    "aliases": lambda: (Lambda(lambda x: (x.view(2, 2), x + 1, x)), (_floats(4),)),
    "view_with_offset": lambda: (Lambda(lambda x: (x[1:3], x[1:] * 2)), (_floats(4, 4),)),
    "empty": lambda: (Lambda(lambda x: x * 2), (_floats(0, 4),)),
    "scalar": lambda: (Lambda(lambda x: x.sum() * 2), (_floats(6),)),
}
