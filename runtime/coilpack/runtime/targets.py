"""Which compiled targets run on which device, and which of a package's images is the best for one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from coilpack.runtime.devices.base import ComputeCapability
from coilpack.runtime.errors import InputError
from coilpack.runtime.program import ir

_NAME = re.compile(r"sm_(\d{1,3})(\d)([af]?)")


@dataclass(frozen=True, slots=True)
class Architecture:
    """A target as PTX names it: `sm_80`, `sm_90a` (that architecture only), `sm_100f` (its family only)."""

    major: int
    minor: int
    suffix: str = ""

    @classmethod
    def parse(cls, name: str) -> Architecture:
        """Reads a target's name.

        Raises:
            InputError: it is not of that form.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise InputError(f"{name!r} is no target; targets are named as sm_80, sm_90a or sm_100f")
        return cls(int(match[1]), int(match[2]), match[3])

    def __str__(self) -> str:
        return f"sm_{self.major}{self.minor}{self.suffix}"

    def runs_on(self, device: ComputeCapability, *, binary: bool) -> bool:
        """Whether code for this target runs on a device of that architecture.

        Machine code runs within its major version, from its minor version on; PTX on all later architectures; `a` and
        `f` narrow both (CUDA programming guide, "Feature set compiler targets"; PTX ISA, `.target`).

        Args:
            device: the device's architecture.
            binary: the code is a cubin, not PTX.
        """
        if self.suffix == "a":
            return (self.major, self.minor) == (device.major, device.minor)
        if self.suffix == "f" or binary:
            return self.major == device.major and self.minor <= device.minor
        return (self.major, self.minor) <= (device.major, device.minor)

    @property
    def rank(self) -> tuple[int, int, int]:
        """Orders targets by how much of a device they use: newer is better, then the more specific."""
        return (self.major, self.minor, ("", "f", "a").index(self.suffix))


def runnable_images(targets: Iterable[ir.Target], device: ComputeCapability) -> list[tuple[ir.Target, ir.Image]]:
    """The images of a program that run on `device`, best first: newest target, and its cubin before its PTX.

    Whether the driver takes the version of a PTX image is not known here, so a caller tries one after another.
    """
    found = [
        (target, image)
        for target in targets
        for image in target.images
        if Architecture.parse(target.name).runs_on(device, binary=image.kind is ir.ImageKind.CUBIN)
    ]

    def rank(choice: tuple[ir.Target, ir.Image]) -> tuple[tuple[int, int, int], bool]:
        return (Architecture.parse(choice[0].name).rank, choice[1].kind is ir.ImageKind.CUBIN)

    return sorted(found, key=rank, reverse=True)


def describe_targets(targets: Iterable[ir.Target]) -> str:
    """The targets of a program for a message: `sm_80 (cubin, ptx), sm_90a (ptx)`."""
    listed = [f"{t.name} ({', '.join(sorted(i.kind.name.lower() for i in t.images))})" for t in targets]
    return ", ".join(listed) or "none"
