"""What a tuning run found: which candidate of each kernel is fastest, as JSON that a later compilation can follow."""

from __future__ import annotations

from dataclasses import dataclass

FORMAT, VERSION = "coilpack-tuning", 1


@dataclass(frozen=True)
class Candidate:
    """One candidate of a kernel.

    Attributes:
        kernel: its export name.
        source: digest of the Triton source it was compiled from; with `configuration`, its identity across builds.
        configuration: how it was configured, `XBLOCK=256 num_warps=4 num_stages=1`.
        time: median of a launch, in the report's unit; None where the device refuses it.
        error: why, where it refuses it.
    """

    kernel: str
    source: str
    configuration: str
    time: float | None
    error: str = ""


@dataclass(frozen=True)
class KernelChoice:
    """The candidates of one kernel, the package's own first, and which of them won.

    Attributes:
        kernel: export name of the first candidate, which an untuned package launches.
        launches: how often one call of each measured function launches it, in all.
        candidates: all of them; the first is `kernel`.
        choice: index of the winner.
    """

    kernel: str
    launches: int
    candidates: tuple[Candidate, ...]
    choice: int

    @property
    def gain(self) -> float:
        """Time of the first candidate divided by the winner's; 1 where either is not known."""
        before, after = self.candidates[0].time, self.candidates[self.choice].time
        return before / after if before and after else 1.0


@dataclass(frozen=True)
class FunctionTime:
    """A whole call of a function at given sizes, before and after, in the report's unit."""

    function: str
    sizes: dict[str, int]
    before: float
    after: float


@dataclass(frozen=True)
class TuningReport:
    """What was measured where.

    Attributes:
        producer: name and version of the writer.
        package: SHA-256 of the untuned file.
        device: the device's name.
        description: its model and architecture.
        target: the compiled target, as `sm_90a`.
        unit: of all times: `us`, or `instructions` of the emulator.
        functions: the functions that were measured.
        kernels: the choices.
    """

    producer: str
    package: str
    device: str
    description: str
    target: str
    unit: str
    functions: tuple[FunctionTime, ...]
    kernels: tuple[KernelChoice, ...]
