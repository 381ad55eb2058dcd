"""Opens packages and calls their functions."""

from __future__ import annotations

import threading
import weakref
from contextlib import ExitStack, closing
from os import PathLike, fspath
from types import TracebackType
from typing import TYPE_CHECKING

from coilpack.runtime.context import Context, Result, Snapshot
from coilpack.runtime.devices import resolve_device
from coilpack.runtime.devices.base import Device
from coilpack.runtime.errors import InputError
from coilpack.runtime.loaded import LoadedProgram
from coilpack.runtime.program import ir

if TYPE_CHECKING:
    from coilpack.runtime.package import Package


def open_program(path: str | PathLike[str], device: str | Device = "auto", *, graphs: bool = True) -> Program:
    """Opens a package (`.coil`): verifies it, loads its kernels for the device, and uploads its weights.

    Args:
        path: the file. It is not needed any more once the program is open.
        device: `auto`, `cuda`, `cuda:N`, or a device.
        graphs: run a function as a CUDA graph from its second call with the same sizes on.

    Raises:
        InvalidFileError: it is not a valid package.
        TargetMismatchError: it holds no code for the device.
        DeviceError: the device is not there, or refuses the code, or has too little memory.
    """
    from coilpack.runtime.package import Package  # the file format is needed to open a file, not to run a program

    with closing(Package.open(path)) as package:
        return Program(package, resolve_device(device), fspath(path), graphs=graphs)


class Program:
    """The functions of a package, ready to be called. Made by `coilpack.runtime.open`.

    Calls run in a context of the program's own, one after another, from whatever threads and on whatever streams. For
    calls that run at once, or for state of their own, make more contexts by `new_context`.

    Args:
        package: an open package; not needed any more once the program is made.
        device: where to run.
        file: what messages call the package.
        graphs: run a function as a CUDA graph from its second call with the same sizes on.
    """

    def __init__(self, package: Package, device: Device, file: str, *, graphs: bool = True) -> None:
        self.device = device
        self._loaded = LoadedProgram(package, device, file)
        self._lock = threading.Lock()
        self._closed = False
        self._contexts: weakref.WeakSet[Context] = weakref.WeakSet()
        try:
            self._default = self.new_context(graphs=graphs)
            # What can be prepared is ready before the first call.
            self._default.prepare([body for body in self._loaded.target.functions if not body.signature.symbols])
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Program {self._loaded.file}: {', '.join(self.functions)} for {self.target} on {self.device.name}>"

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of its functions."""
        return tuple(signature.name for signature in self._loaded.program.signatures)

    @property
    def globals(self) -> tuple[str, ...]:
        """The names of what it keeps across calls, in each context."""
        return tuple(item.name for item in self._loaded.program.globals)

    @property
    def target(self) -> str:
        """The compiled target that was chosen for the device, as `sm_90a`."""
        return self._loaded.target.name

    def signature(self, function: str | None = None) -> ir.Signature:
        """Inputs and outputs of a function.

        Args:
            function: its name; may be left out for `main`, or where there is only one.

        Raises:
            NotFoundError: there is no function of that name.
            InputError: no name is given, and there are several functions.
        """
        signature: ir.Signature = self._loaded.program.signature(self._loaded.name(function))
        return signature

    def new_context(self, *, graphs: bool = True) -> Context:
        """Another context: globals in their initial state, and memory of its own for intermediate values.

        Args:
            graphs: run a function as a CUDA graph from its second call with the same sizes on.

        Raises:
            InputError: the program is closed.
            DeviceError: there is too little memory.
        """
        with self._lock:
            if self._closed:
                raise InputError(f"{self._loaded.file}: the program is closed")
            context = Context(self._loaded, graphs)
            self._contexts.add(context)
        return context

    def __call__(
        self,
        *arguments: object,
        function: str | None = None,
        stream: object = None,
        seed: object = None,
        **by_name: object,
    ) -> Result | tuple[Result, ...]:
        """Calls a function in the program's own context; parameters, result and errors are those of `Context`."""
        return self._default(*arguments, function=function, stream=stream, seed=seed, **by_name)

    def reset(self, *, stream: object = None) -> None:
        """Gives all globals of the program's own context their initial contents again."""
        self._default.reset(stream=stream)

    def snapshot(self, *, stream: object = None) -> Snapshot:
        """A copy of all globals of the program's own context."""
        return self._default.snapshot(stream=stream)

    def restore(self, snapshot: Snapshot, *, stream: object = None) -> None:
        """Gives all globals of the program's own context the contents of a snapshot."""
        self._default.restore(snapshot, stream=stream)

    def close(self) -> None:
        """Waits for the work of all its contexts and frees what it holds on the device.

        Results stay valid. Closing twice is harmless.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            contexts = list(self._contexts)
        with ExitStack() as last_to_first:  # one that fails keeps none from being closed
            last_to_first.callback(self._loaded.close)
            for context in contexts:
                last_to_first.callback(context.close)

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
