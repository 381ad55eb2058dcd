"""`coilpack extract`: what it writes, what it calls it, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from executable_samples import SMALL_PTX, export, full
from state_samples import write_state_package
from vmfb_samples import module

from coilpack.cli.main import main
from coilpack.runtime.executable import Executable, read_executable, write_executable
from coilpack.runtime.extract import MAX_STEM_CHARACTERS, Part, extract, write_parts
from coilpack.runtime.package import Package
from coilpack.runtime.program.parser import parse_program
from coilpack.runtime.program.text import print_program
from coilpack.runtime.vmfb import read_vmfb

IREE = Path(__file__).resolve().parents[1] / "compat" / "iree"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def run(source: Path, folder: Path, *more: str) -> int:
    return main(["extract", str(source), "-o", str(folder), *more])


def kernels(name: str, count: int) -> bytes:
    """An executable whose kernels, in modules of their own, have names that begin with `name`."""
    exports = [export(index, f"{name}{index}", f"{name}${index}", module_ordinal=index) for index in range(count)]
    images = [SMALL_PTX.replace(b".entry k", f".entry {one.kernel_name}".encode()) for one in exports]
    return write_executable(Executable(tuple(images), tuple(exports)))


def test_a_module(tmp_path, capsys):
    source, folder = IREE / "names_dyn-3.13.0.vmfb", tmp_path / "a" / "b"
    assert run(source, folder) == 0
    found = files(folder)
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}/names_dyn-3.13.0.cda1: 2316 bytes",
        f"{folder}/names_dyn-3.13.0.ptx: 1927 bytes",
    ]
    (executable,) = read_vmfb(source.read_bytes()).executables
    assert found["names_dyn-3.13.0.ptx"] == bytes(executable.modules[0])
    assert found["names_dyn-3.13.0.cda1"] in source.read_bytes()
    assert len(found) == 2


def test_an_old_module_gets_a_header(tmp_path, capsys):
    source = IREE / "names_dyn-3.8.0.vmfb"
    assert run(source, tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(" bytes; a header was added")
    data = files(tmp_path)["names_dyn-3.8.0.cda1"]
    assert data[:4] == b"CDA1"
    assert data[64:] in source.read_bytes()
    (inside,) = read_vmfb(source.read_bytes()).executables
    assert read_executable(data).exports == inside.exports


@pytest.mark.parametrize("version", ["2.9.0", "3.13.0"])
def test_names_that_no_driver_takes_are_mended(tmp_path, capsys, version):
    source = IREE / f"names-{version}.vmfb"
    assert run(source, tmp_path) == 0
    assert "kernels that shared a name were given names of their own" in capsys.readouterr().out
    executable = read_executable(files(tmp_path)[f"names-{version}.cda1"])
    (inside,) = read_vmfb(source.read_bytes()).executables
    assert [e.kernel_name for e in executable.exports] == [e.symbol for e in inside.exports]
    assert [e.name_source for e in executable.exports] == [e.name_source for e in inside.exports]
    ptx = files(tmp_path)[f"names-{version}.ptx"].decode()
    assert re.findall(r"\.entry (\S+)\(", ptx) == [e.kernel_name for e in executable.exports]


def test_several_executables_in_a_module(tmp_path):
    source = tmp_path / "m.vmfb"
    source.write_bytes(module(kernels("a", 1), b"data", kernels("b", 2)[64:]))
    folder = tmp_path / "out"
    assert run(source, folder) == 0
    assert sorted(files(folder)) == ["m.0.cda1", "m.0.ptx", "m.1.b0.ptx", "m.1.b1.ptx", "m.1.cda1"]
    assert b".entry b1(" in files(folder)["m.1.b1.ptx"]


def test_modules_for_other_devices_are_refused(tmp_path, capsys):
    assert run(IREE / "other" / "names-vmvx-3.13.0.vmfb", tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert "no executable for CUDA devices; those that it has are vmvx-bytecode-fb" in error
    assert not (tmp_path / "out").exists()


def test_an_executable(tmp_path):
    source = tmp_path / "full.cda1"
    source.write_bytes(write_executable(full()))
    assert run(source, tmp_path) == 0  # into its own folder: the file itself is there already, and the same
    found = files(tmp_path)
    assert sorted(found) == ["full.0.ptx", "full.cda1", "full.k.ptx"]
    assert (found["full.0.ptx"], found["full.k.ptx"]) == tuple(bytes(image) for image in full().modules)


def test_a_package(tmp_path):
    source, folder = write_state_package(tmp_path / "state.coil"), tmp_path / "out"
    assert run(source, folder) == 0
    found = files(folder)
    with Package.open(source) as package:
        program = package.program
        entries = {image.entry: bytes(package.image(image.entry)) for t in program.targets for image in t.images}
    text = found.pop("state.program.txt").decode()
    assert text == print_program(program) == print_program(parse_program(text))
    weights = [{"name": storage.name, "bytes": storage.nbytes} for storage in program.storages]
    assert json.loads(found.pop("state.weights.json")) == weights
    assert weights
    assert {name: data for name, data in found.items() if name.endswith(".cda1")} == {
        f"state.{entry.removeprefix('executables/')}": data for entry, data in entries.items()
    }
    images = sorted(data for name, data in found.items() if name.endswith(".ptx"))
    assert images == sorted(bytes(image) for data in entries.values() for image in read_executable(data).modules)


def test_other_files_are_kept(tmp_path, capsys):
    source, folder = IREE / "names_dyn-3.13.0.vmfb", tmp_path / "out"
    assert run(source, folder) == 0
    written = files(folder)
    assert run(source, folder) == 0  # the same again
    (folder / "names_dyn-3.13.0.ptx").write_bytes(b"mine")
    (folder / "names_dyn-3.13.0.cda1").unlink()
    capsys.readouterr()
    assert run(source, folder) == 1
    assert "names_dyn-3.13.0.ptx is there and has other content; nothing was written" in capsys.readouterr().err
    assert files(folder) == {"names_dyn-3.13.0.ptx": b"mine"}
    assert run(source, folder, "--force") == 0
    assert files(folder) == written


def test_links_are_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"mine")
    for target in (other, tmp_path / "nowhere"):
        folder = tmp_path / f"out-{target.name}"
        folder.mkdir()
        (folder / "names_dyn-3.13.0.ptx").symlink_to(target)
        assert run(IREE / "names_dyn-3.13.0.vmfb", folder) == 1
        assert run(IREE / "names_dyn-3.13.0.vmfb", folder, "--force") == 0
        assert not (folder / "names_dyn-3.13.0.ptx").is_symlink()
    assert (other.read_bytes(), (tmp_path / "nowhere").exists()) == (b"mine", False)


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_what_is_no_folder_and_what_is_one(tmp_path, capsys, force):
    (tmp_path / "file").write_bytes(b"")
    assert run(IREE / "names_dyn-3.13.0.vmfb", tmp_path / "file" / "x", *force) == 1
    assert f"{tmp_path / 'file' / 'x'} cannot be made a folder: Not a directory" in capsys.readouterr().err
    (tmp_path / "names_dyn-3.13.0.ptx").mkdir()
    assert run(IREE / "names_dyn-3.13.0.vmfb", tmp_path, *force) == 1
    assert "names_dyn-3.13.0.ptx is a folder" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["file", "names_dyn-3.13.0.ptx"]


def test_long_and_strange_names(tmp_path):
    long = "k" * 300
    source = tmp_path / "ä b\n.cda1"
    source.write_bytes(kernels(long, 2))
    names = [part.name for part in extract(source)]
    assert names[0] == "__b_.cda1"
    assert len(set(names)) == 3
    for name in names[1:]:
        assert re.fullmatch(r"__b_\.k+_[0-9a-f]{16}\.ptx", name)
        assert len(name) == MAX_STEM_CHARACTERS + len(".ptx")
    assert [path.name for path in write_parts(extract(source), tmp_path / "out")] == names


def test_names_that_meet(tmp_path):
    source = tmp_path / "m.cda1"
    source.write_bytes(kernels("a", 1))
    upper = read_executable(kernels("A", 1))
    both = replace(upper, modules=(upper.modules[0], read_executable(kernels("a", 1)).modules[0]))
    exports = (*upper.exports, export(1, "a0", "a$0", module_ordinal=1))
    source.write_bytes(write_executable(replace(both, exports=exports)))
    assert [part.name for part in extract(source)] == ["m.cda1", "m.A0.ptx", "m.a0.2.ptx"]


def test_damaged_files_leave_nothing(tmp_path):
    source = tmp_path / "x.vmfb"
    source.write_bytes((IREE / "names_dyn-3.13.0.vmfb").read_bytes()[:-700])
    assert run(source, tmp_path / "out") == 1
    assert not (tmp_path / "out").exists()


def test_failures_leave_no_part_of_a_file(tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Exception, match="No space left"):
        write_parts([Part("x.ptx", b"content")], tmp_path)
    assert files(tmp_path) == {}


def test_it_takes_no_torch(tmp_path):
    code = (
        "import sys; from coilpack.cli.main import main; code = main(sys.argv[1:])\n"
        "sys.exit(code or any(name in sys.modules for name in ('torch', 'triton', 'coilpack.compiler')))"
    )
    arguments = ["extract", str(IREE / "names_dyn-3.13.0.vmfb"), "-o", str(tmp_path)]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)
    assert len(files(tmp_path)) == 2
