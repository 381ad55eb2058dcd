"""The wire form of programs: `encode_program` and `decode_program` (`schemas/program_def.fbs`)."""

from __future__ import annotations

from coilpack.runtime.program.decode import decode_program
from coilpack.runtime.program.encode import encode_program

__all__ = ["decode_program", "encode_program"]
