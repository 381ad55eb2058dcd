"""Files that are replaced as a whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coilpack.runtime.atomic import atomic_file, atomic_folder, write_atomically
from coilpack.runtime.errors import InputError


def test_the_whole_content_or_the_old_one(tmp_path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def interrupted() -> None:
        with atomic_file(path) as file:
            file.write(b"new")
            file.flush()
            assert path.read_bytes() == b"old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"old")]
    write_atomically(path, b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"new")]


@pytest.mark.parametrize(("name", "words"), [("none/file", "No such file"), ("folder", "Is a directory")])
def test_what_cannot_be_written_is_named_and_leaves_nothing(tmp_path, name: str, words: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=f"{tmp_path / name} cannot be written: {words}"):
        write_atomically(tmp_path / name, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_no_room(tmp_path) -> None:
    """A limit on the size of files stands for a full disk; it is set in a process of its own."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    program = (
        "import resource, sys\n"
        "from coilpack.runtime.atomic import write_atomically\n"
        "from coilpack.runtime.errors import InputError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    write_atomically(sys.argv[1], bytes(2000))\n"
        "except InputError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert done.stdout == f"{path} cannot be written: File too large\n"
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"old")]


def test_errors_about_other_files_pass_through(tmp_path) -> None:
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "file"):
        (tmp_path / "source").open("rb")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(16, "Device or resource busy")])
@pytest.mark.parametrize("done", [0, 1])
def test_a_folder_is_there_whatever_ends_its_replacement(tmp_path, monkeypatch, error, done) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old").touch()
    rename, calls = os.rename, []

    def interrupted(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == done + 1:
            raise error
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    expected = InputError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected), atomic_folder(folder, lambda: None) as made:
        (made / "new").touch()
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["folder", "folder/old"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_to_a_folder_is_followed(tmp_path, there) -> None:
    if there:
        (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    with atomic_folder(tmp_path / "link", lambda: None) as made:
        (made / "new").touch()
    assert (tmp_path / "link").is_symlink()
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["new"]
