"""How long a megabyte of MLIR takes to read: the functions of `tests/compile/mlir` again and again.

    python tests/bench/mlir_parse.py [--bytes 1000000] [--limit SECONDS] [--json out.json]

With `--limit` it exits 1 where reading takes longer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from coilpack.compiler.mlir.parser import parse_module

FOLDER = Path(__file__).resolve().parents[1] / "compile" / "mlir"


def text_of(size: int) -> str:
    """Modules in modules; files with definitions of the whole file are left out."""
    files = [file.read_text("utf-8") for file in sorted(FOLDER.glob("*.mlir"))]
    usable = [text for text in files if not any(line.startswith(("#", "!", "{-#")) for line in text.splitlines())]
    if not usable:
        raise SystemExit(f"{FOLDER} has no file to measure with")
    parts: list[str] = []
    length = 0
    while length < size:
        part = f"module {{\n{usable[len(parts) % len(usable)]}\n}}\n"
        parts.append(part)
        length += len(part.encode())
    return "".join(parts)


def main() -> int:
    """Measures, prints, and compares with the limit."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bytes", type=int, default=1_000_000)
    arguments.add_argument("--limit", type=float)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    text = text_of(given.bytes)
    started = time.perf_counter()
    parse_module("")  # builds the tables of the grammar
    tables = time.perf_counter() - started
    started, used = time.perf_counter(), time.process_time()
    parse_module(text)
    wall, cpu = time.perf_counter() - started, time.process_time() - used
    figures = {"bytes": len(text.encode()), "grammar_s": tables, "wall_s": wall, "cpu_s": cpu}
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    return int(given.limit is not None and tables + wall > given.limit)


if __name__ == "__main__":
    sys.exit(main())
