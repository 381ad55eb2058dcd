"""Runs the README's examples, in order, in a copy of what they name, and compares what they print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A fenced block and the comment before it, which says what running it takes, or why it is not run.
_BLOCK = re.compile(
    r"<!-- (?P<key>needs|not run): (?P<value>[^\n]*) -->\n```(?P<language>\w+)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Example(NamedTuple):
    language: str
    body: str
    needs: frozenset[str]


def examples() -> list[Example]:
    text = (ROOT / "README.md").read_text()
    found = list(_BLOCK.finditer(text))
    assert len(found) == text.count("\n```") / 2, "a block without a comment that says what it needs"
    return [
        Example(match["language"], match["body"], frozenset(match["value"].split(", ")) - {"nothing"})
        for match in found
        if match["key"] == "needs"
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("samples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def run(example: Example, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(folder / "cache")}
    if example.language == "python":
        subprocess.run([sys.executable, "-c", example.body], cwd=folder, env=environment, check=True)
        return
    assert example.language == "console"
    for step in re.split(r"^\$ ", example.body, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        done = subprocess.run(
            shlex.split(command), cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        pattern = re.escape(expected).replace(re.escape("...\n"), r"(?:.*\n)*")
        assert re.fullmatch(pattern, done.stdout), f"{command} printed:\n{done.stdout}"


def run_all(folder: Path, has: set[str]) -> None:
    chosen = [example for example in examples() if example.needs <= has]
    assert chosen
    for example in chosen:
        run(example, folder)


def test_examples_that_need_nothing(folder: Path) -> None:
    run_all(folder, set())


@pytest.mark.compiler
def test_examples_that_need_the_compiler(folder: Path) -> None:
    run_all(folder, {"compiler"})


def test_the_files_that_it_names_exist() -> None:
    text = (ROOT / "README.md").read_text()
    named = re.findall(r"`((?:docs|samples|tests)/[\w./-]*|[A-Z]+\.md|LICENSE)`", text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
