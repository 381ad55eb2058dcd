"""An executable in memory: what a `.cda1` file says, checked."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from coilpack.runtime.errors import InputError, NotFoundError
from coilpack.runtime.images import ImageInfo, ImageKind

NameSource = Literal["export_name", "kernel_name"]


class BindingFlags(enum.IntFlag, boundary=enum.STRICT):
    """How a kernel uses the buffer of one binding."""

    READ_ONLY = 1
    INDIRECT = 2


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of a source file; line 0 where it is unknown."""

    filename: str
    line: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A source file carried inside the executable, as bytes of any encoding."""

    path: str
    content: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Export:
    """A kernel that can be launched.

    Args:
        ordinal: its position in the executable.
        kernel_name: its symbol, as stored.
        export_name: the name to look it up by, as stored; None where the file has none (IREE before 3.12).
        block_dims: threads per block along x, y and z.
        module_ordinal: which of the executable's modules holds it.
        shared_memory_bytes: dynamic shared memory per block, besides what the image declares.
        constant_count: 32-bit constants that it takes after its bindings.
        binding_flags: one for each binding, which the kernel takes as pointers, in order.
        symbol: the name to ask the driver for. It is `kernel_name`, save for files whose compiler gave several exports
            one kernel name; see `coilpack.runtime.executable.symbols`. Empty when the object is made for writing.
        debug_name: the producer's name for it, or None.
        location: the source line it came from, or None.
    """

    ordinal: int
    kernel_name: str
    export_name: str | None
    block_dims: tuple[int, int, int]
    module_ordinal: int = 0
    shared_memory_bytes: int = 0
    constant_count: int = 0
    binding_flags: tuple[BindingFlags, ...] = ()
    symbol: str = ""
    debug_name: str | None = None
    location: SourceLocation | None = None

    @property
    def name(self) -> str:
        """The name that it is known by: `export_name` where stored, else `kernel_name`."""
        return self.kernel_name if self.export_name is None else self.export_name

    @property
    def name_source(self) -> NameSource:
        """Which of the two `name` is."""
        return "kernel_name" if self.export_name is None else "export_name"

    @property
    def binding_count(self) -> int:
        """How many buffers it takes."""
        return len(self.binding_flags)


def _target_key(target: str) -> tuple[int, str]:
    match = re.match(r"sm_(\d+)", target)
    return (int(match[1]) if match else 0, target)


@dataclass(frozen=True)
class Executable:
    """A set of kernels in loadable images.

    Args:
        modules: the images, each PTX text or a cubin. Slices of what they were read from, not copies, as a rule.
        exports: the kernels in ordinal order.
        images: what each module says of itself; made by the reader, empty when the object is made for writing.
        source_files: sources for people and profilers.
        file: the name of the file that it was read from, for messages.
    """

    modules: tuple[bytes | memoryview, ...]
    exports: tuple[Export, ...]
    images: tuple[ImageInfo, ...] = ()
    source_files: tuple[SourceFile, ...] = field(default=())
    file: str = "executable"

    @property
    def target(self) -> str:
        """The architecture that it needs, as `sm_80`: the newest where its images differ."""
        return max((image.target for image in self.images), key=_target_key, default="")

    @property
    def image_kind(self) -> ImageKind:
        """`cubin` if all its images are machine code, else `ptx`."""
        return "cubin" if self.images and all(image.kind == "cubin" for image in self.images) else "ptx"

    @cached_property
    def _by_export_name(self) -> Mapping[str, Export]:
        return {export.export_name: export for export in self.exports if export.export_name is not None}

    @cached_property
    def _nameless(self) -> tuple[Mapping[str, list[Export]], ...]:
        """Exports without a stored `export_name`: by the producer's name, and by kernel name."""
        by_debug_name: dict[str, list[Export]] = {}
        by_kernel_name: dict[str, list[Export]] = {}
        for export in self.exports:
            if export.export_name is None:
                by_kernel_name.setdefault(export.kernel_name, []).append(export)
                if export.debug_name:
                    by_debug_name.setdefault(export.debug_name, []).append(export)
        return by_debug_name, by_kernel_name

    def lookup(self, name: str) -> Export:
        """Finds an export by its name.

        The stored `export_name` decides. For exports without one, the name that the producer left in the debug
        information serves, then `kernel_name`, though it may have lost characters.

        Raises:
            NotFoundError: no export has that name.
            InputError: `name` is the kernel name of several exports that have no other name.
        """
        if name in self._by_export_name:
            return self._by_export_name[name]
        for names in self._nameless:
            found = names.get(name, [])
            if len(found) == 1:
                return found[0]
        if found:
            ordinals = ", ".join(str(export.ordinal) for export in found)
            raise InputError(
                f"{self.file}: {name!r} is the kernel name of exports {ordinals}, and the file stores no export names "
                "that tell them apart; pick one from `exports` by its ordinal"
            )
        known = {export.name for export in self.exports} | set(self._nameless[0])
        raise NotFoundError("export", name, self.file, known)
