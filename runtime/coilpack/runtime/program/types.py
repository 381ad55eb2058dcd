"""Rules and facts of expressions and tensor types: limits, static values, extents in bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from coilpack.runtime.dtypes import DType
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, Expr, ExprKind, Symbol, evaluate

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MAX_RANK = 64  # numpy's limit; longer shapes could not reach a caller
MAX_EXPR_DEPTH = 64
MAX_EXPR_NODES = 1024  # counted as a tree: what evaluation and printing cost


class TypeProblemError(Exception):
    """A rule that an expression or a type breaks; its reader adds where and raises a `CoilpackError`."""


class TypeFacts(NamedTuple):
    """What is known of a type.

    `nbytes` counts its elements, `extent` the bytes from its first element to the end of its last; None where they
    depend on symbols. `dense` says whether the elements fill the extent in row-major order. `alignment` is an
    element's, in bytes: its size; for complex numbers, that of one part.
    """

    nbytes: int | None
    extent: int | None
    dense: bool
    itemsize: int
    alignment: int


class _ExprFacts(NamedTuple):
    """An expression's value, if known, and its size as a tree."""

    value: int | None
    nodes: int
    depth: int


class TypeChecker:
    """Checks expressions and types that may use certain symbols, and remembers what it found.

    It knows them again by identity, so they must live as long as it does.

    Args:
        symbols: the names that may occur.
        sizes: their values, where they are known: then nothing is left to check later.
    """

    def __init__(self, symbols: frozenset[str], sizes: Mapping[str, int] | None = None) -> None:
        self.symbols = symbols
        self.sizes = sizes
        # By identity: hashing an expression or a type walks all of it.
        self._expressions: dict[int, _ExprFacts] = {}
        self._types: dict[int, TypeFacts] = {}

    def value(self, expr: Expr) -> int | None:
        """The checked value of an expression; None where it depends on symbols.

        Raises:
            TypeProblemError: it is too deep or too large, divides by zero, leaves 64 bits, or has an unknown symbol.
        """
        if type(expr) is int:
            return expr if INT64_MIN <= expr <= INT64_MAX else _too_wide(expr)
        return self._facts(expr, 1).value

    def _facts(self, expr: Expr, level: int) -> _ExprFacts:
        """The facts of an expression that stands `level` levels deep; each part is walked once, however often used."""
        known = self._expressions.get(id(expr))
        facts = self._walk(expr, level) if known is None else known
        if level + facts.depth - 1 > MAX_EXPR_DEPTH:
            raise TypeProblemError(f"an expression is nested deeper than the limit of {MAX_EXPR_DEPTH}")
        if facts.nodes > MAX_EXPR_NODES:
            raise TypeProblemError(f"an expression has more operands than the limit of {MAX_EXPR_NODES}")
        if known is None and facts.nodes > 1:
            self._expressions[id(expr)] = facts
        return facts

    def _walk(self, expr: Expr, level: int) -> _ExprFacts:
        if type(expr) is int:
            return _ExprFacts(expr if INT64_MIN <= expr <= INT64_MAX else _too_wide(expr), 1, 1)
        if isinstance(expr, Symbol):
            if expr.name not in self.symbols:
                known = ", ".join(sorted(self.symbols)) or "none"
                raise TypeProblemError(f"there is no symbol {expr.name!r}; known: {known}")
            return _ExprFacts(self.sizes[expr.name] if self.sizes is not None else None, 1, 1)
        if not isinstance(expr, Binary):
            raise TypeProblemError(f"{expr!r} is not an integer expression")
        if level >= MAX_EXPR_DEPTH:
            raise TypeProblemError(f"an expression is nested deeper than the limit of {MAX_EXPR_DEPTH}")
        lhs, rhs = self._facts(expr.lhs, level + 1), self._facts(expr.rhs, level + 1)
        if rhs.value == 0 and expr.kind in (ExprKind.FLOORDIV, ExprKind.MOD):
            raise TypeProblemError("an expression divides by zero")
        value = None
        if lhs.value is not None and rhs.value is not None:
            value = evaluate(Binary(expr.kind, lhs.value, rhs.value), {})
            if not INT64_MIN <= value <= INT64_MAX:
                _too_wide(value)
        return _ExprFacts(value, lhs.nodes + rhs.nodes + 1, max(lhs.depth, rhs.depth) + 1)

    def check(self, tensor: ir.TensorType) -> TypeFacts:
        """What is known of a type, which is checked first.

        Raises:
            TypeProblemError: it breaks a rule.
        """
        known = self._types.get(id(tensor))
        if known is None:
            known = self._types[id(tensor)] = self._check(tensor)
        return known

    def _check(self, tensor: ir.TensorType) -> TypeFacts:
        rank = len(tensor.shape)
        if len(tensor.strides) != rank:
            raise TypeProblemError(f"the type has {rank} dimensions but {len(tensor.strides)} strides")
        if rank > MAX_RANK:
            raise TypeProblemError(f"the type has {rank} dimensions; the limit is {MAX_RANK}")
        shape = [self._size(size, "size") for size in tensor.shape]
        strides = [self._size(stride, "stride") for stride in tensor.strides]
        nbytes, extent = self._extents(shape, strides, tensor)
        itemsize = tensor.dtype.itemsize
        alignment = itemsize // 2 if tensor.dtype in (DType.complex64, DType.complex128) else itemsize
        return TypeFacts(nbytes, extent, tensor.is_contiguous, itemsize, alignment)

    @staticmethod
    def _extents(
        shape: list[int | None], strides: list[int | None], tensor: ir.TensorType
    ) -> tuple[int | None, int | None]:
        itemsize = tensor.dtype.itemsize
        sizes = [size for size in shape if size is not None]
        if 0 in sizes:
            return 0, 0
        if len(sizes) < len(shape):
            return None, None
        nbytes = math.prod(sizes) * itemsize
        if nbytes > INT64_MAX:
            raise TypeProblemError(f"the type takes {nbytes} bytes; the limit is {INT64_MAX}")
        steps = [stride for stride in strides if stride is not None]
        if len(steps) < len(strides):
            return nbytes, None
        extent = (1 + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))) * itemsize
        if extent > INT64_MAX:
            raise TypeProblemError(f"the type reaches over {extent} bytes; the limit is {INT64_MAX}")
        return nbytes, extent

    def _size(self, expr: Expr, what: str) -> int | None:
        value = self.value(expr)
        if value is not None and value < 0:
            raise TypeProblemError(f"a {what} is {value}; it must not be negative")
        return value


def _too_wide(value: int) -> NoReturn:
    raise TypeProblemError(f"an expression is {value}, which does not fit into a signed 64-bit integer")
