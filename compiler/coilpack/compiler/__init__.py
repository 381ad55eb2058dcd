"""Compiles exported PyTorch programs into packages: Inductor's kernels lowered to PTX, with the host program."""

from importlib.metadata import version

PRODUCER = f"coilpack {version('coilpack')}"
"""Name and version that stand in every file the compiler writes."""
