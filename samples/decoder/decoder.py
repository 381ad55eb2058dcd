"""A decoder that keeps its keys and values as state: the module behind `prefill` and `decode`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class StaticCache:
    """Keys and values of all layers in memory of a fixed size, as transformers' attention layers use a cache.

    Args:
        keys: for each layer [slots, capacity, key heads, head size]; written in place.
        values: likewise.
        positions: where the new tokens of each sequence stand, int64 [batch, length].
        span: how many positions, from the first, attention reads.
    """

    is_compileable = True

    def __init__(
        self, keys: list[torch.Tensor], values: list[torch.Tensor], positions: torch.Tensor, span: int
    ) -> None:
        self._keys = keys
        self._values = values
        self._positions = positions
        self._rows = torch.arange(positions.shape[0], device=positions.device)[:, None]
        self._span = span

    def update(
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        layer: int,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the new keys and values, [batch, key heads, length, head size], and returns all of them so far."""
        return self._store(self._keys[layer], key), self._store(self._values[layer], value)

    def _store(self, memory: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        memory.index_put_((self._rows, self._positions), new.transpose(1, 2))
        return memory[: new.shape[0], : self._span].transpose(1, 2)


class CachedDecoder(nn.Module):
    """A causal language model of transformers with a static key and value cache in buffers.

    Functions compiled from several of these share the buffers where their names and sizes agree: `prefill` fills the
    cache for a prompt, `decode` adds a token to it.

    Args:
        model: as `LlamaForCausalLM`.
        slots: sequences that the cache has room for; a function takes as many of the first ones as its batch has.
        capacity: positions that the cache has room for.
        span: positions, from the first, that attention reads; by default all.
    """

    def __init__(self, model: nn.Module, slots: int, capacity: int, span: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.span = span or capacity
        config = model.config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (slots, capacity, config.num_key_value_heads, head_dim)
        self.layers = config.num_hidden_layers
        for layer in range(self.layers):
            for kind in ("keys", "values"):
                memory = torch.zeros(shape, dtype=model.dtype, device=model.device)
                self.register_buffer(f"{kind}_{layer}", memory, persistent=False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, last: torch.Tensor | None = None) -> torch.Tensor:
        """Reads `tokens` into the cache and predicts the next one.

        A prompt shorter than `length` is padded at its end. What the padding leaves in the cache is not seen: a token
        sees the positions up to its own, and those after the prompt are overwritten before anything sees them.

        Args:
            tokens: int64 [batch, length].
            positions: where they stand in their sequences, int64 [batch, length], each less than `span`.
            last: index of each sequence's last token in `tokens`, int64 [batch]; the last column without it.

        Returns:
            Scores of the next token, [batch, vocabulary].
        """
        memory = {kind: [self.get_buffer(f"{kind}_{i}") for i in range(self.layers)] for kind in ("keys", "values")}
        cache = StaticCache(memory["keys"], memory["values"], positions, self.span)
        seen = torch.arange(self.span, device=tokens.device) <= positions[:, None, :, None]
        hidden = self.model.model(
            input_ids=tokens, attention_mask=seen, position_ids=positions, cache=cache
        ).last_hidden_state
        if last is None:
            final = hidden[:, -1]
        else:
            final = hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[-1]))[:, 0]
        return self.model.lm_head(final)
