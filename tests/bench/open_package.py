"""What opening and calling a package of 200 kernels costs besides the device's own work.

    python tests/bench/open_package.py [--image ptx|cubin|both] [--functions 108] [--device cuda:0] [--json out.json]

The package is made anew: 200 GEMM kernels with images of their own, 400 dispatches of them, small weights. Without
`--device`, kernels do nothing on a device in host memory. Times are taken in one process (median, and the lowest, which
other work on the machine disturbs least), after a first opening that is reported apart because it also imports modules.
The device's own work, which is taken off, is loading modules and looking up kernels, allocating memory and uploading
weights.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coilpack import runtime
from coilpack.runtime.devices.base import Device
from coilpack.runtime.dtypes import DType
from coilpack.runtime.executable import BindingFlags, Executable, Export, read_executable, write_executable
from coilpack.runtime.package import Package, StorageData, write_package
from coilpack.runtime.plan import build_plan
from coilpack.runtime.program import ir
from coilpack.runtime.program.decode import decode_program

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "unit"))
from host_device import HostDevice  # noqa: E402
from program_samples import READ, WRITE, pointer, tensor  # noqa: E402

KERNELS, DISPATCHES, STORAGES = 200, 400, 100
KERNEL_NAME = "main_dispatch_000_triton_tem_fused_addmm_t_view_000"
BLOCK, SHARED_BYTES = (64, 1, 1), 49152
ROWS, COLUMNS = 16, 384
NBYTES = ROWS * COLUMNS * 2
OPEN = "open, besides device work"
LIMIT_MS = 50  # of opening, besides the device's work


# --- the package ---


def kernel_name(index: int) -> str:
    """The name of a kernel, as long as every other: cubins refer to positions in their tables of names."""
    return KERNEL_NAME.replace("000", f"{index:03}")


def executable(kind: str) -> bytes:
    """Kernels that differ in their names."""
    image = (HERE / "data" / f"gemm.{kind}").read_bytes()
    names = [kernel_name(index) for index in range(KERNELS)]
    images = tuple(image.replace(KERNEL_NAME.encode(), name.encode()) for name in names)
    flags = (BindingFlags.READ_ONLY,) * 3 + (BindingFlags(0),)
    exports = tuple(
        Export(index, name, f"{name}$", BLOCK, index, SHARED_BYTES, binding_flags=flags)
        for index, name in enumerate(names)
    )
    return write_executable(Executable(images, exports))


def program(kinds: list[str], functions: int = 1) -> ir.Program:
    """The shape of a compiled transformer: each dispatch reads two values and a weight, and writes a new value.

    Further functions are the first one by other names.
    """
    kind = tensor(DType.f16, ROWS, COLUMNS)
    signature = ir.Signature("main", (ir.Argument("x", kind), ir.Argument("y", kind)), (ir.Argument("", kind),))
    parameters = (*(pointer(DType.f16, READ) for _ in range(3)), pointer(DType.f16, WRITE))
    kernels = tuple(ir.Kernel(f"{kernel_name(index)}$", parameters) for index in range(KERNELS))
    storages = tuple(ir.Storage(f"encoder.layer.{index}.attention.weight", NBYTES) for index in range(STORAGES))
    x, y = (ir.Value(argument.name, kind) for argument in signature.inputs)
    previous, operations = y, []
    for index in range(DISPATCHES):
        weight, result = ir.Value(f"weight_{index}", kind), ir.Value(f"buf{index}", kind)
        view = ir.Value(f"reinterpret_tensor_{index}", tensor(DType.f16, ROWS * COLUMNS))
        location = f"transformers/models/bert/modeling_bert.py:{index}"
        last = index == DISPATCHES - 1
        space, offset = (ir.AllocSpace.OUTPUT, 0) if last else (ir.AllocSpace.ARENA, index % 7 * NBYTES)
        operands = (previous, x, weight, result)
        operations += [
            ir.Parameter(weight, storages[index % STORAGES]),
            ir.Alloc(result, space, NBYTES, offset, location=location),
            ir.Dispatch(kernels[index % KERNELS], (6, 1, 1), operands, location=location),
            ir.View(view, result),
        ]
        previous = result
    names = ["main", *(f"bucket_{index}" for index in range(1, functions))]
    signatures = tuple(dataclasses.replace(signature, name=name) for name in names)
    bodies = tuple(
        ir.Function(named, (x, y), (*operations, ir.Return((previous,))), 7 * NBYTES) for named in signatures
    )
    images = tuple(ir.Image(ir.ImageKind[kind.upper()], entry(kind)) for kind in kinds)
    return ir.Program("coilpack benchmark", signatures, storages, (ir.Target("sm_80", images, kernels, bodies),))


def entry(kind: str) -> str:
    """The package's entry of an executable."""
    return f"executables/sm_80.{kind}.cda1"


def make_package(path: Path, kinds: list[str], functions: int = 1) -> None:
    """Writes the package."""
    made = program(kinds, functions)
    weights = [
        StorageData(storage.name, DType.f16, (ROWS, COLUMNS), lambda: [bytes(NBYTES)]) for storage in made.storages
    ]
    write_package(path, made, {entry(kind): executable(kind) for kind in kinds}, weights)


# --- the device ---


class QuietLaunch:
    """A launch that does nothing: what is left is the cost of everything around it."""

    def set_parameter(self, index: int, value: bytes) -> None:
        """Does nothing."""

    def run(self, stream: int) -> None:
        """Does nothing."""


