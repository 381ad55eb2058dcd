"""Continues prompts with a compiled decoder, greedily; needs neither torch nor transformers."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coilpack import runtime

PROMPTS = ("The kernels of a whole model", "One file")

Int64Array = np.ndarray[Any, np.dtype[np.int64]]


class Generator:
    """The functions `prefill` and `decode` of a package, which share a cache of keys and values.

    Args:
        program: an open package. Its `prefill` takes tokens and positions int64 [batch, length], and the index of each
            prompt's last token int64 [batch]; `decode` takes one token and position a sequence. Both return scores of
            the next token [batch, vocabulary].
    """

    def __init__(self, program: runtime.Program) -> None:
        self._program = program
        self._batch, self._length = program.signature("prefill").inputs[0].type.shape

    def generate(self, prompts: Sequence[Sequence[int]], count: int) -> Int64Array:
        """The `count` most likely tokens after each prompt, int64 [len(prompts), count].

        Args:
            prompts: as many as `prefill` takes or fewer; each of one token or more, up to the length that it takes.
            count: no more than the cache has room for behind the longest prompt.
        """
        tokens = np.zeros((self._batch, self._length), np.int64)
        lengths = np.ones(self._batch, np.int64)  # a row without a prompt holds one token, whose scores nobody reads
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = prompt
            lengths[row] = len(prompt)
        positions = np.tile(np.arange(self._length), (self._batch, 1))
        scores = self._call("prefill", tokens, positions, lengths - 1)
        found = [scores.argmax(-1)]
        for step in range(count - 1):
            scores = self._call("decode", found[-1][:, None], (lengths + step)[:, None])
            found.append(scores.argmax(-1))
        return np.stack(found, axis=1)[: len(prompts)]

    def _call(self, function: str, *inputs: Int64Array) -> np.ndarray[Any, np.dtype[np.float32]]:
        result = self._program(*inputs, function=function)
        assert isinstance(result, runtime.DeviceArray)
        return result.numpy()


def main() -> int:
    """Parses the command line, continues the prompts and prints what comes out."""
    parser = argparse.ArgumentParser(description="Continues prompts with a compiled decoder of bytes, greedily.")
    parser.add_argument("package", type=Path, help="the .coil file")
    parser.add_argument("prompts", nargs="*", default=PROMPTS, help="one or two texts of up to 32 bytes")
    parser.add_argument("--count", type=int, default=16, help="bytes to add to each (default: 16)")
    parser.add_argument("--device", default="auto", help="auto, cuda:N or emulator (default: auto)")
    arguments = parser.parse_args()
    try:
        with runtime.open(arguments.package, device=arguments.device) as program:
            begin = time.perf_counter()
            found = Generator(program).generate([list(text.encode()) for text in arguments.prompts], arguments.count)
            seconds = time.perf_counter() - begin
    except runtime.CoilpackError as error:
        print(f"generate.py: error: {error}", file=sys.stderr)
        return 1
    for text, tokens in zip(arguments.prompts, found, strict=True):
        print(f"{text!r} -> {tokens.tolist()}")
    print(f"{arguments.count} tokens for each of {len(found)} prompts in {seconds:.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
