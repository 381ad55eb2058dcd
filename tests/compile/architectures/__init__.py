"""Whole architectures to compile, and what each computes by a reference in higher precision."""

from .cases import ARCHITECTURES, Architecture, Call, build

__all__ = ["ARCHITECTURES", "Architecture", "Call", "build"]