class QuietGraph(QuietLaunch):
    """A graph that does nothing."""

    def update(self, index: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class QuietDevice(HostDevice):
    """Host memory, and launches and graphs that do nothing."""

    def prepare(self, *_: object) -> QuietLaunch:
        """Checks nothing and prepares nothing."""
        return QuietLaunch()

    def build_graph(self, *_: object) -> QuietGraph:
        """Builds nothing."""
        return QuietGraph()


class Stopwatch:
    """Passes everything on to another object, and adds up the time that some of its methods take."""

    def __init__(self, target: object, methods: frozenset[str], total: list[float]) -> None:
        self._target, self._methods, self.total = target, methods, total

    def __getattr__(self, name: str) -> object:
        found = getattr(self._target, name)
        if name not in self._methods:
            return found

        def timed(*arguments: object) -> object:
            begin = time.perf_counter()
            result = found(*arguments)
            if name == "load_module":
                result = Stopwatch(result, frozenset({"kernel", "close"}), self.total)
            self.total[0] += time.perf_counter() - begin
            return result

        setattr(self, name, timed)
        return timed


DEVICE_WORK = frozenset({"load_module", "allocate", "write", "synchronize", "trim"})


# --- measuring ---


class Times(NamedTuple):
    """Milliseconds, or microseconds where the name says so."""

    median: float
    lowest: float

    @classmethod
    def of(cls, times: list[float]) -> Times:
        """Those of some repeats."""
        return cls(statistics.median(times), min(times))


def times(call: Callable[[], object], repeats: int = 15, scale: float = 1e3) -> Times:
    """Times a call; `scale` converts from seconds."""
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        taken.append((time.perf_counter() - begin) * scale)
    return Times.of(taken)


def open_ms(path: Path, device: Device) -> tuple[float, float]:
    """Milliseconds that opening took: besides the device's work, and that work."""
    timed = Stopwatch(device, DEVICE_WORK, [0.0])
    begin = time.perf_counter()
    opened = runtime.open(path, device=timed)
    seconds = time.perf_counter() - begin
    work = timed.total[0]
    opened.close()
    return (seconds - work) * 1e3, work * 1e3


def measure(path: Path, kind: str, device: Device) -> dict[str, Times]:
    """All times of one package."""
    report = {"first open, besides device work": Times.of([open_ms(path, device)[0]])}
    opened = [open_ms(path, device) for _ in range(15)]
    report[OPEN] = Times.of([ours for ours, _ in opened])
    report["device work of open"] = Times.of([work for _, work in opened])
    report["  Package.open"] = times(lambda: Package.open(path).close())
    with closing(Package.open(path)) as package:
        data = bytes(package._data[slice(*_place(package, "program.fb"))])
        report["    decode_program"] = times(lambda: decode_program(data))
        image = package.image(entry(kind))
        report["  read_executable"] = times(lambda: read_executable(image))
        function, offsets = package.program.targets[0].functions[0], {s.name: 0 for s in package.program.storages}
        report["  build_plan"] = times(lambda: build_plan(function, {}, offsets))
    return report | measure_call(path, device)


def _place(package: Package, name: str) -> tuple[int, int]:
    found = package._entries[name]
    return found.start, found.start + found.nbytes


def measure_call(path: Path, device: Device) -> dict[str, Times]:
    """A call of the program, and what of it queues the launches."""
    with runtime.open(path, device=device) as opened:
        arguments = [runtime.to_device(np.zeros((ROWS, COLUMNS), np.float16), opened.device) for _ in range(2)]
        report = {"call (us)": times(lambda: opened(*arguments), 500, 1e6)}
        executor, result = next(iter(opened._default._executors.values())), opened(*arguments)
        places = [argument.address for argument in arguments], [result.address], opened.device.default_stream
        report["  its launches (us)"] = times(lambda: executor.run(*places), 500, 1e6)
        opened.device.synchronize(opened.device.default_stream)
    return report


def main() -> None:
    """Measures each kind of image and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", choices=("ptx", "cubin", "both"), default="both")
    parser.add_argument("--device", help="run on a device, as cuda:0")
    parser.add_argument("--functions", type=int, default=1, help="how many; the limit is for each")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = runtime.resolve_device(arguments.device) if arguments.device else QuietDevice()
    report = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("ptx", "cubin") if arguments.image == "both" else (arguments.image,):
            path = Path(folder, f"{kind}.coil")
            make_package(path, [kind], arguments.functions)
            report[kind] = measure(path, kind, device)
    for kind, rows in report.items():
        sys.stdout.write(f"{f'{kind}, {KERNELS} kernels, {DISPATCHES} dispatches':<38} {'median':>9} {'lowest':>9}\n")
        for what, found in rows.items():
            sys.stdout.write(f"  {what:<36} {found.median:9.2f} {found.lowest:9.2f}\n")
    if arguments.json:
        plain = {kind: {what: found._asdict() for what, found in rows.items()} for kind, rows in report.items()}
        arguments.json.write_text(json.dumps(plain, indent=1))
    slow = [kind for kind, rows in report.items() if rows[OPEN].median >= LIMIT_MS * arguments.functions]
    if slow:
        sys.exit(f"opening takes more than the limit of {LIMIT_MS} ms besides the device's work: {', '.join(slow)}")


if __name__ == "__main__":
    main()
