"""A package on a device: what all contexts of a program share."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from coilpack.runtime.devices.base import Buffer, Device
from coilpack.runtime.errors import DeviceError, InputError, TargetMismatchError
from coilpack.runtime.executable import Executable, read_executable
from coilpack.runtime.loading import load_candidates, load_kernels
from coilpack.runtime.plan import Plan, build_plan
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import evaluate
from coilpack.runtime.program.select import launched_kernels
from coilpack.runtime.sizes import label
from coilpack.runtime.staging import Stager
from coilpack.runtime.strided import StridedCopier
from coilpack.runtime.targets import describe_targets, runnable_images

if TYPE_CHECKING:
    from coilpack.runtime.package import Package

_MAX_PLANS = 256  # each stands for a function and one combination of sizes


class Callee(NamedTuple):
    """A function, with what each call of it asks; `fixed` says that no call has sizes to solve or guards to check."""

    body: ir.Function
    signature: ir.Signature
    labels: tuple[str, ...]
    integers: bool
    fixed: bool

    @classmethod
    def of(cls, body: ir.Function) -> Callee:
        """That of a function's body."""
        signature = body.signature
        labels = tuple(label(signature, index) for index in range(len(signature.inputs)))
        integers = any(argument.value is not None for argument in (*signature.inputs, *signature.outputs))
        return cls(body, signature, labels, integers, not signature.symbols and not signature.guards)


class LoadedProgram:
    """Kernels, weights and plans. May be used from several threads.

    Attributes:
        device: where it is.
        file: what messages call the package.
        program: what the package holds.
        target: the compiled target that was chosen for the device.
        kernels: the device's kernels by export name: those that the functions launch and, if asked for, candidates.
        refused: why the device refuses a candidate, by export name.
        stager: brings arguments into the layout of the kernels.
        weights_address: where the weights begin.
        globals_nbytes: bytes that the globals of one context take.
        arena_nbytes: bytes of arena that serve every function without symbols.

    Args:
        package: an open package; not needed any more once this is made.
        device: where to load it.
        file: what messages call the package.
        candidates: also load the kernels that are candidates of dispatches, and have plans state them. A call takes
            none of them, so only tuning needs them.

    Raises:
        TargetMismatchError: it holds no code for the device.
        DeviceError: the device refuses the code, or has too little memory.
    """

    def __init__(self, package: Package, device: Device, file: str, *, candidates: bool = False) -> None:
        self.device = device
        self.file = file
        self.program = package.program
        self.target, executable = choose_image(package, device, file)
        self._callees = {function.name: Callee.of(function) for function in self.target.functions}
        self._global_offsets, self.globals_nbytes = _place({g.name: g.nbytes for g in package.program.globals})
        fixed = [function for function in self.target.functions if not function.signature.symbols]
        self.arena_nbytes = max((evaluate(function.arena_nbytes, {}) for function in fixed), default=0)
        self._plans: dict[tuple[str, tuple[int, ...]], Plan] = {}
        self._lock = threading.Lock()
        self._copier = StridedCopier(device)
        self.stager = Stager(device, self._copier)
        self._candidates = candidates
        self.refused: dict[str, DeviceError] = {}
        self._modules, self.kernels = load_kernels(device, executable, launched_kernels(self.target))
        try:
            if candidates:
                others = [k for k in self.target.kernels if k.export_name not in self.kernels]
                self.refused = load_candidates(self._modules, others, self.kernels)
            self._weights, self._weight_offsets = _upload_weights(package, device)
        except BaseException:
            self._modules.close()
            raise

    @property
    def weights_address(self) -> int:
        """Where the weights begin."""
        return self._weights.address

    def name(self, function: str | None) -> str:
        """The name of the function that a call means.

        Raises:
            InputError: none is named, and there are no or several functions and no `main`.
        """
        if function is not None:
            return function
        if "main" in self._callees:
            return "main"
        names = [signature.name for signature in self.program.signatures]
        if len(names) == 1:
            return names[0]
        if not names:
            raise InputError(f"{self.file} holds kernels and no function; launch them by load_executable")
        raise InputError(f"{self.file} has {len(names)} functions: say which one by function=, of {', '.join(names)}")

    def callee(self, function: str | None) -> Callee:
        """The function that a call means.

        Raises:
            NotFoundError: there is no function of that name.
            InputError: no name is given, and there are several functions.
        """
        name = self.name(function)
        found = self._callees.get(name)
        return found if found is not None else Callee.of(self.target.function(name))

    def plan(self, function: ir.Function, sizes: Mapping[str, int]) -> Plan:
        """The plan of a function for the sizes of a call; the latest ones are kept.

        Raises:
            InputError: with these sizes an operation reaches out of its memory.
        """
        key = (function.name, tuple(sizes.values()))
        with self._lock:
            plan = self._plans.pop(key, None)
        if plan is None:
            offsets = self._weight_offsets, self._global_offsets
            plan = build_plan(function, sizes, *offsets, candidates=self._candidates)
        with self._lock:
            self._plans[key] = plan  # now the latest one
            while len(self._plans) > _MAX_PLANS:
                del self._plans[next(iter(self._plans))]
        return plan

    def initialize_globals(self, address: int, stream: int) -> None:
        """Queues what gives a context's globals, which begin at `address`, their initial contents."""
        if self.globals_nbytes:
            self.device.fill(address, bytes(1), self.globals_nbytes, stream)
        for item in self.program.globals:
            if item.initial is not None:
                source = self._weights.address + self._weight_offsets[item.initial.name]
                self.device.copy(address + self._global_offsets[item.name], source, item.nbytes, stream)

    def close(self) -> None:
        """Frees weights and kernels, which nothing may use any more. Closing twice is harmless."""
        self.kernels.clear()
        self._plans.clear()
        self._copier.close()
        self._modules.close()
        self._weights.close()
        self.device.trim()

    def __del__(self) -> None:
        if getattr(self, "_weights", None) is not None and not sys.is_finalizing():
            self.close()


