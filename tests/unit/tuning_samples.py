"""Packages with candidates that differ in what they execute: some faster, some wrong, some that no device takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from candidate_samples import storages
from program_samples import tensor
from runtime_samples import ADD, F4, FN, PTX, SCALE, STORAGES, N, product

from coilpack.runtime.dtypes import DType
from coilpack.runtime.executable import Executable, Export, write_executable
from coilpack.runtime.package import write_package
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, ExprKind
from coilpack.runtime.program.verify import verify_program

TOTAL = ir.Global("total", 16, STORAGES[0])
SOURCES = {name: PTX.format(target="sm_80", version="8.0") for name in ("scale", "add")}
_LOOP = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y, .param .f32 factor, .param .u32 n)
{
.reg .pred %p<2>;
.reg .b32 %r<4>;
.reg .f32 %f<4>;
.reg .b64 %rd<6>;
mov.u32 %r1, %tid.x;
ld.param.u32 %r2, [n];
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
ld.param.f32 %f2, [factor];
NEXT:
setp.ge.u32 %p1, %r1, %r2;
@%p1 bra DONE;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
ld.global.f32 %f1, [%rd4];
mul.rn.f32 %f3, %f1, %f2;
st.global.f32 [%rd5], %f3;
add.u32 %r1, %r1, 32;
bra NEXT;
DONE:
ret;
}
"""


def padded(source: str, count: int) -> str:
    """The kernels with that many more instructions, which do nothing."""
    for first in ("mov.u32 %r1, %ctaid.x;", "mov.u32 %r1, %tid.x;"):
        source = source.replace(first, f"{first}\n" * (count + 1))
    return source


@dataclasses.dataclass(frozen=True)
class Variant:
    """How a candidate differs from the kernel whose place it takes."""

    source: str
    block: tuple[int, int, int] = (32, 1, 1)
    shared_memory_bytes: int = 0


def _scale(change: str = "", into: str = "", pad: int = 0) -> Variant:
    source = SOURCES["scale"]
    assert change in source
    return Variant(padded(source.replace(change, into) if change else source, pad))


# By the name of the kernel and of each candidate. The first of a row is what an untuned package launches.
SCALES: dict[str, Variant] = {
    "scale$1": _scale(pad=20),
    "scale$1.slower": _scale(pad=30),
    "scale$1.wrong": _scale("mul.rn.f32 %f3, %f1, %f2;", "add.rn.f32 %f3, %f1, %f2;"),
    "scale$1.idle": _scale("st.global.f32 [%rd5], %f3;"),
    "scale$1.wild": _scale("mul.wide.u32 %rd3, %r4, 4;", "mul.wide.u32 %rd3, %r4, 4096;"),
    "scale$1.large": Variant(SOURCES["scale"], shared_memory_bytes=200_000),
    "scale$1.fast": _scale(),
    "scale$1.as_fast": _scale(),
}
ADDS: dict[str, Variant] = {
    "add": Variant(padded(SOURCES["add"], 5), (4, 1, 1)),
    "add.fast": Variant(SOURCES["add"], (4, 1, 1)),
}
LOOPS: dict[str, Variant] = {"scale$1": _scale(pad=20), "scale$1.loop": Variant(_LOOP)}


