"""Packages that earlier versions wrote are read as they were meant."""

from pathlib import Path

import numpy as np
import pytest

from coilpack import runtime
from coilpack.runtime.package import Package
from coilpack.runtime.program.text import print_program

FOLDER = Path(__file__).parent / "packages"
PACKAGES = sorted(FOLDER.glob("*.coil"))


def test_there_is_one_of_each_version() -> None:
    names = ["candidates", "every_operation", "square", "state"]
    assert [path.stem for path in PACKAGES] == [f"{name}-0.1.0" for name in names]


@pytest.mark.parametrize("path", [p for p in PACKAGES if p.with_suffix(".txt").exists()], ids=lambda path: path.stem)
def test_read(path: Path) -> None:
    with Package.open(path) as package:
        package.verify()
        assert print_program(package.program) == path.with_suffix(".txt").read_text("utf-8")
        for target in package.program.targets:
            for image in target.images:
                assert bytes(package.image(image.entry)) == f"content of {image.entry}".encode()
        for storage in package.program.storages:
            assert bytes(package.storage(storage.name)) == bytes(range(storage.nbytes))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("square-*.coil")), ids=lambda path: path.stem)
def test_run_from_another_folder(path: Path, tmp_path, monkeypatch) -> None:
    """A package is one file: it needs neither the folder it was made in nor the one it is called from."""
    moved = tmp_path / "renamed.package"
    moved.write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    with runtime.open(moved.name, device="emulator") as program:
        moved.unlink()
        y = program(np.array([1, 2, -3, 4], np.float32))
    np.testing.assert_array_equal(y.numpy(), [1, 4, 9, 16])
