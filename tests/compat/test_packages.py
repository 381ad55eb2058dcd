"""Packages that earlier versions wrote are read as they were meant."""

from pathlib import Path

import pytest

from coilpack.runtime.package import Package
from coilpack.runtime.program.text import print_program

PACKAGES = sorted((Path(__file__).parent / "packages").glob("*.coil"))


def test_there_is_one_of_each_version() -> None:
    assert [path.stem for path in PACKAGES] == ["every_operation-0.1.0"]


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.stem)
def test_read(path: Path) -> None:
    with Package.open(path) as package:
        package.verify()
        assert print_program(package.program) == path.with_suffix(".txt").read_text("utf-8")
        for target in package.program.targets:
            for image in target.images:
                assert bytes(package.image(image.entry)) == f"content of {image.entry}".encode()
        assert bytes(package.storage("layer.0/weight")) == bytes(range(256))
        assert bytes(package.storage("bias")) == bytes(range(64))
