"""A stopwatch that counts instructions: what the emulator executes says nothing about time, but never varies."""

from __future__ import annotations

from collections.abc import Callable


class EmulatorStopwatch:
    """Counts the instructions that are executed between start and stop, each once for all threads of a chunk.

    Args:
        executed: how many have been executed so far.
    """

    unit = "instructions"
    is_exact = True

    def __init__(self, executed: Callable[[], int]) -> None:
        self._executed = executed
        self._began = 0
        self._samples: list[float] = []

    def flush(self) -> None:
        """Does nothing: there are no caches."""

    def start(self) -> None:
        """Begins a sample."""
        self._began = self._executed()

    def stop(self) -> None:
        """Ends the sample that has begun."""
        self._samples.append(float(self._executed() - self._began))

    def read(self) -> list[float]:
        """The samples since the latest reading."""
        samples, self._samples = self._samples, []
        return samples

    def close(self) -> None:
        """Does nothing: it holds nothing."""
