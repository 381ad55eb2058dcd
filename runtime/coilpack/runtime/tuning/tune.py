"""Tunes a package: measures its candidates on a device, and writes the package that has the fastest ones alone."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from coilpack.runtime.atomic import check_file, write_atomically
from coilpack.runtime.devices import resolve_device
from coilpack.runtime.devices.base import Device, Stopwatch
from coilpack.runtime.errors import DeviceError, InputError, NotFoundError
from coilpack.runtime.files import map_file
from coilpack.runtime.loaded import LoadedProgram
from coilpack.runtime.package import Package
from coilpack.runtime.package.select import select_candidates
from coilpack.runtime.program import ir
from coilpack.runtime.program.select import dispatches
from coilpack.runtime.steps import LaunchStep
from coilpack.runtime.tuning.bench import Bench
from coilpack.runtime.tuning.calls import Call, Sizes, make_calls
from coilpack.runtime.tuning.choose import LaunchKey, LaunchTimes, choose, count_launches, untuned
from coilpack.runtime.tuning.measure import LostDeviceError, Measurement, measure_launch
from coilpack.runtime.tuning.record import Identity, Record, open_record
from coilpack.runtime.tuning.report import FunctionTime, KernelChoice, TuningReport
from coilpack.runtime.tuning.whole import measure_call

REPORT_SUFFIX, RECORD_SUFFIX = ".tuning.json", ".tuning.part"  # behind the whole name of the output
DEFAULT_BUDGET = 60.0  # seconds

PathName = str | os.PathLike[str]
Progress = Callable[[str], None]


def tune(
    path: PathName,
    output: PathName,
    device: str | Device = "auto",
    *,
    functions: Sequence[str] | None = None,
    inputs: Mapping[str, Sequence[object]] | None = None,
    sizes: Sequence[Sizes] = (),
    report: PathName | None = None,
    budget: float = DEFAULT_BUDGET,
    restart: bool = False,
    progress: Progress | None = None,
) -> TuningReport:
    """Measures the candidates of a package on a device, and writes a package with the winners, and a report.

    Each launch that has candidates is measured where it stands in a call, on the data that it gets there; a candidate
    whose results differ from those of the package's own kernel is out. Whole calls decide in the end, so that the new
    package is no slower than the old one was in the same run. What other targets have stays as it is.

    What is measured is kept beside the output until the end (`<output>.tuning.part`): after an interruption, the same
    call goes on from there.

    Args:
        path: a package that was compiled with candidates.
        output: the package to write; another file.
        device: `auto`, `cuda`, `cuda:N`, a device, or `emulator`, which counts instructions and is never taken by
            itself.
        functions: those to measure; by default all that have candidates.
        inputs: all arguments of a function, by its name. They are made up for the others.
        sizes: combinations of values of size symbols at which to call functions that have such.
        report: where to write the report; by default `<output>.tuning.json`.
        budget: seconds that measuring the candidates may take, without loading and checking them.
        restart: measure everything anew.
        progress: is told what happens, a line at a time.

    Returns:
        The report.

    Raises:
        InvalidFileError: the package is not valid.
        TargetMismatchError: it holds no code for the device.
        NotFoundError: a function or size is not there.
        InputError: it has no candidates, or the calls launch none; sizes or inputs are missing or do not fit; a file
            cannot be written, or would replace another one.
        DeviceError: the device is not there, fails, or has too little memory.
    """
    file, target_file = os.fspath(path), Path(output)
    report_file = Path(report or f"{target_file}{REPORT_SUFFIX}")
    record_file = Path(f"{target_file}{RECORD_SUFFIX}")
    if not budget > 0:
        raise InputError(f"the budget is {budget} seconds; it must be more than 0")
    _check_files(Path(file), target_file, report_file, record_file)
    where = _device(device)
    tell = progress or (lambda _: None)
    with _first_failure(), contextlib.ExitStack() as stack:
        package = stack.enter_context(contextlib.closing(Package.open(path)))
        tell(f"loading {file} on {where.name}")
        program = LoadedProgram(package, where, file, candidates=True)
        stack.callback(program.close)
        calls = make_calls(program, _functions(program, functions), inputs or {}, sizes)
        launches = _launches(program, calls, tell)
        identity = Identity(_sha256(path), where.description, where.driver_version, program.target.name, _digest(calls))
        record = _record(record_file, identity, restart, tell)
        watch = where.stopwatch(where.default_stream)
        stack.callback(watch.close)
        found = _Tuning(program, calls, launches, watch, record, budget, tell).run(identity.package)
        write_atomically(report_file, found.to_json().encode())
        select_candidates(package, target_file, program.target.name, found.choices)
        record.remove()
    return found


def _check_files(package: Path, *written: Path) -> None:
    """Refuses files that cannot be written, or would replace each other or the package: before minutes of measuring."""
    for index, path in enumerate(written):
        check_file(path)
        if path.exists() and package.exists() and path.samefile(package):
            raise InputError(f"{path}: it would replace the package that is tuned; give it another name")
        if path.resolve() in [other.resolve() for other in written[:index]]:
            raise InputError(f"{path}: the package, the report and `<output>{RECORD_SUFFIX}` must be different files")


@contextlib.contextmanager
def _first_failure() -> Iterator[None]:
    """Where a candidate has failed with the device, raises that, and not that freeing memory has failed after it."""
    try:
        yield
    except DeviceError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, LostDeviceError):
            cause = cause.__context__
        if cause is None or cause is error:
            raise
        raise cause from None


def _device(device: str | Device) -> Device:
    found = resolve_device(device)
    if found.name == "emulator" and device == "auto":
        raise InputError(
            "there is no CUDA device to tune for. The emulator measures executed instructions, which say little about "
            "time: pass --device emulator (device='emulator') to use it all the same"
        )
    return found


def _functions(program: LoadedProgram, names: Sequence[str] | None) -> list[str]:
    """The functions to measure: those that are named, or all that have candidates."""
    having = [function.name for function in program.target.functions if _has_candidates(function)]
    if not having:
        raise InputError(
            f"{program.file}: it has no candidates for {program.target.name}: there is nothing to choose from. Compile "
            "it with --candidates N"
        )
    if names is None:
        return having
    known = [function.name for function in program.target.functions]
    for name in names:
        if name not in known:
            raise NotFoundError("function", name, program.file, known)
    if not set(names) & set(having):
        raise InputError(f"{program.file}: {', '.join(names)} has no candidates; {', '.join(having)} has")
    return list(dict.fromkeys(names))


def _has_candidates(function: ir.Function) -> bool:
    return any(isinstance(operation, ir.Dispatch) and operation.alternatives for operation in function.operations)


def _launches(program: LoadedProgram, calls: Sequence[Call], tell: Progress) -> dict[LaunchKey, LaunchTimes]:
    """What there is to measure in the calls."""
    found: dict[LaunchKey, LaunchTimes] = {}
    for call in calls:
        count_launches(program.plan(call.callee.body, call.sizes).steps, found)
    if not found:
        listed = "; ".join(map(str, calls))
        raise InputError(f"{program.file}: no kernel that has candidates is launched in {listed}; give other sizes")
    having = {dispatch.kernel.export_name for dispatch in dispatches(program.target) if dispatch.alternatives}
    left = sorted(having - {item.kernels[0].export_name for item in found.values()})
    if left:
        named = ", ".join(left[:3]) + (", ..." if len(left) > 3 else "")
        tell(f"kernels that these calls do not launch keep their first candidates: {len(left)} ({named})")
    return found


def _sha256(path: PathName) -> str:
    return hashlib.sha256(map_file(path)).hexdigest()


def _digest(calls: Sequence[Call]) -> str:
    return hashlib.sha256("".join(call.digest() for call in calls).encode()).hexdigest()


def _record(path: Path, identity: Identity, restart: bool, tell: Progress) -> Record:
    record, problem = (Record(path, identity), "") if restart else open_record(path, identity)
    if problem:
        tell(f"{problem}; everything is measured anew")
    elif len(record):
        tell(f"going on with what {path} holds: {len(record)} measured")
    record.write()  # here rather than after minutes, if it cannot be written
    return record


@dataclass
class _Tuning:
    """One run.

    Args:
        program: loaded with candidates.
        calls: what to measure.
        launches: those of the calls that have candidates.
        watch: measures on the default stream.
        record: keeps what was measured.
        budget: seconds for all launches.
        tell: is told what happens.
    """

    program: LoadedProgram
    calls: Sequence[Call]
    launches: dict[LaunchKey, LaunchTimes]
    watch: Stopwatch
    record: Record
    budget: float
    tell: Progress

    def run(self, package: str) -> TuningReport:
        """Measures and chooses; `package` is the digest of the file."""
        self.program.refused.update({name: DeviceError(reason) for name, reason in self.record.lost.items()})
        for key, times in self.launches.items():
            times.measured = self.record.get(key) or ()
        for call in self.calls:
            self._walk(call)
        kernels, functions = self._choose()
        device = self.program.device
        return TuningReport(
            f"coilpack {version('coilpack')}",
            package,
            device.name,
            device.description,
            self.program.target.name,
            self.watch.unit,
            functions,
            kernels,
        )

    def _walk(self, call: Call) -> None:
        """Runs a call step by step, up to the last launch that was not measured yet, and measures those."""
        steps = self.program.plan(call.callee.body, call.sizes).steps
        pending: dict[LaunchKey, int] = {}  # where each kind of launch comes first
        for index, step in enumerate(steps):
            if isinstance(step, LaunchStep) and step.alternatives:
                pending.setdefault(LaunchKey.of(step), index)
        keys = {index: key for key, index in pending.items() if not self.launches[key].measured}
        if not keys:
            return
        with Bench(self.program, call) as bench:
            for index, step in enumerate(steps[: max(keys) + 1]):
                if index in keys:
                    self._measure(bench, index, keys[index])
                executor = bench.executor([step])
                try:
                    bench.run(executor)
                finally:
                    executor.close()
            bench.device.synchronize(bench.stream)

    def _measure(self, bench: Bench, index: int, key: LaunchKey) -> None:
        times = self.launches[key]
        try:
            times.measured = measure_launch(bench, index, self.watch, self.budget / len(self.launches))
        except LostDeviceError as error:
            self.record.lost[error.kernel] = str(error)
            self.record.write()
            self.tell(f"{error}. The same call goes on without it, in a new process")
            raise
        self.record.add(key, times.measured)
        done = sum(1 for item in self.launches.values() if item.measured)
        self.tell(f"kernel {done} of {len(self.launches)}: {_describe(times, self.watch.unit)}")

    def _choose(self) -> tuple[tuple[KernelChoice, ...], tuple[FunctionTime, ...]]:
        """The selection whose calls take the least time in all, and the times of calls before and after."""
        exact, launches = self.watch.is_exact, self.launches.values()
        target = self.program.target
        cold, hot = (choose(launches, state, target, is_exact=exact) for state in ("cold", "hot"))
        selections: dict[tuple[int, ...], list[KernelChoice]] = {}
        for choices in (untuned(cold), cold, hot):
            selections.setdefault(tuple(choice.choice for choice in choices), choices)
        mappings = [{c.kernel: c.winner.kernel for c in choices} for choices in selections.values()]
        times = []
        for call in self.calls:
            self.tell(f"measuring whole calls of {call}")
            with Bench(self.program, call) as bench:
                times.append(measure_call(bench, mappings, self.watch))
        totals = [sum(column) for column in zip(*times, strict=True)]
        best = totals.index(min(totals))
        functions = (
            FunctionTime(call.callee.signature.name, call.sizes, row[0], row[best])
            for call, row in zip(self.calls, times, strict=True)
        )
        return tuple(list(selections.values())[best]), tuple(functions)


def _describe(times: LaunchTimes, unit: str) -> str:
    """One line about what was measured: `main_dispatch_2: 8 candidates, best 5.1 us (-12 %)`."""
    own = times.measured[0]
    best = min((item for item in times.measured if item.cold is not None), key=_cold)
    line = f"{own.kernel}: {len(times.measured)} candidates, best {_cold(best):.5g} {unit}"
    if best.kernel != own.kernel and _cold(own):
        line += f" ({(_cold(best) / _cold(own) - 1) * 100:+.0f} %)"
    return line


def _cold(item: Measurement) -> float:
    assert item.cold is not None
    return item.cold
