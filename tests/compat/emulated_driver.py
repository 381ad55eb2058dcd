"""Runs the kernels of another process in this project's emulator: the other side of `emulated_driver.c`.

Messages are bytes on a Unix socket; numbers have 64 bits, little-endian. The driver asks one thing at a time:

    M size image                             load a module     -> module, or 0
    F module size name                       look a kernel up  -> function, or 0; count, size of each parameter
    L function grid[3] block[3] shared,      launch            -> 1, and for each block 0, or 1 and its bytes where
      bytes of each parameter,                                    they changed; or 0
      count, and for each block of memory: address, size, bytes
"""

from __future__ import annotations

import os
import shutil
import socketserver
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from coilpack.runtime.devices.base import Kernel, LaunchConfig, Module
from coilpack.runtime.devices.emulator.device import Emulator
from coilpack.runtime.errors import CoilpackError

COMPILER = shutil.which("cc") or shutil.which("gcc")

_POINTER_BYTES = 8


def build(folder: Path) -> None:
    """Compiles the driver into `folder`, as `libcuda.so`; the message of the C compiler is an error's."""
    assert COMPILER is not None, "needs a C compiler"
    source = Path(__file__).with_name("emulated_driver.c")
    options = ["-O1", "-shared", "-fPIC", "-pthread", "-o", folder / "libcuda.so"]
    subprocess.run([COMPILER, *options, source], check=True)


class EmulatedDriver:
    """An emulator that serves processes, one after the other.

    Attributes:
        errors: what went wrong in launches; a process only learns that they failed.
        launched: the symbols of all kernels that ran, in order.
    """

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.launched: list[str] = []
        self._device = Emulator(capacity=1 << 34)
        self._modules: list[Module] = []
        self._kernels: list[Kernel] = []

    def serve(self, reader: BinaryIO, writer: BinaryIO) -> None:
        """Answers one process until it ends."""
        answers = {b"M": self._load, b"F": self._look_up, b"L": self._launch}
        while kind := reader.read(1):
            writer.write(answers[kind](reader))
            writer.flush()

    def _load(self, reader: BinaryIO) -> bytes:
        (size,) = _numbers(reader, 1)
        image = reader.read(size)
        try:
            self._modules.append(self._device.load_module(memoryview(image), "a module of IREE's"))
        except CoilpackError as error:
            self.errors.append(str(error))
            return _packed(0)
        return _packed(len(self._modules))

    def _look_up(self, reader: BinaryIO) -> bytes:
        module, size = _numbers(reader, 2)
        name = reader.read(size).decode()
        try:
            self._kernels.append(self._modules[module - 1].kernel(name))
        except CoilpackError as error:
            self.errors.append(str(error))
            return _packed(0, 0)
        sizes = [size for _, size in self._kernels[-1].parameter_layout]
        return _packed(len(self._kernels), len(sizes), *sizes)

    def _launch(self, reader: BinaryIO) -> bytes:
        function, *sizes = _numbers(reader, 8)
        kernel = self._kernels[function - 1]
        parameters = [reader.read(size) for _, size in kernel.parameter_layout]
        (count,) = _numbers(reader, 1)
        blocks = [(address, reader.read(size)) for address, size in (_numbers(reader, 2) for _ in range(count))]
        try:
            config = LaunchConfig((sizes[0], sizes[1], sizes[2]), (sizes[3], sizes[4], sizes[5]), sizes[6])
            results = self._run(kernel, config, parameters, blocks)
        except CoilpackError as error:
            self.errors.append(str(error))
            return _packed(0)
        self.launched.append(kernel.name)
        changed = (
            _packed(after != before) + (after if after != before else b"")
            for after, (_, before) in zip(results, blocks, strict=True)
        )
        return _packed(1) + b"".join(changed)

    def _run(
        self, kernel: Kernel, config: LaunchConfig, parameters: Sequence[bytes], blocks: Sequence[tuple[int, bytes]]
    ) -> list[bytes]:
        """Launches over copies of the blocks; what they hold then."""
        device, stream = self._device, self._device.default_stream
        buffers = [device.allocate(len(content), stream) for _, content in blocks]
        try:
            for buffer, (_, content) in zip(buffers, blocks, strict=True):
                device.write(buffer.address, memoryview(content), stream)
            moved = {
                address: (len(content), buffer.address)
                for buffer, (address, content) in zip(buffers, blocks, strict=True)
            }
            values = [_moved(value, moved) if len(value) == _POINTER_BYTES else value for value in parameters]
            launch = device.prepare(kernel, config, values)
            with device.activate():
                launch.run(stream)
            device.synchronize(stream)
            results = [bytearray(len(content)) for _, content in blocks]
            for buffer, result in zip(buffers, results, strict=True):
                device.read(buffer.address, memoryview(result), stream)
            return [bytes(result) for result in results]
        finally:
            for buffer in buffers:
                buffer.close()


def _moved(pointer: bytes, blocks: dict[int, tuple[int, int]]) -> bytes:
    """An address of the other process as one of the emulator's."""
    address = int.from_bytes(pointer, "little")
    for start, (size, here) in blocks.items():
        if start <= address < start + size:
            return (address - start + here).to_bytes(_POINTER_BYTES, "little")
    return pointer


def _numbers(reader: BinaryIO, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}Q", reader.read(8 * count))


def _packed(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


@contextmanager
def emulated_driver(folder: Path) -> Iterator[tuple[EmulatedDriver, dict[str, str]]]:
    """Serves processes that are started with the environment that it yields.

    Args:
        folder: for the driver and the socket; its path must be short, as a socket's name is.
    """
    build(folder)
    driver = EmulatedDriver()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            driver.serve(self.rfile, self.wfile)  # type: ignore[arg-type]

    path = str(folder / "socket")
    with socketserver.UnixStreamServer(path, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield driver, {**os.environ, "LD_LIBRARY_PATH": str(folder), "EMULATED_DRIVER": path}
        finally:
            server.shutdown()
            thread.join()
