"""Folders of modules with their bundles: those recorded on a GPU, what damage is refused, and what they bind."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coilpack.compiler import register
from coilpack.compiler.freezing.kernel_bundle import Autotuner, CompiledConfiguration, KernelArtifact, KernelBundle
from coilpack.compiler.freezing.recorded_bundle import DOCUMENT, MODULE, read_bundle, write_bundle
from coilpack.compiler.freezing.registration import Misfit, RegistrationError
from coilpack.runtime.errors import CoilpackError, InputError, InvalidFileError

RECORDED = Path(__file__).parents[1] / "compile/data/bundles"
PLACEHOLDER = "Placeholder.DESCRIPTIVE_NAME"
NAMES = ["convolution", "epilogue", "reductions", "transformer", "user_kernels"]
SMALL = "user_kernels"


def document(folder: Path) -> dict[str, Any]:
    return json.loads((folder / DOCUMENT).read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a recorded bundle, to be damaged."""
    return Path(shutil.copytree(RECORDED / SMALL, tmp_path / SMALL))


# --- what was recorded ---


def test_every_recorded_bundle_is_tested() -> None:
    assert sorted(path.name for path in RECORDED.iterdir() if path.is_dir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_what_was_recorded_on_a_gpu_binds_every_kernel(name: str) -> None:
    source, bundle = read_bundle(RECORDED / name)
    done = register(source, bundle)
    assert list(done.bound) == re.findall(r"^(\w+) = async_compile\.triton\(", source, re.MULTILINE)
    assert done.ignored == ((PLACEHOLDER,) if name == "epilogue" else ())
    for one in done.bound.values():
        assert one.artifact.ptx is not None
        assert f".entry {one.configuration.symbol}(" in one.artifact.ptx
        assert ".target sm_90a" in one.artifact.ptx
        assert one.artifact.cubin is not None
        assert one.artifact.cubin.startswith(b"\x7fELF")
        assert one.artifact.metadata["num_warps"] == one.configuration.num_warps


@pytest.mark.parametrize("name", NAMES)
def test_what_was_bound_is_saved_and_binds_the_same_again(name: str, tmp_path: Path) -> None:
    source, bundle = read_bundle(RECORDED / name)
    first = register(source, bundle)
    write_bundle(tmp_path / "cut", source, first.bundle)
    assert read_bundle(tmp_path / "cut") == (source, first.bundle)
    second = register(*read_bundle(tmp_path / "cut"))
    assert (second.bound, second.bundle, second.ignored) == (first.bound, first.bundle, ())
    winners = {one.configuration.kernel_hash for one in first.bound.values()}
    files = {path.name for path in (tmp_path / "cut").iterdir()}
    assert files == {MODULE, DOCUMENT} | {f"{winner}.{part}" for winner in winners for part in ("ptx", "cubin")}


def test_a_leftover_of_a_fusion_is_not_saved() -> None:
    source, bundle = read_bundle(RECORDED / "epilogue")
    (leftover,) = (entry for entry in bundle.autotuners if entry.kernel_name == PLACEHOLDER)
    (lost,) = (result.kernel_hash for result in leftover.results)
    kept = register(source, bundle).bundle
    assert lost in bundle.artifacts
    assert lost not in kept.artifacts
    assert PLACEHOLDER not in {entry.kernel_name for entry in kept.autotuners}


@pytest.mark.parametrize("name", NAMES)
def test_provenance_says_where_it_was_recorded(name: str) -> None:
    where = document(RECORDED / name)["provenance"]
    assert set(where) == {"torch", "triton", "device", "driver", "command", "date"}
    assert all(where.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_artifact_of_a_loser_may_be_missing_and_a_winner_s_cubin_may_not(name: str) -> None:
    source, bundle = read_bundle(RECORDED / name)
    whole = register(source, bundle)
    lost = {result.kernel_hash for entry in bundle.autotuners for result in entry.results} - set(whole.bundle.artifacts)
    assert lost  # of tuning, or of a fusion
    for loser in lost & set(bundle.artifacts):
        rest = {key: value for key, value in bundle.artifacts.items() if key != loser}
        assert register(source, replace(bundle, artifacts=rest)) == whole
    for kernel, one in whole.bound.items():
        winner = one.configuration.kernel_hash
        damaged = {**bundle.artifacts, winner: replace(one.artifact, cubin=None)}
        with pytest.raises(RegistrationError) as caught:
            register(source, replace(bundle, artifacts=damaged))
        sharing = [k for k, other in whole.bound.items() if other.configuration.kernel_hash == winner]
        assert kernel in sharing
        assert caught.value.misfits == {Misfit.NO_CUBIN: tuple(f"{k!r} ({winner})" for k in sharing)}


def test_kernels_that_were_not_tuned_ask_for_a_run() -> None:
    source, bundle = read_bundle(RECORDED / "transformer")
    untuned = tuple(replace(entry, winner=None) for entry in bundle.autotuners)
    several = [entry.kernel_name for entry in untuned if len(entry.results) > 1]
    with pytest.raises(RegistrationError, match="run the compiled model once on the GPU") as caught:
        register(source, replace(bundle, autotuners=untuned))
    assert sorted(caught.value.misfits[Misfit.NO_WINNER]) == sorted(map(repr, several))
    assert several


def test_the_bundle_of_another_module_is_refused() -> None:
    source, _ = read_bundle(RECORDED / "convolution")
    _, other = read_bundle(RECORDED / "reductions")
    with pytest.raises(RegistrationError, match="give the bundle of the same compilation as the module") as caught:
        register(source, other)
    assert list(caught.value.misfits) == [Misfit.NO_ENTRY]


# --- folders that are damaged ---


def _change(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        found = document(folder)
        change(found)
        (folder / DOCUMENT).write_text(json.dumps(found))

    return damage


def _ptx(folder: Path) -> Path:
    return min(folder.glob("*.ptx"))


def _not_utf8(folder: Path) -> None:
    (folder / MODULE).write_bytes(b"# \xff\n")
    _change(lambda d: d.update(module=hashlib.sha256(b"# \xff\n").hexdigest()))(folder)


def _renamed(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda d: d["artifacts"].update({name: d["artifacts"].pop(min(d["artifacts"]))})


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda f: (f / DOCUMENT).unlink(), InputError, r"bundle\.json' cannot be read: No such file"),
        (lambda f: (f / MODULE).unlink(), InputError, r"module\.py\.txt' cannot be read: No such file"),
        (lambda f: _ptx(f).unlink(), InputError, r"\.ptx' cannot be read: No such file"),
        (lambda f: min(f.glob("*.cubin")).unlink(), InputError, r"\.cubin' cannot be read: No such file"),
        (lambda f: (f / DOCUMENT).write_text("{"), InvalidFileError, r"bundle\.json: it is not JSON: .* line 1"),
        (lambda f: (f / DOCUMENT).write_text("[]"), InvalidFileError, r"bundle\.json: the JSON is not an object"),
        (lambda f: _ptx(f).write_text("//"), InvalidFileError, r"\.ptx: its SHA-256 is [0-9a-f]{64}, and bundle\.json"),
        (lambda f: (f / MODULE).write_text("#"), InvalidFileError, r"module\.py\.txt: its SHA-256 is"),
        (_not_utf8, InvalidFileError, r"module\.py\.txt: byte 2: it is not UTF-8"),
        (_change(lambda d: d.update(version=2)), InvalidFileError, r"version: it is 2; versions up to 1 can be read"),
        (_change(lambda d: d.update(format="x")), InvalidFileError, r"format: it is 'x'"),
        (_change(lambda d: d.pop("module")), InvalidFileError, r"module: it is missing"),
        (_change(lambda d: d.update(more=1)), InvalidFileError, r"more: there is no such field"),
        (_change(lambda d: d["autotuners"][0].pop("winner")), InvalidFileError, r"autotuners\[0\].*winner"),
        (
            _change(lambda d: d["autotuners"][0].update(kernel_name=3)),
            InvalidFileError,
            r"autotuners\[0\]\.kernel_name",
        ),
        (
            _change(lambda d: d["autotuners"][0]["results"][0].update(num_warps=0)),
            InvalidFileError,
            r"autotuners\[0\]\.results\[0\]\.num_warps",
        ),
        (
            _change(lambda d: d["autotuners"][0]["results"][0].update(values={"XBLOCK": [1]})),
            InvalidFileError,
            r"values.*XBLOCK.*must be a number, a string or null",
        ),
        (_change(_renamed("../kernel")), InvalidFileError, r"artifacts\['\.\./kernel'\]: it names no kernel"),
        (_change(_renamed("/etc/kernel")), InvalidFileError, r"it names no kernel"),
        (_change(_renamed("")), InvalidFileError, r"it names no kernel"),
        (_change(_renamed("K" * 201)), InvalidFileError, r"it names no kernel"),
    ],
)
def test_a_damaged_folder_is_refused(
    folder: Path, damage: Callable[[Path], object], error: type[CoilpackError], message: str
) -> None:
    damage(folder)
    with pytest.raises(error, match=message):
        read_bundle(folder)


def test_a_part_that_the_bundle_lacked_is_null_and_no_damage(tmp_path: Path) -> None:
    configuration = CompiledConfiguration("H", "k", {"XBLOCK": 64, "FLAG": True, "NAME": "x", "NONE": None}, 4, 1)
    bundle = KernelBundle((Autotuner("k", (configuration,)),), {"H": KernelArtifact(None, None, {"shared": 0})})
    write_bundle(tmp_path / "b", "# ü\n", bundle)
    assert read_bundle(tmp_path / "b") == ("# ü\n", bundle)
    assert document(tmp_path / "b")["artifacts"] == {"H": {"ptx": None, "cubin": None, "metadata": {"shared": 0}}}


# --- where folders are written ---


@pytest.mark.parametrize("name", ["../out", "a/b", "", "ü", "a.b"])
def test_a_kernel_cannot_name_a_file_elsewhere(tmp_path: Path, name: str) -> None:
    bundle = KernelBundle((), {name: KernelArtifact("//", b"x", {})})
    with pytest.raises(InputError, match="cannot name a file"):
        write_bundle(tmp_path / "b", "", bundle)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_replaced_only_if_it_was_written_before(folder: Path) -> None:
    source, bundle = read_bundle(folder)
    write_bundle(folder, source, replace(bundle, artifacts={}))
    assert {path.name for path in folder.iterdir()} == {MODULE, DOCUMENT}
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds 'notes\.txt', which is no part of a recorded bundle"):
        write_bundle(folder, source, bundle)
    assert (folder / "notes.txt").read_text() == "mine"
    with pytest.raises(InputError, match="is a file; a recorded bundle is a folder"):
        write_bundle(folder / "notes.txt", source, bundle)
