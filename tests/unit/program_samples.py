"""Programs that several tests share: a small one that has every operation, and a large one for measuring."""

from __future__ import annotations

import dataclasses
import struct

from coilpack.runtime.dtypes import DType
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Binary, Expr, ExprKind, Symbol

READ, WRITE = ir.Access.READ, ir.Access.WRITE


def tensor(dtype: DType, *shape: Expr) -> ir.TensorType:
    return ir.TensorType.contiguous(dtype, shape)


def pointer(dtype: DType, access: ir.Access, alignment: int = 16) -> ir.PointerParameter:
    return ir.PointerParameter(dtype, access, alignment)


def small_program() -> ir.Program:
    """Every operation, operand kind and expression kind; three functions, two targets, symbols, Unicode names.

    A kernel that says what it was made of has candidates in one dispatch.
    """
    s0 = Symbol("s0")
    half = Binary(ExprKind.FLOORDIV, Binary(ExprKind.ADD, s0, 1), 2)
    grid = Binary(
        ExprKind.MIN, Binary(ExprKind.MAX, half, 1), Binary(ExprKind.MOD, Binary(ExprKind.MUL, s0, -1), 65535)
    )
    strided = ir.TensorType(DType.f32, (2, 4), (8, 1))
    dynamic = tensor(DType.bf16, s0, 4)
    main = ir.Signature("main", (ir.Argument("x", tensor(DType.f32, 4, 4)),), (ir.Argument("", strided),))
    other = ir.Signature(
        'größe "№1"',
        (ir.Argument("tokens", dynamic),),
        (ir.Argument("", dynamic),),
        (ir.SizeSymbol("s0", 0, 0, 1, 4096),),
    )
    step = step_signature()
    storages = (ir.Storage("layer.0/weight", 256), ir.Storage("bias", 64))
    globals_ = (ir.Global("cache", 4096), ir.Global("counter №1", 64, storages[1]))
    first = ir.Kernel(
        "main_dispatch_0_fused$add",
        (
            pointer(DType.f32, READ),
            pointer(DType.f32, READ | WRITE),
            pointer(DType.f32, READ, 4),
            ir.ScalarParameter(DType.i32),
            ir.ScalarParameter(DType.f32),
            pointer(DType.i8, READ, 1),
        ),
        source="3f0c9d17a2b4e586",
        configuration="XBLOCK=128 num_warps=4",
    )
    others = tuple(
        dataclasses.replace(first, export_name=f"{first.export_name}.c{index}", configuration=configuration)
        for index, configuration in enumerate(("XBLOCK=256 num_warps=8", ""), 1)
    )
    second = ir.Kernel("größe_dispatch_0", (pointer(DType.bf16, WRITE, 2), ir.ScalarParameter(DType.i64)))
    third = ir.Kernel(
        "step_dispatch_0",
        (pointer(DType.i64, READ, 8), pointer(DType.f32, READ | WRITE), ir.ScalarParameter(DType.i32)),
        cooperative=True,
        grid=(Binary(ExprKind.FLOORDIV, Binary(ExprKind.ADD, Symbol("p2"), 127), 128), 1, 1),
    )
    images = {name: (ir.Image(ir.ImageKind.PTX, f"executables/{name}.ptx.cda1"),) for name in ("sm_80", "sm_90a")}
    images["sm_80"] += (ir.Image(ir.ImageKind.CUBIN, "executables/sm_80.cubin.cda1"),)

    def body() -> tuple[ir.Function, ...]:
        x = ir.Value("x", main.inputs[0].type)
        weight, bias = ir.Value("weight", tensor(DType.f32, 64)), ir.Value("bias", tensor(DType.f32, 8))
        scratch, out = ir.Value("scratch", tensor(DType.f32, 4, 4)), ir.Value("out", tensor(DType.f32, 4, 4))
        rows = ir.Value("rows", strided)
        operations = (
            ir.Parameter(weight, storages[0]),
            ir.Parameter(bias, storages[1], 32, location="model.py:7"),
            ir.Alloc(scratch, ir.AllocSpace.ARENA, 64, 256),
            ir.Alloc(out, ir.AllocSpace.OUTPUT, 64),
            ir.Fill(scratch, 0x3F800000),
            ir.Dispatch(
                first,
                (4, 1, 1),
                (x, scratch, bias, -3, 0.5, None),
                tuple(ir.Alternative(kernel, (index, 1, 1)) for index, kernel in enumerate(others, 1)),
                location="model.py:8",
            ),
            ir.Copy(scratch, out),
            ir.View(rows, out, 4, location='a "b"\\c.py:9'),
            ir.Return((rows,)),
        )
        tokens, result = ir.Value("arg0", dynamic), ir.Value("0", dynamic)
        nbytes = Binary(ExprKind.MUL, s0, 8)
        dynamic_operations = (
            ir.Alloc(result, ir.AllocSpace.OUTPUT, nbytes),
            ir.Dispatch(second, (grid, 1, half), (result, Binary(ExprKind.MUL, s0, 4))),
            ir.Return((result,)),
        )
        made = ir.Function(main, (x,), operations, 512), ir.Function(other, (tokens,), dynamic_operations)
        return *made, step_function(step, third, globals_)

    targets = tuple(ir.Target(name, images[name], (first, second, third, *others), body()) for name in images)
    return ir.Program("coilpack tests", (main, other, step), storages, targets, globals_)


