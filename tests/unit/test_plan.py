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
from coilpack.runtime.plan import build_plan, encode_scalar
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, ExprKind, Symbol
from coilpack.runtime.steps import (
    Base,
    CopyStep,
    FillStep,
    LaunchChoice,
    LaunchStep,
    MatmulStep,
    Range,
    Reference,
    SeedRow,
)

OFFSETS = {"layer.0/weight": 0, "bias": 256}


def function(name="main", target="sm_80"):
    (found,) = [t for t in small_program().targets if t.name == target]
    return found.function(name)


def test_every_operation():
    plan = build_plan(function(), {}, OFFSETS)
    scratch, out = Reference(Base.ARENA, 0, 256), Reference(Base.OUTPUT, 0, 0)
    fill, launch, copy = plan.steps
    arena = Range(Base.ARENA, 0, 256, 320)
    assert fill == FillStep(scratch, bytes.fromhex("0000803f"), 64, (arena,))
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
    assert launch.reads == (Range(Base.ARGUMENT, 0, 0, 64), arena, Range(Base.WEIGHTS, 0, 256, 320))
    assert launch.writes == (arena,)
    assert copy == CopyStep(out, scratch, 64, (arena,), (Range(Base.OUTPUT, 0, 0, 64),))
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
    ranges = (Range(Base.WEIGHTS, 0, 512, 544),), (Range(Base.OUTPUT, 0, 0, 12),)
    assert plan.steps == (CopyStep(Reference(Base.OUTPUT, 0, 0), Reference(Base.WEIGHTS, 0, 512 + 12), 12, *ranges),)
    assert plan.results == ((Reference(Base.OUTPUT, 0, 0), ArrayType(DType.f32, (2,), (2,))),)


@pytest.mark.parametrize("shared", [Base.GLOBALS, Base.ARENA, Base.SEEDS])
def test_results_in_memory_that_calls_share_are_copied_out(shared):
    value = ir.Value("v", tensor(DType.i64, 4))
    define = {
        Base.GLOBALS: ir.GetGlobal(value, ir.Global("step", 64), 32),
        Base.ARENA: ir.Alloc(value, ir.AllocSpace.ARENA, 32, 0),
        Base.SEEDS: ir.RandomSeeds(value),
    }[shared]
    made = body(lambda _: [define, ir.Return((value,))], outputs=(value.type,), arena=32)
    plan = build_plan(made, {}, {}, {"step": 256})
    (copy,) = plan.steps
    assert copy.source == Reference(shared, 0, 256 + 32 if shared is Base.GLOBALS else 0)
    assert (copy.target, copy.nbytes) == (Reference(Base.OUTPUT, 0, 0), 32)
    assert plan.results == ((Reference(Base.OUTPUT, 0, 0), ArrayType(DType.i64, (4,), (1,))),)


def test_globals_are_written_in_place():
    cache, rest = ir.Value("cache", tensor(DType.f32, 8)), ir.Value("rest", F4)
    operations = [
        ir.GetGlobal(cache, ir.Global("cache", 32)),
        ir.View(rest, cache, 4),
        ir.Fill(rest, 0),
        ir.Return(()),
    ]
    plan = build_plan(body(lambda _: operations, outputs=()), {}, {}, {"cache": 512})
    whole = Range(Base.GLOBALS, 0, 512, 544)
    assert plan.steps == (FillStep(Reference(Base.GLOBALS, 0, 528), bytes(4), 16, (whole,)),)
    assert plan.written == frozenset()


def test_rows_of_seeds():
    first, second = ir.Value("a", tensor(DType.i64, 3)), ir.Value("b", tensor(DType.i64, Symbol("n")))
    kernel = ir.Kernel("k", (pointer(DType.i64, READ), pointer(DType.i64, READ), pointer(DType.f32, WRITE)))

    def operations(x):
        seeds = [ir.RandomSeeds(first), ir.RandomSeeds(second, 4)]
        return [*seeds, ir.Dispatch(kernel, (1, 1, 1), (first, second, x)), ir.Return(())]

    symbols = (ir.SizeSymbol("n", 0, 0, 0, 64),)
    made = body(operations, arguments=(("x", tensor(DType.f32, Symbol("n"))),), outputs=(), symbols=symbols)
    plan = build_plan(made, {"n": 40}, {})
    assert plan.seeds == (SeedRow(0, 3, 0), SeedRow(256, 40, 4))
    assert plan.seeds_nbytes == 256 + 512
    (launch,) = plan.steps
    assert launch.parameters[:2] == (Reference(Base.SEEDS, 0, 0), Reference(Base.SEEDS, 0, 256))


