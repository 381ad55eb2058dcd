"""Plans: what a body becomes once its sizes are known."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest
from program_samples import READ, WRITE, large_program, pointer, small_program, tensor

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.plan import Base, CopyStep, FillStep, LaunchStep, Reference, build_plan, encode_scalar
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, ExprKind, Symbol

OFFSETS = {"layer.0/weight": 0, "bias": 256}


def function(name="main", target="sm_80"):
    (found,) = [t for t in small_program().targets if t.name == target]
    return found.function(name)


def test_every_operation():
    plan = build_plan(function(), {}, OFFSETS)
    scratch, out = Reference(Base.ARENA, 0, 256), Reference(Base.OUTPUT, 0, 0)
    fill, launch, copy = plan.steps
    assert fill == FillStep(scratch, bytes.fromhex("0000803f"), 64)
    assert isinstance(launch, LaunchStep)
    assert launch.grid == (4, 1, 1)
    assert launch.parameters == (
        Reference(Base.ARGUMENT, 0, 0),
        scratch,
        Reference(Base.WEIGHTS, 0, 256 + 32),
        struct.pack("<i", -3),
        struct.pack("<f", 0.5),
        bytes(8),
    )
    assert copy == CopyStep(out, scratch, 64)
    assert plan.results == ((Reference(Base.OUTPUT, 0, 16), ArrayType(DType.f32, (2, 4), (8, 1))),)
    assert plan.output_nbytes == (64,)
    assert (plan.arena_nbytes, plan.written, plan.alignments) == (512, frozenset(), (16,))


@pytest.mark.parametrize("size", [1, 2, 4096])
def test_symbolic_sizes(size):
    plan = build_plan(function('größe "№1"'), {"s0": size}, OFFSETS)
    assert plan.arguments == (ArrayType.contiguous(DType.bf16, (size, 4)),)
    assert plan.output_nbytes == (8 * size,)
    (launch,) = plan.steps
    assert launch.grid == (min(max((size + 1) // 2, 1), (size * -1) % 65535), 1, (size + 1) // 2)
    assert launch.parameters == (Reference(Base.OUTPUT, 0, 0), struct.pack("<q", 4 * size))


def test_a_large_program():
    program = large_program()
    offsets = {storage.name: 256 * index for index, storage in enumerate(program.storages)}
    plan = build_plan(program.targets[0].functions[0], {}, offsets)
    assert len(plan.steps) == 400
    assert plan.alignments == (16,)


# --- small bodies ---

F4 = tensor(DType.f32, 4)


def body(operations, *, arguments=(("x", F4),), outputs=(F4,), symbols=(), arena=0):
    values = [ir.Value(name, type_) for name, type_ in arguments]
    signature = ir.Signature(
        "f", tuple(ir.Argument(v.name, v.type) for v in values), tuple(ir.Argument("", t) for t in outputs), symbols
    )
    return ir.Function(signature, tuple(values), tuple(operations(*values)), arena)


def test_results_in_weights_are_copied_out():
    weight, part = ir.Value("w", tensor(DType.f32, 8)), ir.Value("part", ir.TensorType(DType.f32, (2,), (2,)))
    storage = ir.Storage("w", 32)

    def operations(_):
        return [ir.Parameter(weight, storage), ir.View(part, weight, 3), ir.Return((part,))]

    plan = build_plan(body(operations, outputs=(part.type,)), {}, {"w": 512})
    assert plan.output_nbytes == (12,)
    assert plan.steps == (CopyStep(Reference(Base.OUTPUT, 0, 0), Reference(Base.WEIGHTS, 0, 512 + 12), 12),)
    assert plan.results == ((Reference(Base.OUTPUT, 0, 0), ArrayType(DType.f32, (2,), (2,))),)


def test_results_may_be_arguments():
    rest = ir.Value("rest", tensor(DType.f32, 2))
    plan = build_plan(body(lambda x: [ir.View(rest, x, 2), ir.Return((x, rest))]), {}, {})
    assert [reference for reference, _ in plan.results] == [
        Reference(Base.ARGUMENT, 0, 0),
        Reference(Base.ARGUMENT, 0, 8),
    ]
    assert (plan.steps, plan.output_nbytes) == ((), ())


@pytest.mark.parametrize("how", ["dispatch", "copy", "fill"])
def test_written_arguments(how):
    kernel = ir.Kernel("k", (pointer(DType.f32, READ), pointer(DType.f32, WRITE, 8)))

    def operations(x, cache):
        step = {
            "dispatch": ir.Dispatch(kernel, (1, 1, 1), (x, cache)),
            "copy": ir.Copy(x, cache),
            "fill": ir.Fill(cache, 0),
        }[how]
        return [step, ir.Return(())]

    plan = build_plan(body(operations, arguments=(("x", F4), ("cache", F4)), outputs=()), {}, {})
    assert plan.written == {1}
    assert plan.alignments == ((16, 8) if how == "dispatch" else (4, 4))


def test_an_empty_grid_is_no_step():
    symbol = ir.SizeSymbol("n", 0, 0, 0, 100)
    kernel = ir.Kernel("k", (pointer(DType.f32, READ), pointer(DType.f32, WRITE)))
    type_ = tensor(DType.f32, Symbol("n"))
    out = ir.Value("out", type_)
    grid = Binary(ExprKind.FLOORDIV, Binary(ExprKind.ADD, Symbol("n"), 31), 32)

    def operations(x):
        nbytes = Binary(ExprKind.MUL, Symbol("n"), 4)
        return [
            ir.Alloc(out, ir.AllocSpace.OUTPUT, nbytes),
            ir.Dispatch(kernel, (grid, 1, 1), (x, out)),
            ir.Return((out,)),
        ]

    made = body(operations, arguments=(("x", type_),), outputs=(type_,), symbols=(symbol,))
    empty = build_plan(made, {"n": 0}, {})
    assert (empty.steps, empty.output_nbytes) == ((), (0,))
    assert len(build_plan(made, {"n": 1}, {}).steps) == 1


def failing(operations, message, *, sizes=None, **fields):
    with pytest.raises(InputError, match=message):
        build_plan(body(operations, **fields), sizes or {}, {"w": 0})


def test_sizes_that_do_not_fit_memory():
    n = Symbol("n")
    arguments, symbols = (("x", tensor(DType.f32, n)),), (ir.SizeSymbol("n", 0, 0, 1, 100),)
    view, place = ir.Value("v", F4), ir.Value("p", F4)
    common = {"arguments": arguments, "symbols": symbols, "sizes": {"n": 5}}
    failing(lambda x: [ir.View(view, x, 2)], r"'f': view .*with n = 5: %v takes bytes 8 to 24 of .* 20", **common)
    failing(lambda x: [ir.View(view, x, -1)], "takes bytes -4 to 12", **common)
    nbytes = Binary(ExprKind.MUL, n, 2)
    failing(lambda _: [ir.Alloc(place, ir.AllocSpace.OUTPUT, nbytes)], "%p takes bytes 0 to 16 of .* 10", **common)
    arena = Binary(ExprKind.MUL, n, 50)
    alloc = ir.Alloc(place, ir.AllocSpace.ARENA, 16, 256)
    failing(lambda _: [alloc], r"16 bytes at offset 256 do not fit the arena .*250 bytes", arena=arena, **common)
    odd = ir.Alloc(place, ir.AllocSpace.ARENA, 16, n)
    failing(lambda _: [odd], "at offset 5 do not fit", arena=4096, **common)


def test_sizes_that_do_not_fit_kernels():
    kernel = ir.Kernel("k", (pointer(DType.f32, READ), ir.ScalarParameter(DType.i32)))

    def launch(value, grid=1):
        return lambda x: [ir.Dispatch(kernel, (grid, 1, 1), (x, value), location="m.py:3")]

    failing(launch(2**31), r"dispatch operation \(from m\.py:3\): parameter 1: 2147483648 is out of the range of i32")
    failing(launch(1, -1), r"kernel 'k': the grid is \(-1, 1, 1\)")
    failing(launch(Binary(ExprKind.FLOORDIV, 1, 0)), "a size is divided by zero")


def test_views_less_aligned_than_a_kernel_assumes():
    kernel = ir.Kernel("k", (pointer(DType.f32, READ, 16),))
    rest = ir.Value("rest", tensor(DType.f32, 2))
    failing(
        lambda x: [ir.View(rest, x, 1), ir.Dispatch(kernel, (1, 1, 1), (rest,))],
        "%rest starts 4 bytes into the argument; the kernel relies on an alignment of 16",
    )


# --- scalars ---


@pytest.mark.parametrize(
    ("dtype", "value", "encoded"),
    [
        (DType.f16, 1.5, np.float16(1.5).tobytes()),
        (DType.bf16, 1.5, ml_dtypes.bfloat16(1.5).tobytes()),
        (DType.f32, 0.1, np.float32(0.1).tobytes()),
        (DType.f64, 0.1, struct.pack("<d", 0.1)),
        (DType.f32, 3, np.float32(3).tobytes()),
        (DType.f16, 1e6, np.float16(np.inf).tobytes()),
        (DType.f32, float("nan"), np.float32(np.nan).tobytes()),
        (DType.i1, 1, b"\1"),
        (DType.i8, -128, b"\x80"),
        (DType.ui8, 255, b"\xff"),
        (DType.i32, -1, b"\xff" * 4),
        (DType.ui64, 2**64 - 1, b"\xff" * 8),
    ],
)
@pytest.mark.filterwarnings("error")
def test_encode_scalar(dtype, value, encoded):
    assert encode_scalar(dtype, value) == encoded


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(DType.i8, 128), (DType.i1, 2), (DType.ui32, -1), (DType.i64, 2**63), (DType.i32, 1.0), (DType.complex64, 1)],
)
def test_scalars_that_do_not_fit(dtype, value):
    with pytest.raises(InputError, match=dtype.name):
        encode_scalar(dtype, value)
