"""A call on a device, taken apart: memory of its own, and its steps one by one, with whatever kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType

from coilpack.runtime.context import draw_seeds
from coilpack.runtime.devices.base import Buffer
from coilpack.runtime.executor import Executor, Memory
from coilpack.runtime.loaded import LoadedProgram
from coilpack.runtime.steps import Base, CopyStep, FillStep, LaunchChoice, LaunchStep, Range, Step
from coilpack.runtime.tuning.calls import SEED, Call

_LASTING = (Base.ARGUMENT, Base.GLOBALS)  # what a call writes here the next one reads


def choices_of(step: LaunchStep) -> tuple[LaunchChoice, ...]:
    """The candidates of a launch, its own kernel first."""
    return (LaunchChoice(step.kernel, step.grid), *step.alternatives)


def with_choice(step: Step, choices: Mapping[str, str]) -> Step:
    """The step with the kernel that the choices name in the place of its own."""
    if isinstance(step, LaunchStep) and step.kernel.export_name in choices:
        name = choices[step.kernel.export_name]
        for choice in choices_of(step):
            if choice.kernel.export_name == name:
                return replace(step, kernel=choice.kernel, grid=choice.grid)
    return step


class Bench:
    """Runs the steps of one call, over arguments, outputs and state that nobody else uses.

    Args:
        program: what it belongs to, loaded with candidates.
        call: the call.

    Raises:
        InputError: the arguments do not fit.
        DeviceError: there is too little memory.
    """

    def __init__(self, program: LoadedProgram, call: Call) -> None:
        device = program.device
        self.device, self.program = device, program
        self.stream = device.default_stream
        self.plan = program.plan(call.callee.body, call.sizes)
        self._staged = program.stager.stage(call.arguments, self.plan, self.stream, call.callee.labels)
        self._outputs = [device.allocate(nbytes, self.stream) for nbytes in self.plan.output_nbytes]
        self._arena = device.allocate(self.plan.arena_nbytes, self.stream)
        self._seeds = device.allocate(self.plan.seeds_nbytes, self.stream)
        self._globals = device.allocate(program.globals_nbytes, self.stream)
        if self.plan.seeds:
            device.write(self._seeds.address, draw_seeds(self.plan, SEED), self.stream)
        program.initialize_globals(self._globals.address, self.stream)
        self._arguments = [argument.array.address if argument else 0 for argument in self._staged]
        self._memory = Memory(self._arena.address, program.weights_address, self._globals.address, self._seeds.address)

    def executor(self, steps: Iterable[Step], *, graphs: bool = False) -> Executor:
        """What runs some steps of the call, perhaps with other kernels; to be closed by the caller.

        Raises:
            InputError: a launch does not fit the device.
            DeviceError: the device's library computes no such matrix product.
        """
        plan = replace(self.plan, steps=tuple(steps))
        return Executor(self.device, plan, self.program.kernels, self._memory, graphs)

    def run(self, executor: Executor) -> None:
        """Queues what an executor runs, on the arguments and outputs of the call."""
        executor.run(self._arguments, [buffer.address for buffer in self._outputs], self.stream)

    def address(self, place: Range) -> int:
        """Where a range of bytes begins."""
        if place.base is Base.ARGUMENT:
            start = self._arguments[place.index]
        elif place.base is Base.OUTPUT:
            start = self._outputs[place.index].address
        else:
            bases = {
                Base.ARENA: self._memory.arena,
                Base.WEIGHTS: self._memory.weights,
                Base.GLOBALS: self._memory.globals,
                Base.SEEDS: self._memory.seeds,
            }
            start = bases[place.base]
        return start + place.begin

    def read(self, place: Range) -> bytearray:
        """The bytes of a range, after all that is queued."""
        data = bytearray(place.end - place.begin)
        self.device.read(self.address(place), memoryview(data), self.stream)
        return data

    def save(self, places: Iterable[Range]) -> Saved:
        """A copy of ranges as they are after all that is queued."""
        return Saved(self, places)

    def lasting(self) -> list[Range]:
        """What the call writes that another one would read: state, and arguments that it updates."""
        return [place for step in self.plan.steps for place in step.writes if place.base in _LASTING]

    def close(self) -> None:
        """Frees its memory, after all that is queued."""
        self._staged, self._arguments = [], []
        for buffer in (*self._outputs, self._arena, self._seeds, self._globals):
            buffer.close()

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Saved:
    """Copies of ranges of a bench's memory, to be put back. Made by `Bench.save`."""

    def __init__(self, bench: Bench, places: Iterable[Range]) -> None:
        self._bench = bench
        self._copies: list[tuple[int, Buffer]] = []
        try:
            for place in merged(places):
                address, nbytes = bench.address(place), place.end - place.begin
                copy = bench.device.allocate(nbytes, bench.stream)
                self._copies.append((address, copy))
                bench.device.copy(copy.address, address, nbytes, bench.stream)
        except BaseException:
            self.close()
            raise

    def restore(self) -> None:
        """Queues copies that give the ranges the contents that they had."""
        for address, copy in self._copies:
            self._bench.device.copy(address, copy.address, copy.nbytes, self._bench.stream)

    def close(self) -> None:
        """Frees the copies."""
        while self._copies:
            self._copies.pop()[1].close()

    def __enter__(self) -> Saved:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def merged(places: Iterable[Range]) -> list[Range]:
    """Ranges of the same bytes that share none; those that are empty are left out."""
    made: list[Range] = []
    for place in sorted(places, key=lambda p: (p.base.value, p.index, p.begin, p.end)):
        if place.begin == place.end:
            continue
        last = made[-1] if made else None
        if last and (last.base, last.index) == (place.base, place.index) and place.begin < last.end:
            made[-1] = replace(last, end=max(last.end, place.end))
        else:
            made.append(place)
    return made


def overlap(one: Range, other: Range) -> bool:
    """Whether two ranges have a byte in common."""
    same = (one.base, one.index) == (other.base, other.index)
    return same and max(one.begin, other.begin) < min(one.end, other.end)


def needed_after(steps: Sequence[Step], index: int, place: Range) -> bool:
    """Whether anything may depend on what step number `index` leaves in a range that it writes.

    What lies in the arena is dead once no later step reads it. A step that reaches bytes of it as part of another
    allocation shows that the memory has a new owner; one that fills or copies over all of it, that its content is not
    needed.
    """
    if place.base is not Base.ARENA:
        return True
    for step in steps[index + 1 :]:
        if any(overlap(place, read) and (read.begin, read.end) == (place.begin, place.end) for read in step.reads):
            return True
        written = [other for other in step.writes if overlap(place, other)]
        touched = [*written, *(other for other in step.reads if overlap(place, other))]
        if any((other.begin, other.end) != (place.begin, place.end) for other in touched):
            return False
        if written and isinstance(step, FillStep | CopyStep) and step.nbytes == place.end - place.begin:
            return False
    return False