def step_signature() -> ir.Signature:
    """Random, with a dimension that defines its symbol through a sum, an integer in and one out, and every guard."""
    rows, position = Symbol("rows"), Symbol("position")
    doubled = Binary(ExprKind.ADD, Binary(ExprKind.MUL, 2, rows), 1)
    inputs = (
        ir.Argument("x", tensor(DType.f32, doubled, 4)),
        ir.Argument("position", ir.INTEGER_TYPE, position),
    )
    following = Binary(ExprKind.ADD, position, 1)
    outputs = (ir.Argument("", ir.INTEGER_TYPE, following), ir.Argument("", tensor(DType.f32, doubled, 4)))
    symbols = (ir.SizeSymbol("rows", 0, 0, 0, 100), ir.SizeSymbol("position", 1, None, -1, 2**40))
    guards = (
        ir.Guard(ir.GuardKind.LESS_EQUAL, Binary(ExprKind.MUL, rows, position), 2**31 - 1),
        ir.Guard(ir.GuardKind.NOT_EQUAL, position, 7),
        ir.Guard(ir.GuardKind.EQUAL, Binary(ExprKind.MOD, rows, 2), 0),
    )
    return ir.Signature("step", inputs, outputs, symbols, guards, random=True)


def step_function(signature: ir.Signature, kernel: ir.Kernel, globals_: tuple[ir.Global, ...]) -> ir.Function:
    """State, seeds and library products."""
    x, position = (ir.Value(argument.name, argument.type) for argument in signature.inputs)
    cache, counter = ir.Value("cache", tensor(DType.f32, 4, 4)), ir.Value("counter", tensor(DType.i64, 2))
    seeds, out = ir.Value("seeds", tensor(DType.i64, 2)), ir.Value("out", x.type)
    bias = ir.Value("bias", ir.TensorType(DType.f32, x.type.shape, (0, 1)))
    operations = (
        ir.GetGlobal(cache, globals_[0], 64),
        ir.GetGlobal(counter, globals_[1], location="model.py:3"),
        ir.RandomSeeds(seeds, 4),
        ir.Fill(counter, 1),
        ir.Dispatch(kernel, (1, 1, 1), (seeds, cache, Symbol("position"))),
        ir.Alloc(out, ir.AllocSpace.OUTPUT, Binary(ExprKind.MUL, x.type.shape[0], 16)),
        ir.Matmul(out, x, cache, tf32=True),
        ir.View(bias, cache),
        ir.Matmul(out, x, cache, bias, -0.5, 1e-5, location="model.py:4"),
        ir.Return((out,)),
    )
    return ir.Function(signature, (x, position), operations)


def one_target(program: ir.Program) -> ir.Program:
    """The program with its first target and image only."""
    first = program.targets[0]
    return dataclasses.replace(program, targets=(dataclasses.replace(first, images=first.images[:1]),))


def large_program(kernels: int = 200, dispatches: int = 400) -> ir.Program:
    """The shape of a compiled transformer: each dispatch reads two values and a weight, and writes a new value."""
    kind = tensor(DType.f16, 16, 384)
    signature = ir.Signature("main", (ir.Argument("x", kind),), (ir.Argument("", kind),))
    made = tuple(
        ir.Kernel(
            f"main_dispatch_{index}_triton_per_fused_native_layer_norm_{index}",
            (
                pointer(DType.f16, READ),
                pointer(DType.f16, READ),
                pointer(DType.f16, READ),
                pointer(DType.f16, WRITE),
                ir.ScalarParameter(DType.i32),
                ir.ScalarParameter(DType.i32),
            ),
        )
        for index in range(kernels)
    )
    storages = tuple(ir.Storage(f"encoder.layer.{index}.output.dense.weight", 384 * 384 * 2) for index in range(100))
    value = ir.Value("x", kind)
    previous, operations = value, []
    for index in range(dispatches):
        weight = ir.Value(f"weight_{index}", tensor(DType.f16, 384, 384))
        result, view = ir.Value(f"buf{index}", kind), ir.Value(f"reinterpret_tensor_{index}", tensor(DType.f16, 6144))
        location = f"transformers/models/bert/modeling_bert.py:{index}"
        operands = (previous, value, weight, result, 6144, 384)
        space = ir.AllocSpace.OUTPUT if index == dispatches - 1 else ir.AllocSpace.ARENA
        offset = 0 if space is ir.AllocSpace.OUTPUT else index % 7 * 12288
        operations += [
            ir.Parameter(weight, storages[index % len(storages)]),
            ir.Alloc(result, space, 12288, offset, location=location),
            ir.Dispatch(made[index % kernels], (6, 1, 1), operands, location=location),
            ir.View(view, result),
        ]
        previous = result
    body = ir.Function(signature, (value,), (*operations, ir.Return((previous,))), 7 * 12288)
    image = ir.Image(ir.ImageKind.PTX, "executables/sm_80.ptx.cda1")
    return ir.Program("coilpack tests", (signature,), storages, (ir.Target("sm_80", (image,), made, (body,)),))


def bits(number: float) -> int:
    """The bits of a double."""
    pattern: int = struct.unpack("<Q", struct.pack("<d", number))[0]
    return pattern
