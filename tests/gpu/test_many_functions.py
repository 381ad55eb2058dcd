"""A package of very many functions: what opening it takes, and what each function adds to the device's memory."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from program_samples import tensor
from runtime_samples import SCALE, STORAGES, MemoryPackage, executable

from coilpack.runtime.devices.cuda_driver import call
from coilpack.runtime.dtypes import DType
from coilpack.runtime.program import ir
from coilpack.runtime.program.verify import verify_program
from coilpack.runtime.session import Program

LAUNCHES = 60


def chain(index: int) -> ir.Function:
    """chain_<index>(x) = x, negated again and again, on arrays that are larger from function to function"""
    kind = tensor(DType.f32, 1024 * (1 + index))
    (nbytes,) = (4 * size for size in kind.shape if isinstance(size, int))
    grid, x = (32 * (1 + index), 1, 1), ir.Value("x", kind)
    signature = ir.Signature(f"chain_{index}", (ir.Argument("x", kind),), (ir.Argument("", kind),))
    buffers = [ir.Value(f"buffer{number}", kind) for number in range(2)]
    out = ir.Value("out", kind)
    operations = [ir.Alloc(b, ir.AllocSpace.ARENA, nbytes, number * nbytes) for number, b in enumerate(buffers)]
    operations += [ir.Alloc(out, ir.AllocSpace.OUTPUT, nbytes)]
    values = [x, *(buffers[number % 2] for number in range(LAUNCHES - 1)), out]
    for source, target in itertools.pairwise(values):
        operations.append(ir.Dispatch(SCALE, grid, (source, target, -1.0, kind.shape[0])))
    return ir.Function(signature, (x,), (*operations, ir.Return((out,))), 2 * nbytes)


class ManyPackage(MemoryPackage):
    """What `Program` asks of a package, without a file."""

    def __init__(self, count: int) -> None:
        functions = tuple(chain(index) for index in range(count))
        image = ir.Image(ir.ImageKind.PTX, "executables/sm_75.ptx.cda1")
        target = ir.Target("sm_75", (image,), (SCALE,), functions)
        self.program = ir.Program("coilpack tests", tuple(f.signature for f in functions), STORAGES, (target,))
        self.images = {image.entry: executable("sm_75", "8.0")}
        verify_program(self.program)


def used(device):
    """Bytes of device memory in use, by whomever."""
    device.synchronize(1)
    device.trim()
    with device.activate():
        free, total = call("cuMemGetInfo", "test")
    return int(total) - int(free)


def run_all(program, functions):
    for name in functions:
        (size,) = program.signature(name).inputs[0].type.shape
        x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
        for _ in range(3):  # launched, made into a graph, replayed
            result = program(x, function=name)
        np.testing.assert_array_equal(result.numpy(), x)


def test_each_function_runs(any_device):
    count = 3 if any_device.name == "emulator" else 108
    with Program(ManyPackage(count), any_device, "m.coil") as program:
        run_all(program, program.functions)
        run_all(program, reversed(program.functions))
        with program.new_context() as context:
            x = np.ones(1024, np.float32)
            np.testing.assert_array_equal(context(x, function="chain_0").numpy(), x)


@pytest.mark.gpu
def test_what_each_function_costs(device):
    start = time.perf_counter()
    with Program(ManyPackage(108), device, "m.coil") as program:
        assert time.perf_counter() - start < 10
        run_all(program, program.functions[:8])
        before = used(device)
        run_all(program, program.functions[8:])
        assert used(device) - before < 100 * 8 * 2**20