def test_integer_arguments_have_no_memory():
    n = ir.Value("n", ir.INTEGER_TYPE)
    signature = ir.Signature(
        "f",
        (ir.Argument("n", ir.INTEGER_TYPE, Symbol("n")), ir.Argument("x", F4)),
        (),
        (ir.SizeSymbol("n", 0, None, 0, 64),),
    )
    kernel = ir.Kernel("k", (pointer(DType.f32, WRITE), ir.ScalarParameter(DType.i32)))
    x = ir.Value("x", F4)
    operations = (ir.Dispatch(kernel, (1, 1, 1), (x, Symbol("n"))), ir.Return(()))
    plan = build_plan(ir.Function(signature, (n, x), operations), {"n": 7}, {})
    (launch,) = plan.steps
    assert launch.parameters == (Reference(Base.ARGUMENT, 1, 0), struct.pack("<i", 7))
    assert plan.written == {1}


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
    parts = Binary(ExprKind.FLOORDIV, Binary(ExprKind.ADD, Symbol("n"), 65534), 65535)
    grid = (1, Binary(ExprKind.FLOORDIV, Symbol("n"), parts), parts)  # a long axis over two: 0 // 0 where it is empty

    def operations(x):
        nbytes = Binary(ExprKind.MUL, Symbol("n"), 4)
        return [
            ir.Alloc(out, ir.AllocSpace.OUTPUT, nbytes),
            ir.Dispatch(kernel, grid, (x, out)),
            ir.Return((out,)),
        ]

    made = body(operations, arguments=(("x", type_),), outputs=(type_,), symbols=(symbol,))
    empty = build_plan(made, {"n": 0}, {})
    assert (empty.steps, empty.output_nbytes) == ((), (0,))
    assert len(build_plan(made, {"n": 1}, {}).steps) == 1


def test_candidates_are_stated_where_they_are_asked_for():
    assert build_plan(function(), {}, OFFSETS).steps[1].alternatives == ()
    launch = build_plan(function(), {}, OFFSETS, candidates=True).steps[1]
    assert [(c.kernel.export_name, c.grid) for c in launch.alternatives] == [
        ("main_dispatch_0_fused$add.c1", (1, 1, 1)),
        ("main_dispatch_0_fused$add.c2", (2, 1, 1)),
    ]


def test_a_candidate_launches_something_where_its_kernel_does():
    n = Symbol("n")
    kernel = ir.Kernel("k", (pointer(DType.f32, READ, 4),))
    other = ir.Kernel("other", kernel.parameters)
    type_, symbol = tensor(DType.f32, n), ir.SizeSymbol("n", 0, 0, 0, 100)
    halves = ir.Alternative(other, (Binary(ExprKind.FLOORDIV, n, 2), 1, 1))
    made = body(
        lambda x: [ir.Dispatch(kernel, (n, 1, 1), (x,), (halves,)), ir.Return(())],
        arguments=(("x", type_),),
        outputs=(),
        symbols=(symbol,),
    )
    (launch,) = build_plan(made, {"n": 5}, {}, candidates=True).steps
    assert launch.alternatives == (LaunchChoice(other, (2, 1, 1)),)
    assert build_plan(made, {"n": 0}, {}, candidates=True).steps == ()
    assert len(build_plan(made, {"n": 1}, {}).steps) == 1
    with pytest.raises(InputError, match="n = 1: alternative kernel 'other': the grid is empty, and that of"):
        build_plan(made, {"n": 1}, {}, candidates=True)


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


def test_sizes_beyond_64_bits():
    n, huge = Symbol("n"), ir.Value("h", tensor(DType.f32, Symbol("n"), Symbol("n")))
    arguments, symbols = (("x", ir.INTEGER_TYPE),), (ir.SizeSymbol("n", 0, None, 0, 2**62),)
    common = {"arguments": arguments, "symbols": symbols, "sizes": {"n": 2**62}}
    nbytes, place = Binary(ExprKind.MUL, n, 4), ir.Value("p", tensor(DType.i8, 1))
    failing(lambda _: [ir.Alloc(place, ir.AllocSpace.OUTPUT, nbytes)], f"it takes {2**64} bytes; the limit", **common)
    failing(lambda _: [], f"'f': arena .* it takes {2**64} bytes; the limit is {2**63 - 1}", arena=nbytes, **common)
    failing(lambda _: [ir.Alloc(huge, ir.AllocSpace.OUTPUT, n)], f"%h reaches over {2**126} bytes", **common)


def test_strides_that_would_lead_before_the_start():
    type_ = ir.TensorType(DType.f32, (Symbol("n"),), (Binary(ExprKind.ADD, 2, Binary(ExprKind.MUL, Symbol("n"), -1)),))
    symbol = ir.SizeSymbol("n", 0, 0, 0, 9)

    def plan(n):
        return build_plan(body(lambda _: [ir.Return(())], arguments=(("x", type_),), symbols=(symbol,)), {"n": n}, {})

    assert [plan(n).arguments[0].strides for n in (0, 1, 2)] == [(2,), (1,), (0,)]
    with pytest.raises(InputError, match=r"with n = 3: %x has the strides \(-1,\); they must not be negative"):
        plan(3)


