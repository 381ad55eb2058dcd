"""Prints programs as text. `coilpack.runtime.program.parser` reads it back; the grammar is in `program.lark`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from coilpack.runtime.program import ir, wire
from coilpack.runtime.program.expr import Binary, Expr, ExprKind, Symbol

OPERATORS: dict[ExprKind, str] = {
    ExprKind.ADD: "+",
    ExprKind.MUL: "*",
    ExprKind.FLOORDIV: "floordiv",
    ExprKind.MOD: "mod",
    ExprKind.MIN: "min",
    ExprKind.MAX: "max",
}
ACCESSES: dict[ir.Access, str] = {
    ir.Access.READ: "read",
    ir.Access.WRITE: "write",
    ir.Access.READ | ir.Access.WRITE: "read_write",
}

RELATIONS: dict[ir.GuardKind, str] = {
    ir.GuardKind.EQUAL: "==",
    ir.GuardKind.NOT_EQUAL: "!=",
    ir.GuardKind.LESS_EQUAL: "<=",
}

_BARE = re.compile(r"[A-Za-z0-9_$.]+")


def print_program(program: ir.Program) -> str:
    """The whole program as text; `parse_program` of it prints the same."""
    lines = [f"program {{producer = {quoted(program.producer)}}} {{"]
    lines += [f"  storage @{name(storage.name)} {{nbytes = {storage.nbytes}}}" for storage in program.storages]
    lines += [_global(global_) for global_ in program.globals]
    for signature in program.signatures:
        lines += _signature(signature)
    for target in program.targets:
        lines += _target(target)
    return "\n".join([*lines, "}", ""])


def print_expr(expr: Expr) -> str:
    """An expression: a number as it is, anything else in parentheses."""
    return str(expr) if isinstance(expr, int) else f"({_term(expr)})"


def print_type(tensor: ir.TensorType) -> str:
    """A type, as `tensor<(s0 + 1)x16xf32>`; with `strides = [...]` where it is not contiguous."""
    sizes = "".join(f"{print_expr(size)}x" for size in tensor.shape)
    if tensor.is_contiguous:
        return f"tensor<{sizes}{tensor.dtype.name}>"
    return f"tensor<{sizes}{tensor.dtype.name}, strides = {_list(tensor.strides)}>"


def quoted(text: str) -> str:
    """A string literal, with JSON's escapes."""
    return json.dumps(text, ensure_ascii=False)


def name(text: str) -> str:
    """A name behind `%` or `@`: bare where it can be, else a string literal."""
    return text if _BARE.fullmatch(text) else quoted(text)


def _term(expr: Expr) -> str:
    if isinstance(expr, Binary):
        return f"{_atom(expr.lhs)} {OPERATORS[expr.kind]} {_atom(expr.rhs)}"
    return expr.name if isinstance(expr, Symbol) else str(expr)


def _atom(expr: Expr) -> str:
    return f"({_term(expr)})" if isinstance(expr, Binary) else _term(expr)


def _list(expressions: Iterable[Expr]) -> str:
    return f"[{', '.join(map(print_expr, expressions))}]"


def print_guard(guard: ir.Guard) -> str:
    """A guard, as `(s0 * s1) <= 2147483647`."""
    return f"{print_expr(guard.lhs)} {RELATIONS[guard.kind]} {print_expr(guard.rhs)}"


def print_argument(argument: ir.Argument) -> str:
    """What an input or output is: its type, or `integer` and its expression."""
    return print_type(argument.type) if argument.value is None else f"integer {print_expr(argument.value)}"


def _global(global_: ir.Global) -> str:
    initial = f", initial = @{name(global_.initial.name)}" if global_.initial else ""
    return f"  global @{name(global_.name)} {{nbytes = {global_.nbytes}{initial}}}"


def _signature(signature: ir.Signature) -> list[str]:
    lines = [f"  signature @{name(signature.name)} {{"]
    for symbol in signature.symbols:
        place = f"input = {symbol.input}" if symbol.dim is None else f"input = {symbol.input}, dim = {symbol.dim}"
        bounds = f"minimum = {symbol.minimum}, maximum = {symbol.maximum}"
        lines.append(f"    symbol {symbol.name} {{{place}, {bounds}}}")
    for kind, arguments in (("input", signature.inputs), ("output", signature.outputs)):
        lines += [f"    {kind} {quoted(argument.name)} : {print_argument(argument)}" for argument in arguments]
    lines += [f"    guard {print_guard(guard)}" for guard in signature.guards]
    return [*lines, *["    random"] * signature.random, "  }"]


def _target(target: ir.Target) -> list[str]:
    lines = [f"  target @{name(target.name)} {{"]
    lines += [f"    image {{kind = {i.kind.name.lower()}, entry = {quoted(i.entry)}}}" for i in target.images]
    lines += [f"    {_kernel(kernel)}" for kernel in target.kernels]
    for function in target.functions:
        lines += _function(function)
    return [*lines, "  }"]


