"""What a tuning run has measured so far, in a file, so that one that was interrupted need not begin anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from coilpack.runtime.atomic import write_atomically
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.json_object import parse_object
from coilpack.runtime.tuning.choose import LaunchKey
from coilpack.runtime.tuning.fields import Fields, list_of, number, object_of, optional, text, values_of
from coilpack.runtime.tuning.measure import Measurement
from coilpack.runtime.tuning.report import MAX_BYTES, check_format

_FORMAT, _VERSION = "coilpack-tuning-part", 1


@dataclass(frozen=True)
class Identity:
    """What measurements belong to: they hold for nothing else.

    Attributes:
        package: SHA-256 of the file.
        device: the device's model and architecture.
        driver: the version of its driver.
        target: the compiled target.
        calls: a digest of the functions, sizes and arguments.
    """

    package: str
    device: str
    driver: str
    target: str
    calls: str


_MEASUREMENT: Fields = {"kernel": text, "cold": optional(number), "hot": optional(number), "error": text}
_IDENTITY: Fields = dict.fromkeys(("package", "device", "driver", "target", "calls"), text)
_RECORD = object_of(
    {
        "identity": object_of(_IDENTITY, Identity),
        "launches": values_of(list_of(object_of(_MEASUREMENT, Measurement))),
        "lost": values_of(text),
    },
    dict,
)


class Record:
    """Measurements by launch, written to a file after each.

    Args:
        path: the file.
        identity: what is measured.
        launches: measurements that are there already, by digest of the launch.
        lost: candidates that have failed, and the device with them, and what it said.
    """

    def __init__(
        self,
        path: Path,
        identity: Identity,
        launches: Mapping[str, Sequence[Measurement]] | None = None,
        lost: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        self._identity = identity
        self._launches = dict(launches or {})
        self.lost = dict(lost or {})

    def __len__(self) -> int:
        return len(self._launches)

    def get(self, key: LaunchKey) -> Sequence[Measurement] | None:
        """What was measured of a launch, if it was: its own kernel has times, the others times or an error."""
        found = self._launches.get(_digest(key))
        if found is None or [item.kernel for item in found] != [name for name, _ in key.choices]:
            return None
        if found[0].error or not all((m.cold is None) == (m.hot is None) == bool(m.error) for m in found):
            return None
        return found

    def add(self, key: LaunchKey, measured: Sequence[Measurement]) -> None:
        """Keeps what was measured of a launch.

        Raises:
            InputError: the file cannot be written.
        """
        self._launches[_digest(key)] = measured
        self.write()

    def write(self) -> None:
        """Writes the file.

        Raises:
            InputError: it cannot be written.
        """
        launches = {digest: [asdict(item) for item in found] for digest, found in self._launches.items()}
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            "identity": asdict(self._identity),
            "launches": launches,
            "lost": self.lost,
        }
        write_atomically(self.path, json.dumps(document, ensure_ascii=False, allow_nan=False).encode())

    def remove(self) -> None:
        """Removes the file: the run is complete."""
        self.path.unlink(missing_ok=True)


def open_record(path: Path, identity: Identity) -> tuple[Record, str]:
    """The record in a file, or an empty one where there is none, or one of something else.

    Returns:
        The record, and why what the file holds is of no use, if it is.
    """
    if not path.exists():
        return Record(path, identity), ""
    try:
        with path.open("rb") as file:
            document = parse_object(file.read(MAX_BYTES), str(path))
        check_format(document, str(path), _FORMAT, _VERSION)
        del document["format"], document["version"]
        found = _RECORD(document, "", str(path))
    except InvalidFileError as error:
        return Record(path, identity), str(error)
    except OSError as error:
        return Record(path, identity), f"{path}: it cannot be read: {error.strerror}"
    stated = found["identity"]
    for name, ours in asdict(identity).items():
        theirs = getattr(stated, name)
        if ours != theirs:
            what = _DIFFERENT.get(name, f"another {name}")
            return Record(path, identity), f"{path}: it is of {what}"
    return Record(path, identity, found["launches"], found["lost"]), ""


_DIFFERENT = {"calls": "other functions, sizes or inputs", "driver": "another version of the driver"}


def _digest(key: LaunchKey) -> str:
    return hashlib.sha256(repr(key).encode()).hexdigest()
