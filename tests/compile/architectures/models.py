"""Architectures from their configurations, with random weights: the modules alone.

Each builder takes a size, `tiny` for the emulator or `small` for a GPU, and returns the module and example inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralModel,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
)
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from .unet import UNet

Size = Literal["tiny", "small"]
Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Output(nn.Module):
    """A model of transformers whose result is one array of its output."""

    def __init__(self, model: nn.Module, output: str, *names: str, **constants: Any) -> None:
        super().__init__()
        self.model = model
        self.output = output
        self.names = names
        self.constants = constants

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        by_name = dict(zip(self.names, inputs, strict=True))
        return getattr(self.model(**by_name, **self.constants), self.output)


def from_config(architecture: Callable[[Any], PreTrainedModel], config: PreTrainedConfig) -> PreTrainedModel:
    """A model with random weights, in evaluation mode.

    The usual initial weights are so small that every layer is nearly the identity, and all logits nearly equal; these
    are not, so that an error anywhere reaches the result.
    """
    model = architecture(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                fan_in = parameter[0].numel() if parameter.dim() != 3 else parameter.shape[-1]
                parameter.normal_(0.0, fan_in**-0.5)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def _decoder(config: type[PreTrainedConfig], size: Size, **more: Any) -> PreTrainedConfig:
    sizes: dict[Size, dict[str, int]] = {
        "tiny": {
            "vocab_size": 96,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
        },
        "small": {
            "vocab_size": 512,
            "hidden_size": 192,
            "intermediate_size": 512,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 32,
        },
    }
    return config(**sizes[size], max_position_embeddings=256, **more)


def llama(size: Size) -> PreTrainedModel:
    return from_config(LlamaForCausalLM, _decoder(LlamaConfig, size))


def qwen3(size: Size) -> PreTrainedModel:
    return from_config(Qwen3ForCausalLM, _decoder(Qwen3Config, size, tie_word_embeddings=True))


def mixture(size: Size) -> Built:
    """A mixture of experts whose dispatch is static: each token gathers the weights of its experts."""
    config = _decoder(MixtralConfig, size, num_local_experts=4, num_experts_per_tok=2, sliding_window=None)
    config.num_hidden_layers, config.intermediate_size = 2, config.intermediate_size // 2
    config._experts_implementation = "batched_mm"
    model = from_config(MixtralModel, config)
    tokens = torch.randint(0, config.vocab_size, (1, {"tiny": 8, "small": 24}[size]))
    return Output(model, "last_hidden_state", "input_ids", use_cache=False), (tokens,)


def vit(size: Size) -> Built:
    width, layers, heads, side, patch = {"tiny": (32, 2, 2, 16, 8), "small": (192, 6, 6, 96, 16)}[size]
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=side,
        patch_size=patch,
        num_labels=10,
    )
    model = from_config(ViTForImageClassification, config)
    return Output(model, "logits", "pixel_values"), (torch.randn(2, 3, side, side),)


def bert(size: Size) -> Built:
    width, layers, heads, length = {"tiny": (32, 2, 2, 12), "small": (256, 4, 8, 48)}[size]
    config = BertConfig(
        vocab_size=200,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=64,
    )
    model = from_config(BertModel, config)
    tokens = torch.randint(0, 200, (2, length))
    visible = (torch.arange(length) < torch.tensor([[length], [length // 2]])).long()
    return Output(model, "pooler_output", "input_ids", "attention_mask"), (tokens, visible)


def resnet18(size: Size) -> Built:
    """ResNet-18 at reduced width; the tiny one has two of its four stages, of one block each."""
    width, depths, side = {"tiny": (8, [1, 1], 32), "small": (24, [2, 2, 2, 2], 96)}[size]
    config = ResNetConfig(
        embedding_size=width,
        hidden_sizes=[width << stage for stage in range(len(depths))],
        depths=depths,
        layer_type="basic",
        num_labels=10,
    )
    model = from_config(ResNetForImageClassification, config)
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_mean.normal_(0.0, 0.1)
        norm.running_var.uniform_(0.5, 1.5)
    return Output(model, "logits", "pixel_values"), (torch.randn(2, 3, side, side),)


def whisper_encoder(size: Size) -> Built:
    width, layers, heads, bins, positions = {"tiny": (32, 1, 2, 8, 12), "small": (192, 4, 6, 80, 200)}[size]
    config = WhisperConfig(
        d_model=width,
        encoder_layers=layers,
        encoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        num_mel_bins=bins,
        max_source_positions=positions,
    )
    encoder = from_config(WhisperEncoder, config)
    return Output(encoder, "last_hidden_state", "input_features"), (torch.randn(1, bins, 2 * positions),)


def unet(size: Size) -> Built:
    channels, heads, groups, side = {"tiny": (16, 2, 4, 8), "small": (96, 6, 16, 32)}[size]
    sample = torch.randn(2, 4, side, side)
    return UNet(channels, heads, groups).eval(), (sample, torch.tensor([3, 741]))