def _kernel(kernel: ir.Kernel) -> str:
    text = f"kernel @{name(kernel.export_name)}({', '.join(map(print_parameter, kernel.parameters))})"
    attributes = ["cooperative = true"] if kernel.cooperative else []
    if kernel.grid is not None:
        attributes.append(f"grid = {_list(kernel.grid)}")
    known = {"source": kernel.source, "configuration": kernel.configuration}
    attributes += [f"{key} = {quoted(value)}" for key, value in known.items() if value]
    return f"{text} {{{', '.join(attributes)}}}" if attributes else text


def print_parameter(parameter: ir.KernelParameter) -> str:
    """A kernel's parameter: a scalar's type, or `ptr<f32, access = read, alignment = 16>`."""
    if isinstance(parameter, ir.ScalarParameter):
        return parameter.dtype.name
    access = ACCESSES[parameter.access]
    return f"ptr<{parameter.dtype.name}, access = {access}, alignment = {parameter.alignment}>"


def _function(function: ir.Function) -> list[str]:
    arguments = ", ".join(f"%{name(value.name)}: {print_type(value.type)}" for value in function.arguments)
    attributes = f"{{arena_nbytes = {print_expr(function.arena_nbytes)}}}"
    lines = [f"    function @{name(function.name)}({arguments}) {attributes} {{"]
    lines += [f"      {print_operation(operation)}" for operation in function.operations]
    return [*lines, "    }"]


def print_operation(operation: ir.Operation) -> str:
    """One operation, without indentation or line end."""
    operands, attributes = _PRINTERS[type(operation)](operation)
    result = next(ir.results(operation), None)
    parts = [f"%{name(result.name)} = "] if result else []
    parts.append(f"{operation.mnemonic}({', '.join(map(_operand, operands))})")
    if attributes:
        parts.append(f" {{{', '.join(f'{key} = {value}' for key, value in attributes.items())}}}")
    types = ", ".join(print_type(operand.type) for operand in operands if isinstance(operand, ir.Value))
    parts.append(f" : ({types}) -> {print_type(result.type) if result else '()'}")
    if operation.location:
        parts.append(f" loc({quoted(operation.location)})")
    return "".join(parts)


def _operand(operand: ir.Operand) -> str:
    if operand is None:
        return "null"
    if isinstance(operand, ir.Value):
        return f"%{name(operand.name)}"
    return _float(operand) if isinstance(operand, float) else print_expr(operand)


def _launch(operation: ir.Dispatch) -> dict[str, str]:
    attributes = {"kernel": f"@{name(operation.kernel.export_name)}", "grid": _list(operation.grid)}
    if operation.alternatives:
        candidates = [f"@{name(other.kernel.export_name)} {_list(other.grid)}" for other in operation.alternatives]
        attributes["alternatives"] = f"[{', '.join(candidates)}]"
    return attributes


def _float(number: float) -> str:
    return repr(number) if math.isfinite(number) else f"f64(0x{_bits(number):016X})"


def _bits(number: float) -> int:
    bits: int = wire.UINT64.unpack(wire.DOUBLE.pack(number))[0]
    return bits


# What each operation prints: its operands and its attributes.
_PRINTERS: dict[type[ir.Operation], Callable[[Any], tuple[tuple[ir.Operand, ...], dict[str, str]]]] = {
    ir.Parameter: lambda op: ((), {"storage": f"@{name(op.storage.name)}", "byte_offset": str(op.byte_offset)}),
    ir.Alloc: lambda op: (
        (),
        {"space": op.space.name.lower(), "nbytes": print_expr(op.nbytes), "offset": print_expr(op.offset)},
    ),
    ir.View: lambda op: ((op.source,), {"offset": print_expr(op.offset)}),
    ir.Dispatch: lambda op: (op.operands, _launch(op)),
    ir.Copy: lambda op: ((op.source, op.target), {}),
    ir.Fill: lambda op: ((op.target,), {"pattern": f"0x{op.pattern:X}"}),
    ir.GetGlobal: lambda op: ((), {"global": f"@{name(op.global_.name)}", "byte_offset": str(op.byte_offset)}),
    ir.RandomSeeds: lambda op: ((), {"philox_offset": str(op.philox_offset)}),
    ir.Matmul: lambda op: (
        (op.target, op.lhs, op.rhs) if op.addend is None else (op.target, op.lhs, op.rhs, op.addend),
        {"alpha": _float(float(op.alpha)), "beta": _float(float(op.beta)), "tf32": str(op.tf32).lower()},
    ),
    ir.Return: lambda op: (op.values, {}),
}
