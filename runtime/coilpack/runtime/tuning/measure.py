"""Measures the candidates of one launch where it stands in a call, on the data that it gets there."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from coilpack.runtime.devices.base import Stopwatch
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import DeviceError, InputError
from coilpack.runtime.executor import Executor
from coilpack.runtime.program import ir
from coilpack.runtime.steps import LaunchStep, Range, Reference
from coilpack.runtime.tuning.bench import Bench, Saved, choices_of, merged, needed_after, overlap
from coilpack.runtime.tuning.compare import difference

_WARM_UP = 3  # launches of each candidate that are not counted
_LEAST_ROUNDS, _ROUNDS = 3, 100
_HOPELESS = {3: 2.0, 10: 1.3}  # after that many rounds, candidates that take that many times the best are left alone
_UNWRITTEN = b"\xff"  # not a number, or -1: what a candidate leaves out does not pass for its result


class LostDeviceError(DeviceError):
    """A candidate has failed in a way after which nothing runs on the device any more, until the process starts anew.

    Args:
        kernel: its export name.
        message: what to say about it.
    """

    def __init__(self, kernel: str, message: str) -> None:
        super().__init__(message)
        self.kernel = kernel


@dataclass(frozen=True)
class Measurement:
    """What was found of one candidate; times are medians, None where it is out of the question.

    Attributes:
        kernel: its export name.
        cold: time of a launch after the caches were flushed.
        hot: time of a launch right after another one.
        error: why it is out of the question.
    """

    kernel: str
    cold: float | None
    hot: float | None
    error: str = ""


@dataclass
class _Contender:
    """A candidate while it is measured."""

    kernel: ir.Kernel
    executor: Executor | None = None
    error: str = ""
    cold: list[float] = field(default_factory=list)
    hot: list[float] = field(default_factory=list)

    def measurement(self) -> Measurement:
        """Its medians."""
        if self.error or not self.cold:
            return Measurement(self.kernel.export_name, None, None, self.error)
        return Measurement(self.kernel.export_name, statistics.median(self.cold), statistics.median(self.hot))


def measure_launch(bench: Bench, index: int, watch: Stopwatch, seconds: float) -> list[Measurement]:
    """Measures all candidates of step number `index`, before which the steps in front of it have run.

    Each is checked first: its results must be those of the first one. Memory is as before on return.

    Args:
        bench: the call.
        index: of a launch that has alternatives.
        watch: measures on the bench's stream.
        seconds: how long to measure; a few rounds are taken in any case.

    Returns:
        One item for each candidate, the launch's own kernel first.

    Raises:
        InputError: the launch does not fit the device.
        DeviceError: the launch's own kernel fails.
        LostDeviceError: a candidate has failed, and the device with it.
    """
    step = bench.plan.steps[index]
    assert isinstance(step, LaunchStep)
    updated = [place for place in step.writes if any(overlap(place, read) for read in step.reads)]
    with (
        _contenders(bench, step) as contenders,
        bench.save(step.writes) as before,
        bench.save(updated) as inputs,
        bench.device.activate(),
    ):
        _check(bench, index, contenders, inputs)
        inputs.restore()
        _Rounds(bench, watch, inputs).measure([c for c in contenders if not c.error], seconds)
        before.restore()
        bench.device.synchronize(bench.stream)
    return [contender.measurement() for contender in contenders]


@contextlib.contextmanager
def _contenders(bench: Bench, step: LaunchStep) -> Iterator[list[_Contender]]:
    """The candidates, each with what launches it, but for those that the device refuses."""
    made = []
    with contextlib.ExitStack() as stack:
        for choice in choices_of(step):
            contender = _Contender(choice.kernel)
            made.append(contender)
            refused = bench.program.refused.get(choice.kernel.export_name)
            try:
                if refused:
                    raise refused
                own = replace(step, kernel=choice.kernel, grid=choice.grid, alternatives=())
                contender.executor = bench.executor([own])
            except (InputError, DeviceError) as error:
                if len(made) == 1:
                    raise
                contender.error = str(error)
            else:
                stack.callback(contender.executor.close)
        yield made


# --- results ---


def _check(bench: Bench, index: int, contenders: Sequence[_Contender], inputs: Saved) -> None:
    """Runs each candidate once and compares its results with those of the first one."""
    results = list(_results(bench, index))
    expected: list[bytearray] = []
    for contender in contenders:
        if contender.error:
            continue
        try:
            _run_once(bench, index, contender, inputs)
            found = [bench.read(place) for place, _ in results]
        except DeviceError as error:
            if contender is contenders[0]:
                raise
            contender.error = str(error)
            _check_device(bench, contender)
            continue
        expected = expected or found
        for (place, dtype), ours, theirs in zip(results, expected, found, strict=True):
            if problem := difference(ours, theirs, dtype):
                where = f"{place.base.value} {place.index}, bytes {place.begin} to {place.end}"
                contender.error = (
                    f"its results differ from those of {contenders[0].kernel.export_name}: {where}: {problem}"
                )
                break


def _run_once(bench: Bench, index: int, contender: _Contender, inputs: Saved) -> None:
    """Runs a candidate over memory that holds what it reads, and of what it writes nothing."""
    for place in merged(bench.plan.steps[index].writes):
        bench.device.fill(bench.address(place), _UNWRITTEN, place.end - place.begin, bench.stream)
    inputs.restore()
    assert contender.executor is not None
    bench.run(contender.executor)


def _results(bench: Bench, index: int) -> Iterator[tuple[Range, DType]]:
    """The ranges that the step writes and that matter, with the type of what it writes."""
    step = bench.plan.steps[index]
    assert isinstance(step, LaunchStep)
    written = iter(step.writes)
    for parameter, value in zip(step.kernel.parameters, step.parameters, strict=True):
        if not isinstance(parameter, ir.PointerParameter) or not isinstance(value, Reference):
            continue
        if ir.Access.WRITE in parameter.access:
            place = next(written)
            if needed_after(bench.plan.steps, index, place):
                yield place, parameter.dtype


def _check_device(bench: Bench, contender: _Contender) -> None:
    """After a launch that failed: some failures leave a device on which nothing runs any more."""
    try:
        bench.device.synchronize(bench.stream)
    except DeviceError as error:
        name = contender.kernel.export_name
        raise LostDeviceError(name, f"the candidate {name} has failed, and the device with it: {error}") from error


# --- times ---


@dataclass(frozen=True)
class _Rounds:
    """Takes samples of candidates in turn, so that whatever changes meanwhile meets all of them."""

    bench: Bench
    watch: Stopwatch
    inputs: Saved  # what they update, and must find as it was

    def measure(self, contenders: Sequence[_Contender], seconds: float) -> None:
        """Fills in the samples of all of them."""
        if self.watch.is_exact:
            self._round(contenders, self._hot)
            for contender in contenders:
                contender.cold = contender.hot
            return
        for _ in range(_WARM_UP):
            for contender in contenders:
                self._launch(contender)
        left = list(contenders)
        deadline = time.monotonic() + seconds
        for number in range(_ROUNDS):
            if number in _HOPELESS:
                left = _hopeful(left, _HOPELESS[number])
            if number >= _LEAST_ROUNDS and (len(left) == 1 or time.monotonic() > deadline):
                break
            self._round(left, self._cold)
            self._round(left, self._hot)

    def _round(self, contenders: Sequence[_Contender], sample: Callable[[_Contender], list[float]]) -> None:
        lists = [sample(contender) for contender in contenders]
        for samples, value in zip(lists, self.watch.read(), strict=True):
            samples.append(value)

    def _launch(self, contender: _Contender) -> None:
        self.inputs.restore()
        assert contender.executor is not None
        self.bench.run(contender.executor)

    def _cold(self, contender: _Contender) -> list[float]:
        self.inputs.restore()
        self.watch.flush()
        self._timed(contender)
        return contender.cold

    def _hot(self, contender: _Contender) -> list[float]:
        if not self.watch.is_exact:
            self.watch.flush()  # the device is busy while the host queues what follows
            self._launch(contender)
        self.inputs.restore()
        self._timed(contender)
        return contender.hot

    def _timed(self, contender: _Contender) -> None:
        assert contender.executor is not None
        self.watch.start()
        self.bench.run(contender.executor)
        self.watch.stop()


def _hopeful(contenders: Sequence[_Contender], factor: float) -> list[_Contender]:
    """Those that take less than `factor` times the best, cold or hot."""
    cold = [statistics.median(contender.cold) for contender in contenders]
    hot = [statistics.median(contender.hot) for contender in contenders]
    return [
        contender
        for contender, times in zip(contenders, zip(cold, hot, strict=True), strict=True)
        if times[0] <= factor * min(cold) or times[1] <= factor * min(hot)
    ]
