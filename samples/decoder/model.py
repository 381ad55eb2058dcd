"""The sample's model: a small Llama over bytes, with random weights. Its two functions share weights and cache.

`coilpack compile` calls `prefill` and `decode`; each returns the module and example inputs.
"""

from __future__ import annotations

import torch
from decoder import CachedDecoder
from transformers import LlamaConfig, LlamaForCausalLM

BATCH = 2  # sequences at once
PROMPT = 32  # tokens of a prompt, at most
CAPACITY = 128  # tokens of a sequence, at most


def decoder() -> CachedDecoder:
    """The model, the same at every call."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CAPACITY,
        initializer_range=0.1,
    )
    return CachedDecoder(LlamaForCausalLM(config).eval(), BATCH, CAPACITY)


def prefill() -> tuple[CachedDecoder, tuple[torch.Tensor, ...]]:
    """Reads prompts: tokens and positions int64 [BATCH, PROMPT], index of each last token int64 [BATCH]."""
    tokens = torch.zeros(BATCH, PROMPT, dtype=torch.int64)
    positions = torch.arange(PROMPT).expand(BATCH, PROMPT).contiguous()
    return decoder(), (tokens, positions, torch.zeros(BATCH, dtype=torch.int64))


def decode() -> tuple[CachedDecoder, tuple[torch.Tensor, ...]]:
    """Reads one more token of each sequence: tokens and positions int64 [BATCH, 1]."""
    return decoder(), (torch.zeros(BATCH, 1, dtype=torch.int64), torch.zeros(BATCH, 1, dtype=torch.int64))
