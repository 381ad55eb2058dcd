"""Exports the sentence encoder as a `.pt2` file: `python samples/minilm/export.py -o minilm.pt2 --dtype fp16`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from encoder import load
from transformers.utils import logging as transformers_logging

DTYPES = {"fp16": torch.float16, "fp32": torch.float32}


def export(dtype: torch.dtype, batch: int, length: int) -> torch.export.ExportedProgram:
    """Exports the encoder for token arrays of exactly [batch, length]."""
    tokens = torch.ones(batch, length, dtype=torch.int64)
    with torch.no_grad():
        return torch.export.export(load(dtype), (tokens, torch.ones_like(tokens)))


def main() -> int:
    """Parses the command line and exports."""
    parser = argparse.ArgumentParser(description="Exports the sentence encoder as a .pt2 file.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the .pt2 file to write")
    parser.add_argument("--dtype", choices=DTYPES, default="fp16", help="element type of the weights (default: fp16)")
    parser.add_argument("--batch", type=int, default=4, help="sentences in a call (default: 4)")
    parser.add_argument("--length", type=int, default=32, help="tokens in a sentence, padding included (default: 32)")
    arguments = parser.parse_args()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()  # else it reports BERT's pooler, which this encoder does not have
    program = export(DTYPES[arguments.dtype], arguments.batch, arguments.length)
    torch.export.save(program, arguments.output)
    print(f"{arguments.output}: {arguments.dtype}, {arguments.batch} sentences of {arguments.length} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
