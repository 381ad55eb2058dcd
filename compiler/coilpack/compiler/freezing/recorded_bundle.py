"""A generated module with its kernel bundle as a folder that people can read: for tests, and to report bugs with.

`module.py.txt` is the module, `bundle.json` says which autotuners there are and what Triton says of their kernels, and
`HASH.ptx` and `HASH.cubin` are what it compiled. The document holds a digest of each file, and null for a part that the
bundle lacks: one that was lost since is a damaged folder, not a bundle without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coilpack.compiler.freezing.kernel_bundle import (
    Autotuner,
    CompiledConfiguration,
    ConstantValue,
    KernelArtifact,
    KernelBundle,
)
from coilpack.runtime.atomic import atomic_folder
from coilpack.runtime.errors import InputError, InvalidFileError
from coilpack.runtime.json_object import parse_object
from coilpack.runtime.tuning.fields import list_of, object_of, optional, text, values_of, whole
from coilpack.runtime.tuning.report import check_format

MODULE, DOCUMENT = "module.py.txt", "bundle.json"
FORMAT, VERSION = "coilpack-bundle", 1
MAX_BYTES = 256 << 20  # of each file

_HASH = re.compile(r"[\w=-]{1,200}", re.ASCII)  # what Triton calls a kernel; it names files here
_OURS = re.compile(rf"{re.escape(MODULE)}|{re.escape(DOCUMENT)}|{_HASH.pattern}\.(ptx|cubin)", re.ASCII)


def write_bundle(
    path: str | os.PathLike[str],
    module_source: str,
    bundle: KernelBundle,
    provenance: Mapping[str, str] | None = None,
) -> None:
    """Writes a module and its bundle as the folder `path`, in place of one that this wrote before.

    Args:
        path: the folder.
        module_source: the text of the generated module.
        bundle: its kernels.
        provenance: where they come from, by any names: versions, device, command, date.

    Raises:
        InputError: the folder cannot be written, or holds something else.
    """
    folder = Path(path)
    files = {MODULE: module_source.encode()}
    artifacts = {}
    for kernel_hash, artifact in bundle.artifacts.items():
        if not _HASH.fullmatch(kernel_hash):
            raise InputError(f"{kernel_hash!r} is no name that Triton gives a kernel, and cannot name a file")
        parts = {"ptx": None if artifact.ptx is None else artifact.ptx.encode(), "cubin": artifact.cubin}
        files |= {f"{kernel_hash}.{part}": data for part, data in parts.items() if data is not None}
        digests = {part: None if data is None else _digest(data) for part, data in parts.items()}
        artifacts[kernel_hash] = {**digests, "metadata": dict(artifact.metadata)}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "provenance": dict(provenance or {}),
        "module": _digest(files[MODULE]),
        "autotuners": [asdict(entry) for entry in bundle.autotuners],
        "artifacts": artifacts,
    }
    _check_replaceable(folder)
    with atomic_folder(folder, lambda: _check_replaceable(folder)) as new:
        (new / DOCUMENT).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
        for name, data in files.items():
            (new / name).write_bytes(data)


def read_bundle(path: str | os.PathLike[str]) -> tuple[str, KernelBundle]:
    """The module and the bundle that `write_bundle` wrote.

    Raises:
        InputError: there is no such folder, or a file of it cannot be read.
        InvalidFileError: it is no such folder, of a newer version, or damaged; the message names the file and field.
    """
    folder = Path(path)
    file = str(folder / DOCUMENT)
    document = parse_object(_read(folder, DOCUMENT), file)
    check_format(document, file, FORMAT, VERSION)
    del document["format"], document["version"]
    fields: dict[str, Any] = _DOCUMENT(document, "", file)
    source = _checked(folder, MODULE, fields["module"])
    artifacts = {
        kernel_hash: _read_artifact(folder, kernel_hash, parts) for kernel_hash, parts in fields["artifacts"].items()
    }
    return _decoded(folder / MODULE, source), KernelBundle(fields["autotuners"], artifacts)


def _read_artifact(folder: Path, kernel_hash: str, parts: Mapping[str, Any]) -> KernelArtifact:
    if not _HASH.fullmatch(kernel_hash):
        raise InvalidFileError(str(folder / DOCUMENT), f"artifacts[{kernel_hash[:100]!r}]", "it names no kernel")
    found = {
        part: None if parts[part] is None else _checked(folder, f"{kernel_hash}.{part}", parts[part])
        for part in ("ptx", "cubin")
    }
    ptx = None if found["ptx"] is None else _decoded(folder / f"{kernel_hash}.ptx", found["ptx"])
    return KernelArtifact(ptx, found["cubin"], parts["metadata"])


def _checked(folder: Path, name: str, digest: str) -> bytes:
    data = _read(folder, name)
    if (found := _digest(data)) != digest:
        raise InvalidFileError(str(folder / name), "", f"its SHA-256 is {found}, and {DOCUMENT} says {digest[:64]!r}")
    return data


def _read(folder: Path, name: str) -> bytes:
    path = folder / name
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}; name a recorded bundle") from error
    if len(data) > MAX_BYTES:
        raise InvalidFileError(str(path), "", f"it has more than {MAX_BYTES} bytes, the most that is read")
    return data


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidFileError(str(path), f"byte {error.start}", "it is not UTF-8") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _check_replaceable(folder: Path) -> None:
    """Raises InputError if the folder holds what `write_bundle` did not write."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{str(folder)!r} is a file; a recorded bundle is a folder")
    names = sorted(path.name for path in folder.iterdir())
    strange = [name for name in names if DOCUMENT not in names or not _OURS.fullmatch(name)]
    if strange:
        raise InputError(
            f"the folder {str(folder)!r} holds {strange[0]!r}, which is no part of a recorded bundle; "
            "name another, or empty it"
        )


# --- the fields of the document, and what reads them ---


def _constant(value: Any, where: str, file: str) -> ConstantValue:
    """A number, a string, a boolean or null."""
    if value is not None and not isinstance(value, (int, float, str)):
        raise InvalidFileError(file, where, f"it is {str(value)[:40]!r}, and must be a number, a string or null")
    return value


def _anything(value: Any, where: str, file: str) -> Any:  # noqa: ARG001
    """Whatever Triton says."""
    return value


_CONFIGURATION = object_of(
    {
        "kernel_hash": text,
        "symbol": text,
        "values": values_of(_constant),
        "num_warps": whole(1),
        "num_stages": whole(0),
    },
    CompiledConfiguration,
)
_AUTOTUNER = object_of(
    {
        "kernel_name": text,
        "results": list_of(_CONFIGURATION),
        "winner": optional(text),
        "source": optional(text),
    },
    Autotuner,
)
_DOCUMENT = object_of(
    {
        "provenance": values_of(text),
        "module": text,
        "autotuners": list_of(_AUTOTUNER),
        "artifacts": values_of(
            object_of({"ptx": optional(text), "cubin": optional(text), "metadata": values_of(_anything)}, dict)
        ),
    },
    dict,
)
