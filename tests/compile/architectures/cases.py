"""The architectures as functions to compile, with calls and their results by torch in float64."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from . import models
from .models import Built, Size

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "samples" / "decoder"))
from decoder import CachedDecoder

# Of the difference's norm relative to the reference's, by the element type of the weights.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True)
class Call:
    """A call of a function and its results in float64."""

    function: str
    inputs: tuple[np.ndarray, ...]
    expected: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Architecture:
    """Functions to compile into one package, and calls to make in order.

    Attributes:
        functions: module and example inputs by name.
        calls: as the state that the functions share needs them.
        tolerance: of each result, relative to the norm.
        prompts: for a decoder, token numbers int64 [batch, length], to be continued greedily.
        tokens: what follows them by torch in float32, int64 [batch, count].
    """

    functions: Mapping[str, Built]
    calls: tuple[Call, ...]
    tolerance: float
    prompts: np.ndarray | None = None
    tokens: np.ndarray | None = None


def _single(module: nn.Module, inputs: tuple[torch.Tensor, ...], dtype: torch.dtype) -> Architecture:
    """A model of one function without state."""
    module = module.to(dtype)
    inputs = tuple(x.to(dtype) if torch.is_floating_point(x) else x for x in inputs)
    exact = tuple(x.double() if torch.is_floating_point(x) else x for x in inputs)
    with torch.no_grad():
        expected = copy.deepcopy(module).double()(*exact).numpy()
    call = Call("main", tuple(x.numpy() for x in inputs), (expected,))
    return Architecture({"main": (module, inputs)}, (call,), TOLERANCE[dtype])


@dataclass(frozen=True)
class Generation:
    """How far a decoder is driven: sequences at once, tokens of a prompt, tokens generated."""

    batch: int
    prompt: int
    count: int

    @property
    def capacity(self) -> int:
        return self.prompt + self.count


GENERATION: Mapping[Size, Generation] = {"tiny": Generation(2, 8, 8), "small": Generation(2, 24, 64)}


def _decoder(model: PreTrainedModel, generation: Generation) -> Architecture:
    """A decoder as `prefill` and `decode`, in float32. The reference is the model itself, which keeps no cache."""
    batch, length, count = generation.batch, generation.prompt, generation.count
    prompts = torch.randint(0, model.config.vocab_size, (batch, length))
    with torch.no_grad():
        sequence = prompts
        for _ in range(count):
            following = model(sequence, use_cache=False).logits[:, -1].argmax(-1)
            sequence = torch.cat([sequence, following[:, None]], dim=1)
        scores = copy.deepcopy(model).double()(sequence[:, :-1], use_cache=False).logits[:, length - 1 :].numpy()
    positions = torch.arange(length).expand(batch, length).contiguous()
    last = torch.full((batch,), length - 1)
    cached = CachedDecoder(model, batch, generation.capacity)
    functions: dict[str, Built] = {
        "prefill": (cached, (prompts, positions, last)),
        "decode": (cached, (prompts[:, :1], positions[:, :1])),
    }
    return Architecture(
        functions,
        tuple(_decoder_calls(sequence, positions, last, scores)),
        TOLERANCE[torch.float32],
        prompts.numpy(),
        sequence[:, length:].numpy(),
    )


def _decoder_calls(
    sequence: torch.Tensor, positions: torch.Tensor, last: torch.Tensor, scores: np.ndarray
) -> Iterator[Call]:
    """The prompt, then one token after the other, with the scores after each."""
    batch, length = positions.shape
    yield Call(
        "prefill", tuple(x.numpy() for x in (sequence[:, :length].contiguous(), positions, last)), (scores[:, 0],)
    )
    for step in range(1, scores.shape[1]):
        position = length + step - 1
        tokens = sequence[:, position : position + 1].numpy().copy()
        yield Call("decode", (tokens, np.full((batch, 1), position)), (scores[:, step],))


Builder = Callable[[Size], Architecture]


def _model(builder: Callable[[Size], Built], dtype: torch.dtype = torch.float32) -> Builder:
    return lambda size: _single(*builder(size), dtype)


def _cached(builder: Callable[[Size], PreTrainedModel]) -> Builder:
    return lambda size: _decoder(builder(size), GENERATION[size])


# Where half precision would change a choice (of an expert, of a token) the weights are float32.
ARCHITECTURES: Mapping[str, Builder] = {
    "llama": _cached(models.llama),
    "qwen3": _cached(models.qwen3),
    "vit": _model(models.vit, torch.float16),
    "bert": _model(models.bert, torch.bfloat16),
    "resnet18": _model(models.resnet18),
    "whisper_encoder": _model(models.whisper_encoder),
    "mixture": _model(models.mixture),
    "unet": _model(models.unet, torch.float16),
}


def build(name: str, size: Size) -> Architecture:
    """The architecture `name`, always with the same random weights and inputs."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # many small operations: handing them to threads costs more than it saves
    try:
        return ARCHITECTURES[name](size)
    finally:
        torch.set_num_threads(threads)
