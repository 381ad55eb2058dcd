"""Measures whole calls with several selections of candidates side by side: what a faster launch is worth in the end."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Mapping, Sequence

from coilpack.runtime.devices.base import Stopwatch
from coilpack.runtime.executor import Executor
from coilpack.runtime.tuning.bench import Bench, Saved, with_choice

_WARM_UP = 3  # calls: the first runs step by step, the second builds the graph
_LEAST_ROUNDS, _ROUNDS, _SECONDS = 20, 200, 1.0


def measure_call(bench: Bench, selections: Sequence[Mapping[str, str]], watch: Stopwatch) -> list[float]:
    """The median time of a call with each selection.

    Calls run as graphs, in turn, each right after another one with the same selection, and each on the state that the
    call began with.

    Args:
        bench: the call.
        selections: the candidate to launch in the place of a kernel, by export names.
        watch: measures on the bench's stream.
    """
    with contextlib.ExitStack() as stack:
        state = stack.enter_context(bench.save(bench.lasting()))
        executors = []
        for choices in selections:
            steps = [with_choice(step, choices) for step in bench.plan.steps]
            executors.append(bench.executor(steps, graphs=not watch.is_exact))
            stack.callback(executors[-1].close)
        stack.enter_context(bench.device.activate())
        samples = _samples(bench, executors, state, watch)
        state.restore()
        bench.device.synchronize(bench.stream)
    return [statistics.median(values) for values in samples]


def _samples(bench: Bench, executors: Sequence[Executor], state: Saved, watch: Stopwatch) -> list[list[float]]:
    def call(executor: Executor) -> None:
        state.restore()
        bench.run(executor)

    def timed(executor: Executor) -> None:
        state.restore()
        watch.start()
        bench.run(executor)
        watch.stop()

    samples: list[list[float]] = [[] for _ in executors]
    if watch.is_exact:
        for executor in executors:
            timed(executor)
        return [[value] for value in watch.read()]
    for executor in executors:
        for _ in range(_WARM_UP):
            call(executor)
    deadline = time.monotonic() + _SECONDS
    order = list(range(len(executors)))
    for number in range(_ROUNDS):
        if number >= _LEAST_ROUNDS and time.monotonic() > deadline:
            break
        for index in order:
            watch.flush()  # the device is busy while the host queues what follows
            call(executors[index])
            timed(executors[index])
        for index, value in zip(order, watch.read(), strict=True):
            samples[index].append(value)
        order.append(order.pop(0))  # none always comes after the same one
    return samples