def choose_image(package: Package, device: Device, file: str) -> tuple[ir.Target, Executable]:
    """The target of a package that a device runs best, and its executable in the form to load.

    Raises:
        TargetMismatchError: there is no code for the device.
        DeviceError: its driver does not take the version of the PTX.
    """
    targets = package.program.targets
    refused = ""
    for target, image in runnable_images(targets, device.compute_capability):
        if image.kind is ir.ImageKind.CUBIN and not device.runs_cubins:
            continue
        executable = read_executable(package.image(image.entry), file=f"{file}: {image.entry}")
        versions = [info.ptx_version for info in executable.images if info.ptx_version is not None]
        if all(device.supports_ptx(version) for version in versions):
            return target, executable
        newest = max(versions)
        refused = refused or f"{image.entry} is PTX ISA {newest[0]}.{newest[1]}, newer than the device's driver takes"
    if refused:
        raise DeviceError(
            f"{file}: {refused}. Install a newer driver, or compile to a cubin or with an older `--ptx-version`"
        )
    raise TargetMismatchError(
        f"{file}: no code for {device.name}, which is {device.description}; "
        f"it has {describe_targets(targets)}. Compile with `--target {device.compute_capability}`"
    )


def _place(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Offsets of blocks that lie one after another, aligned, and the bytes of all."""
    offsets: dict[str, int] = {}
    total = 0
    for name, nbytes in sizes.items():
        offsets[name] = total
        total += ir.aligned(nbytes)  # a plan relies on it, as for the arena
    return offsets, total


def _upload_weights(package: Package, device: Device) -> tuple[Buffer, dict[str, int]]:
    offsets, total = _place({storage.name: storage.nbytes for storage in package.program.storages})
    stream = device.default_stream
    weights = device.allocate(total, stream)
    try:
        for name, offset in offsets.items():
            with package.storage(name) as data:
                device.write(weights.address + offset, data, stream)
    except BaseException:
        weights.close()
        raise
    return weights, offsets
