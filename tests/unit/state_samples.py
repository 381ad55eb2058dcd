"""A package in memory whose functions have state, integers, random numbers and sizes that may be zero."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from program_samples import tensor
from runtime_samples import ADD, F4, SCALE, STORAGES, WEIGHTS, MemoryPackage, executable, product

from coilpack.runtime.dtypes import DType
from coilpack.runtime.package import StorageData, write_package
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, Expr, ExprKind, Symbol
from coilpack.runtime.program.verify import verify_program

N, M, K = Symbol("n"), Symbol("m"), Symbol("k")
TOTAL = ir.Global("total", 16, STORAGES[0])  # starts as the weight `w`
COUNT = ir.Global("count", 16)
OFFSETS = (0, 8)
ROW = 5  # seeds in a row


def plus(a: Expr, b: Expr) -> Expr:
    return Binary(ExprKind.ADD, a, b)


def _arguments(**types: ir.TensorType) -> tuple[ir.Argument, ...]:
    return tuple(ir.Argument(name, type_) for name, type_ in types.items())


def _values(arguments: tuple[ir.Argument, ...]) -> tuple[ir.Value, ...]:
    return tuple(ir.Value(argument.name, argument.type) for argument in arguments)


def _accumulate() -> ir.Function:
    """accumulate(x): total = total + x; count = 1 x; returns total and its last two elements"""
    inputs = _arguments(x=F4)
    (x,) = _values(inputs)
    total, count, tail = ir.Value("total", F4), ir.Value("count", F4), ir.Value("tail", tensor(DType.f32, 2))
    signature = ir.Signature("accumulate", inputs, (ir.Argument("", F4), ir.Argument("", tail.type)))
    operations = (
        ir.GetGlobal(total, TOTAL),
        ir.GetGlobal(count, COUNT),
        ir.Dispatch(ADD, (1, 1, 1), (total, x, total)),
        ir.Dispatch(SCALE, (1, 1, 1), (x, count, 1.0, 4)),
        ir.View(tail, total, 2),
        ir.Return((total, tail)),
    )
    return ir.Function(signature, (x,), operations)


def _state() -> ir.Function:
    """state() = total, count"""
    values = tuple(ir.Value(name, F4) for name in ("total", "count"))
    signature = ir.Signature("state", (), (ir.Argument("", F4), ir.Argument("", F4)))
    gets = [ir.GetGlobal(value, item) for value, item in zip(values, (TOTAL, COUNT), strict=True)]
    return ir.Function(signature, (), (*gets, ir.Return(values)))


def _draw() -> ir.Function:
    """draw() = two rows of seeds"""
    kind = tensor(DType.i64, ROW)
    rows, outs = ([ir.Value(f"{name}{index}", kind) for index in range(2)] for name in ("row", "out"))
    signature = ir.Signature("draw", (), tuple(ir.Argument("", kind) for _ in outs), random=True)
    operations = (
        *(ir.RandomSeeds(row, offset) for row, offset in zip(rows, OFFSETS, strict=True)),
        *(ir.Alloc(out, ir.AllocSpace.OUTPUT, 8 * ROW) for out in outs),
        *(ir.Copy(row, out) for row, out in zip(rows, outs, strict=True)),
        ir.Return(tuple(outs)),
    )
    return ir.Function(signature, (), operations)


def _integers() -> ir.Function:
    """integers(x[2 n, m], k, seed[n]) = n + k, 3 x, m; through the arena"""
    kind, row = tensor(DType.f32, product(N, 2), M), tensor(DType.f32, N)
    inputs = (
        ir.Argument("x", kind),
        ir.Argument("k", ir.INTEGER_TYPE, K),
        ir.Argument("seed", row),
    )
    x, k, seed = _values(inputs)
    scaled, out = ir.Value("scaled", kind), ir.Value("out", kind)
    outputs = (
        ir.Argument("", ir.INTEGER_TYPE, plus(N, K)),
        ir.Argument("", kind),
        ir.Argument("", ir.INTEGER_TYPE, M),
    )
    symbols = (
        ir.SizeSymbol("n", 0, 0, 0, 100),
        ir.SizeSymbol("m", 0, 1, 0, 50),
        ir.SizeSymbol("k", 1, None, 0, 9),
    )
    guards = (ir.Guard(ir.GuardKind.LESS_EQUAL, product(N, M), 1000),)
    signature = ir.Signature("integers", inputs, outputs, symbols, guards)
    size = product(product(N, 2), M)
    nbytes, grid = product(size, 4), (Binary(ExprKind.FLOORDIV, plus(size, 31), 32), 1, 1)
    operations = (
        ir.Alloc(scaled, ir.AllocSpace.ARENA, nbytes, 0),
        ir.Dispatch(SCALE, grid, (x, scaled, 3.0, size)),
        ir.Alloc(out, ir.AllocSpace.OUTPUT, nbytes),
        ir.Copy(scaled, out),
        ir.Return((out,)),
    )
    return ir.Function(signature, (x, k, seed), operations, nbytes)


def _pair() -> ir.Function:
    """pair(x, a, b): a = 2 x; b = 3 x; returns -x twice, in the same memory, and x"""
    inputs = _arguments(x=F4, a=F4, b=F4)
    x, a, b = _values(inputs)
    out, same = ir.Value("out", F4), ir.Value("same", F4)
    signature = ir.Signature("pair", inputs, tuple(ir.Argument("", F4) for _ in range(3)))
    operations = (
        ir.Alloc(out, ir.AllocSpace.OUTPUT, 16),
        ir.Dispatch(SCALE, (1, 1, 1), (x, a, 2.0, 4)),
        ir.Dispatch(SCALE, (1, 1, 1), (x, b, 3.0, 4)),
        ir.Dispatch(SCALE, (1, 1, 1), (x, out, -1.0, 4)),
        ir.View(same, out),
        ir.Return((out, same, x)),
    )
    return ir.Function(signature, (x, a, b), operations)


def program(targets: Mapping[str, str]) -> ir.Program:
    """The functions above for each target."""
    functions = (_accumulate(), _state(), _draw(), _integers(), _pair())
    made = tuple(
        ir.Target(name, (ir.Image(ir.ImageKind.PTX, f"executables/{name}.ptx.cda1"),), (SCALE, ADD), functions)
        for name in targets
    )
    signatures = tuple(function.signature for function in functions)
    result = ir.Program("coilpack tests", signatures, STORAGES, made, (TOTAL, COUNT))
    verify_program(result)
    return result


class StatePackage(MemoryPackage):
    """What `Program` asks of a package, without a file."""

    def __init__(self, targets: Mapping[str, str] | None = None) -> None:
        targets = targets or {"sm_75": "8.0"}
        self.program = program(targets)
        self.images = {f"executables/{name}.ptx.cda1": executable(name, version) for name, version in targets.items()}


ZERO = np.zeros(4, np.float32)


def write_state_package(path: Path) -> Path:
    """The same as a file."""
    package = StatePackage()
    weights = [
        StorageData(name, DType.from_numpy(data.dtype), data.shape, lambda data=data: [data.tobytes()])
        for name, data in WEIGHTS.items()
    ]
    write_package(path, package.program, package.images, weights)
    return path
