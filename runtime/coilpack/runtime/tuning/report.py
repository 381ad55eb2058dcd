"""What a tuning run found: which candidate of each kernel is fastest, as JSON that a later compilation can follow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.json_object import parse_object
from coilpack.runtime.tuning.fields import Fields, list_of, number, object_of, optional, text, values_of, whole

FORMAT, VERSION = "coilpack-tuning", 1
MAX_BYTES = 64 << 20  # of a file: 65,536 kernels with 8 candidates take about half of that


@dataclass(frozen=True)
class Candidate:
    """One candidate of a kernel.

    Attributes:
        kernel: its export name.
        source: digest of the Triton source it was compiled from; with `configuration`, its identity across builds.
        configuration: how it was configured, `XBLOCK=256 num_warps=4 num_stages=1`.
        time: of a launch, in the report's unit: the median of each kind of launch, and of those the mean by how often a
            call does it; None where the candidate is out of the question.
        error: why it is, if it is: the device refuses it, or its results differ from those of the first candidate.
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
    def winner(self) -> Candidate:
        """The candidate that won."""
        return self.candidates[self.choice]

    @property
    def gain(self) -> float:
        """Time of the first candidate divided by the winner's; 1 where either is not known."""
        before, after = self.candidates[0].time, self.winner.time
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

    @property
    def choices(self) -> dict[str, str]:
        """The export name of each kernel, and that of the candidate to launch in its place."""
        return {choice.kernel: choice.winner.kernel for choice in self.kernels}

    def to_json(self) -> str:
        """The report as a JSON document that ends with a newline."""
        document = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, data: str | bytes, file: str) -> TuningReport:
        """Reads what `to_json` wrote.

        Args:
            data: the document.
            file: what messages call it.

        Raises:
            InvalidFileError: it is no such document, or of a newer version; the message names the field.
        """
        raw = data.encode() if isinstance(data, str) else data
        if len(raw) > MAX_BYTES:
            raise InvalidFileError(file, "", f"it has {len(raw)} bytes; a tuning report has at most {MAX_BYTES}")
        document = parse_object(raw, file)
        check_format(document, file, FORMAT, VERSION)
        del document["format"], document["version"]
        report: TuningReport = _REPORT(document, "", file)
        _check(report, file)
        return report

    @classmethod
    def read(cls, path: str | PathLike[str]) -> TuningReport:
        """Reads a file; see `from_json`.

        Raises:
            InvalidFileError: it is no tuning report.
            OSError: it cannot be read.
        """
        with Path(path).open("rb") as file:
            return cls.from_json(file.read(MAX_BYTES + 1), fspath(path))


def check_format(document: Mapping[str, Any], file: str, name: str, version: int) -> None:
    """Checks the fields `format` and `version`, by which a document says what it is.

    Raises:
        InvalidFileError: it says that it is something else, or newer than what is known here.
    """
    if document.get("format") != name:
        found = str(document.get("format"))[:40]
        raise InvalidFileError(file, "format", f"it is {found!r}; that of a document of this kind is {name!r}")
    stated = document.get("version")
    if type(stated) is not int or stated < 1:
        raise InvalidFileError(file, "version", f"it is {str(stated)[:40]!r}, and must be a positive integer")
    if stated > version:
        hint = "Use a newer version of coilpack"
        raise InvalidFileError(file, "version", f"it is {stated}; versions up to {version} can be read", hint)


def _check(report: TuningReport, file: str) -> None:
    """What the fields must hold together."""
    seen: set[str] = set()
    for index, choice in enumerate(report.kernels):
        where = f"kernels[{index}]"
        names = [candidate.kernel for candidate in choice.candidates]
        if not names or names[0] != choice.kernel:
            raise InvalidFileError(file, f"{where}.candidates", f"the first must be the kernel {choice.kernel!r}")
        if choice.kernel in seen:
            raise InvalidFileError(file, f"{where}.kernel", f"{choice.kernel!r} is there twice")
        seen.add(choice.kernel)
        if len(set(names)) < len(names):
            raise InvalidFileError(file, f"{where}.candidates", "one kernel is there twice")
        for number_, candidate in enumerate(choice.candidates):
            if (candidate.time is None) != bool(candidate.error):
                problem = "a candidate has either a time or an error"
                raise InvalidFileError(file, f"{where}.candidates[{number_}]", problem)
        if choice.choice >= len(names) or choice.winner.time is None:
            raise InvalidFileError(file, f"{where}.choice", f"{choice.choice} is no candidate that has a time")


# The fields of each object of a report, and what reads them.
_CANDIDATE: Fields = {
    "kernel": text,
    "source": text,
    "configuration": text,
    "time": optional(number),
    "error": text,
}
_CHOICE: Fields = {
    "kernel": text,
    "launches": whole(1),
    "candidates": list_of(object_of(_CANDIDATE, Candidate)),
    "choice": whole(0),
}
_FUNCTION: Fields = {"function": text, "sizes": values_of(whole()), "before": number, "after": number}
_REPORT = object_of(
    {
        **dict.fromkeys(("producer", "package", "device", "description", "target", "unit"), text),
        "functions": list_of(object_of(_FUNCTION, FunctionTime)),
        "kernels": list_of(object_of(_CHOICE, KernelChoice)),
    },
    TuningReport,
)