def test_copies_that_overlap():
    n, half = Symbol("n"), tensor(DType.f32, 2)
    first, second = ir.Value("a", half), ir.Value("b", half)
    arguments, symbols = (("x", F4), ("n", ir.INTEGER_TYPE)), (ir.SizeSymbol("n", 1, None, 0, 2),)

    def operations(x, _):
        return [ir.View(first, x), ir.View(second, x, n), ir.Copy(first, second), ir.Return(())]

    made = body(operations, arguments=arguments, outputs=(), symbols=symbols)
    assert [len(build_plan(made, {"n": n}, {}).steps) for n in (0, 2)] == [0, 1]
    failing(operations, "%a and %b overlap", arguments=arguments, outputs=(), symbols=symbols, sizes={"n": 1})


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


# --- matrix products ---


def strided(dtype, shape, strides):
    return ir.TensorType(dtype, shape, strides)


def product(target, lhs, rhs, addend=None, **fields):
    """A function of two or three arguments that returns their product."""
    out = ir.Value("out", target)
    types = [t for t in (lhs, rhs, addend) if t is not None]
    arguments = tuple(zip("abc", types, strict=False))

    def operations(*values):
        alloc = ir.Alloc(out, ir.AllocSpace.OUTPUT, 1 << 20)
        return [alloc, ir.Matmul(out, *values, **fields, location="m.py:9"), ir.Return((out,))]

    return body(operations, arguments=arguments, outputs=(target,))


def test_a_product():
    made = product(tensor(DType.f16, 4, 6), tensor(DType.f16, 4, 8), strided(DType.f16, (8, 6), (1, 8)), alpha=0.5)
    plan = build_plan(made, {}, {})
    (step,) = plan.steps
    assert isinstance(step, MatmulStep)
    assert plan.alignments == (16, 16)
    assert step.alignments == (256, 16, 16)
    assert step.operands == tuple(
        Reference(b, i, 0) for b, i in ((Base.OUTPUT, 0), (Base.ARGUMENT, 0), (Base.ARGUMENT, 1))
    )
    assert (len(step.reads), step.writes[0].base) == (2, Base.OUTPUT)
    found = step.product
    assert (found.batch, found.m, found.n, found.k, found.alpha) == (1, 4, 6, 8, 0.5)
    assert (found.lhs.strides, found.rhs.strides) == ((0, 8, 1), (0, 1, 8))


@pytest.mark.parametrize(
    ("strides", "beta", "is_bias"), [((6, 1), 0.5, False), ((8, 1), 1.0, False), ((0, 1), 1.0, True)]
)
def test_what_a_product_adds(strides, beta, is_bias):
    addend = strided(DType.f32, (4, 6), strides)
    made = product(tensor(DType.f32, 4, 6), tensor(DType.f32, 4, 8), tensor(DType.f32, 8, 6), addend, beta=beta)
    (step,) = build_plan(made, {}, {}).steps
    assert (step.product.is_bias, step.product.beta, len(step.operands)) == (is_bias, beta, 4)


def test_an_addend_that_counts_for_nothing():
    made = product(tensor(DType.f32, 4, 6), tensor(DType.f32, 4, 8), tensor(DType.f32, 8, 6), tensor(DType.f32, 4, 6))
    (step,) = build_plan(made, {}, {}).steps
    assert (step.product.addend, len(step.operands)) == (None, 3)


def test_products_of_nothing():
    empty = product(tensor(DType.f32, 4, 0), tensor(DType.f32, 4, 8), tensor(DType.f32, 8, 0))
    assert build_plan(empty, {}, {}).steps == ()
    (step,) = build_plan(
        product(tensor(DType.f32, 4, 6), tensor(DType.f32, 4, 0), tensor(DType.f32, 0, 6)), {}, {}
    ).steps
    assert isinstance(step, FillStep)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ((tensor(DType.f32, 4, 6), tensor(DType.f32, 4, 8), tensor(DType.f32, 7, 6)), r"\(4, 8\) times \(7, 6\)"),
        ((tensor(DType.i32, 4, 6), tensor(DType.f32, 4, 8), tensor(DType.f32, 8, 6)), "the target is of type i32"),
        ((tensor(DType.f16, 4, 6), tensor(DType.f32, 4, 8), tensor(DType.f32, 8, 6)), "f32 times f32 to f16"),
        ((tensor(DType.f32, 4, 6), tensor(DType.f64, 4, 8), tensor(DType.f64, 8, 6)), "f64 times f64 to f32"),
        (
            (tensor(DType.f32, 4, 6), strided(DType.f32, (4, 8), (16, 2)), tensor(DType.f32, 8, 6)),
            "the lhs has the strides",
        ),
        (
            (*(tensor(DType.f32, *s) for s in ((4, 6), (4, 8), (8, 6))), strided(DType.f32, (4, 6), (1, 4))),
            "laid out as the target",
        ),
        (
            (*(tensor(DType.f32, *s) for s in ((4, 6), (4, 8), (8, 6))), strided(DType.f32, (4, 6), (1, 0))),
            "the addend has the strides",
        ),
    ],
)
def test_products_that_are_refused(types, message):
    with pytest.raises(InputError, match=rf"matmul operation \(from m.py:9\): .*{message}"):
        build_plan(product(*types, beta=1.0), {}, {})


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