def function(name: str, minimum: int = 1) -> ir.Function:
    """`main(x) = 2 x + total`, in place, twice; or `dynamic(x[n]) = 2 x`, for n from `minimum` on."""
    if name == "dynamic":
        x, y = ir.Value("x", FN), ir.Value("y", FN)
        signature = ir.Signature(
            name, (ir.Argument("x", FN),), (ir.Argument("", FN),), (ir.SizeSymbol("n", 0, 0, minimum, 1000),)
        )
        grid = (Binary(ExprKind.FLOORDIV, Binary(ExprKind.ADD, N, 31), 32), 1, 1)
        operations: tuple[ir.Operation, ...] = (
            ir.Alloc(y, ir.AllocSpace.OUTPUT, product(N, 4)),
            ir.Dispatch(SCALE, grid, (x, y, 2.0, N)),
            ir.Return((y,)),
        )
        return ir.Function(signature, (x,), operations)
    x, y, total = ir.Value("x", F4), ir.Value("y", F4), ir.Value("total", F4)
    tokens = ir.Value("tokens", tensor(DType.i64, 2))
    inputs = (ir.Argument("x", F4), ir.Argument("tokens", tokens.type))
    signature = ir.Signature(name, inputs, (ir.Argument("", F4),))
    operations = (
        ir.GetGlobal(total, TOTAL),
        ir.Alloc(y, ir.AllocSpace.ARENA, 16),
        ir.Dispatch(SCALE, (1, 1, 1), (x, y, 2.0, 4)),
        ir.Dispatch(ADD, (1, 1, 1), (total, y, total)),
        ir.Dispatch(ADD, (1, 1, 1), (total, y, total)),
        ir.Return((total,)),
    )
    return ir.Function(signature, (x, tokens), operations, 256)


def tunable(
    names: Sequence[str], variants: Sequence[Mapping[str, Variant]], minimum: int = 1
) -> tuple[ir.Program, bytes]:
    """A program of these functions whose dispatches have the variants as candidates, and its executable."""
    rows: dict[str, list[ir.Kernel]] = {}
    exports: list[Export] = []
    images: list[bytes] = []
    plain = {"scale$1": Variant(SOURCES["scale"]), "add": Variant(SOURCES["add"], (4, 1, 1))}
    given = {next(iter(row)): row for row in variants}
    for first in (SCALE, ADD):
        row = given.get(first.export_name, {first.export_name: plain[first.export_name]})
        entry = first.export_name.partition("$")[0]
        for name, variant in row.items():
            symbol = f"k{len(exports)}"
            shared = variant.shared_memory_bytes
            exports.append(Export(len(exports), symbol, name, variant.block, len(images), shared))
            images.append(variant.source.replace(f".entry {entry}(", f".entry {symbol}(").encode())
            stated = {"source": f"source of {entry}", "configuration": f"BLOCK={variant.block[0]} {name}"}
            rows.setdefault(first.export_name, []).append(dataclasses.replace(first, export_name=name, **stated))

    def chosen(operation: ir.Operation) -> ir.Operation:
        if not isinstance(operation, ir.Dispatch):
            return operation
        first, *others = rows[operation.kernel.export_name]
        alternatives = tuple(
            ir.Alternative(k, (1, 1, 1) if k.export_name.endswith(".loop") else operation.grid) for k in others
        )
        return dataclasses.replace(operation, kernel=first, alternatives=alternatives)

    functions = tuple(
        dataclasses.replace(body, operations=tuple(map(chosen, body.operations)))
        for body in (function(name, minimum) for name in names)
    )
    used = {op.kernel.export_name for body in functions for op in body.operations if isinstance(op, ir.Dispatch)}
    target = ir.Target(
        "sm_80",
        (ir.Image(ir.ImageKind.PTX, "executables/sm_80.ptx.cda1"),),
        tuple(kernel for name in rows if name in used for kernel in rows[name]),
        functions,
    )
    program = ir.Program("coilpack tests", tuple(f.signature for f in functions), STORAGES, (target,), (TOTAL,))
    verify_program(program)
    return program, write_executable(Executable(tuple(images), tuple(exports)))


def write_tunable(
    path: Path, names: Sequence[str] = ("main",), *variants: Mapping[str, Variant], minimum: int = 1
) -> Path:
    """Writes the package of `tunable`."""
    program, executable = tunable(names, variants or (SCALES, ADDS), minimum)
    write_package(path, program, {"executables/sm_80.ptx.cda1": executable}, storages())
    return path


X = np.float32([1, 2, 3, 4])
TOKENS = np.zeros(2, np.int64)
EXPECTED = np.float32([10, 20, 30, 40]) + 4 * X
