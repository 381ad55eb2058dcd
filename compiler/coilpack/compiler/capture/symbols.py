"""What bounds the sizes of a call: the symbols of a signature, read off its inputs, and the guards over them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.size_expressions import conditions, expression
from coilpack.compiler.capture.source_expressions import SourceEvaluator
from coilpack.compiler.capture.sympy_source import RELATION_FUNCTIONS, RELATION_OPERATORS, as_sympy
from coilpack.compiler.intervals import always_holds
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, Expr, ExprKind, Symbol, symbols

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
# Export traces with sizes of at least 2 where nothing else is declared, and the code holds for 0 and 1 as well.
_ASSUMED_MINIMUM = 2


def with_sizes(
    signature: ir.Signature, program: torch.export.ExportedProgram, values: Mapping[str, Any], shape_env: Any
) -> ir.Signature:
    """The signature with the symbols of its inputs' sizes, and the guards that its code holds under.

    Args:
        signature: with the symbols of constant integers only.
        program: the export, as it was made or loaded.
        values: what the graph was traced with, by the names of the export's placeholders.
        shape_env: what it was traced and compiled in; None where no size is dynamic.

    Raises:
        UnsupportedError: no input gives the value of a symbol, or a guard has no counterpart in a package.
    """
    if shape_env is None:
        return signature
    inputs = {argument.name: values[argument.name] for argument in signature.inputs}
    found = (*signature.symbols, *input_symbols(list(inputs.values()), program.range_constraints))
    symbols = tuple(sorted(found, key=lambda s: (s.input, -1 if s.dim is None else s.dim)))
    return replace(signature, symbols=symbols, guards=size_guards(program, shape_env, inputs, symbols))


def assume_usual_sizes(program: torch.export.ExportedProgram) -> None:
    """Assumes, as export does, that dimensions are at least 2, unless they are declared to be less.

    A program that was loaded from a file has lost that, and would be traced under conditions that exclude 0 and 1.
    """
    values = [node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")]
    for _, _, size in _dimensions(values):
        if size.is_Symbol:
            shape_env: Any = next(v.fake_mode.shape_env for v in values if isinstance(v, compat.FakeTensor))
            known = shape_env.var_to_range.get(size)
            if known is not None and known.lower < _ASSUMED_MINIMUM <= known.upper:
                shape_env.constrain_symbol_range(size, compiler_min=_ASSUMED_MINIMUM, compiler_max=known.upper)


def input_symbols(values: Sequence[Any], ranges: Mapping[Any, Any]) -> tuple[ir.SizeSymbol, ...]:
    """The symbols in the inputs' sizes, each read off the first input that gives its value.

    An integer input defines a symbol of its own; another is a dimension of an input, or follows from one that is
    `a * symbol + b`.

    Args:
        values: for each input of the signature, its fake tensor, `SymInt` or constant.
        ranges: the export's `range_constraints`.

    Raises:
        UnsupportedError: no input gives the value of a symbol; names it.
    """
    defined: dict[str, ir.SizeSymbol] = {}

    def define(symbol: sympy.Symbol, index: int, dim: int | None) -> None:
        minimum, maximum = _bounds(ranges.get(symbol))
        defined[symbol.name] = ir.SizeSymbol(symbol.name, index, dim, minimum, maximum)

    for index, value in enumerate(values):
        if isinstance(value, torch.SymInt):
            define(compat.unreplaced(value), index, None)
    dimensions = list(_dimensions(values))
    for index, dim, size in dimensions:
        if size.is_Symbol and size.name not in defined:
            define(size, index, dim)
    for index, dim, size in dimensions:
        unknown = [symbol for symbol in _sorted_symbols(size) if symbol.name not in defined]
        if len(unknown) == 1 and _is_linear(size, unknown[0]):
            define(unknown[0], index, dim)
    for index, dim, size in dimensions:
        for symbol in _sorted_symbols(size):
            if symbol.name not in defined:
                raise UnsupportedError(
                    f"dimension {dim} of input {index} is {size}, from which {symbol} cannot be computed; "
                    f"give {symbol} a dimension of its own, or one that is a multiple of it plus a constant"
                )
    return tuple(defined.values())


def symbol_of(value: torch.SymInt) -> Symbol:
    """The symbol that an integer input defines."""
    return Symbol(compat.unreplaced(value).name)


def _dimensions(values: Sequence[Any]) -> Iterator[tuple[int, int, sympy.Expr]]:
    """All symbolic dimensions of the inputs: input, dimension, size."""
    for index, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                expr = as_sympy(size)
                if not expr.is_Integer:
                    yield index, dim, expr


def _sorted_symbols(expr: sympy.Expr) -> list[sympy.Symbol]:
    return sorted(expr.free_symbols, key=lambda symbol: symbol.name)


def _is_linear(size: sympy.Expr, symbol: sympy.Symbol) -> bool:
    """Whether a size is `a * symbol + b` with integers a > 0 and b."""
    if size.free_symbols != {symbol}:
        return False
    offset = size.subs(symbol, 0)
    factor = size.subs(symbol, 1) - offset
    linear = factor.is_Integer and offset.is_Integer and factor > 0
    return bool(linear) and sympy.expand(size - factor * symbol - offset) == 0


def _bounds(declared: Any) -> tuple[int, int]:
    if declared is None:
        return 0, _INT64_MAX
    low = int(declared.lower) if declared.lower.is_Integer else _INT64_MIN
    high = int(declared.upper) if declared.upper.is_Integer else _INT64_MAX
    return (0 if low == _ASSUMED_MINIMUM else low), high


def size_guards(
    program: torch.export.ExportedProgram,
    shape_env: Any,
    values: Mapping[str, Any],
    symbols_: Sequence[ir.SizeSymbol],
) -> tuple[ir.Guard, ...]:
    """The relations between sizes that the code was traced and compiled under, without those that always hold.

    Args:
        program: the export, as it was made or loaded.
        shape_env: what the graph was traced and compiled in.
        values: the inputs' fake tensors and `SymInt`s by name.
        symbols_: the signature's symbols.

    Raises:
        UnsupportedError: a relation has no counterpart in a package; quotes it.
    """
    relations = [guard.expr for guard in shape_env.guards] + [
        _parsed(code, values) for code in getattr(program, "_guards_code", None) or ()
    ]
    distinct: dict[Any, None] = dict.fromkeys(shape_env.replace(relation) for relation in relations)
    guards = [guard for relation in distinct for guard in _guards_of(relation)]
    guards += _replaced_integers(values)
    bounds = {symbol.name: (symbol.minimum, symbol.maximum) for symbol in symbols_}
    for guard in guards:
        for name in (*symbols(guard.lhs), *symbols(guard.rhs)):
            if name not in bounds:
                raise UnsupportedError(f"the model holds under {guard}, but no input gives the size {name}")
    return tuple(guard for guard in _tightest(guards) if not always_holds(guard, bounds))


def _tightest(guards: Sequence[ir.Guard]) -> list[ir.Guard]:
    """Each guard once, and of the constant limits of multiples of one expression the lowest, for the expression."""
    limits: dict[Expr, int] = {}
    kept: dict[ir.Guard | Expr, None] = {}
    for guard in guards:
        match guard:
            case ir.Guard(ir.GuardKind.LESS_EQUAL, Binary(ExprKind.MUL, expr, int() as factor), int() as limit) if (
                factor > 0
            ):
                limit //= factor
            case ir.Guard(ir.GuardKind.LESS_EQUAL, expr, int() as limit):
                pass
            case _:
                kept[guard] = None
                continue
        limits[expr] = min(limit, limits.get(expr, limit))
        kept[expr] = None
    return [
        part if isinstance(part, ir.Guard) else ir.Guard(ir.GuardKind.LESS_EQUAL, part, limits[part]) for part in kept
    ]


def _guards_of(relation: Any) -> tuple[ir.Guard, ...]:
    try:
        return conditions(relation)
    except UnsupportedError as error:
        message = f"the model holds under {relation}, which cannot be checked at a call: {error}"
        raise UnsupportedError(message) from error


def _replaced_integers(values: Mapping[str, Any]) -> Iterator[ir.Guard]:
    """Integer inputs that must equal something: another size, or a constant."""
    for value in values.values():
        if isinstance(value, torch.SymInt) and value.node.expr != compat.unreplaced(value):
            yield ir.Guard(ir.GuardKind.EQUAL, Symbol(compat.unreplaced(value).name), expression(value))


# --- relations that an export carries as Python source ---


def _parsed(code: str, values: Mapping[str, Any]) -> Any:
    """A relation as export writes it down: `(L['x'].size()[1] % 4) == 0`, with `L['n']` for an integer."""

    def leaf(node: ast.expr) -> Any:
        match node:
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(value=source, attr="size"), args=[]),
                slice=ast.Constant(value=int() as dim),
            ) if (path := _path(source)) is not None:
                return as_sympy(_named(values, path, code).shape[dim])
            case ast.Subscript() if (path := _path(node)) is not None:
                return as_sympy(_named(values, path, code))
        return None

    return SourceEvaluator(RELATION_OPERATORS, RELATION_FUNCTIONS, {}, leaf).value(code)


def _path(node: ast.expr) -> str | None:
    """The input's name in `L['x']`, `L['x'][0]` or `L['x']['key']`: its keys, joined as export joins them."""
    keys: list[str] = []
    while isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        keys.append(str(node.slice.value))
        node = node.value
    return "_".join(reversed(keys)) if isinstance(node, ast.Name) and node.id == "L" and keys else None


def _named(values: Mapping[str, Any], name: str, code: str) -> Any:
    if name not in values:
        raise UnsupportedError(f"the model holds under `{code}`, which names no input; inputs are {sorted(values)}")
    return values[name]
