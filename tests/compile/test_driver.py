"""The whole compile, in the processes that users get: files, cache, reproducibility, errors."""

from __future__ import annotations

import hashlib
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from coilpack.compiler.driver import CompileOptions, compile_package  # noqa: E402
from coilpack.runtime.errors import InputError, InvalidFileError, NotFoundError, UnsupportedError  # noqa: E402
from coilpack.runtime.files import read_executables  # noqa: E402
from coilpack.runtime.package import Package  # noqa: E402
from coilpack.runtime.program.parser import parse_program  # noqa: E402
from coilpack.runtime.program.text import print_program  # noqa: E402

MODEL = textwrap.dedent(
    """
    import torch

    def make():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.GELU()), (torch.zeros(4, 32),)

    def unsupported():
        class TopK(torch.nn.Module):
            def forward(self, x):
                return torch.topk(x, 2)[0]
        return TopK(), (torch.zeros(4, 32),)

    def wrong():
        return 3
    """
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_two_targets_compile_into_one_file_and_again_from_the_cache_with_equal_bytes(source, tmp_path) -> None:
    options = CompileOptions(targets=("sm_80", "sm_90"), cache=tmp_path / "cache")
    first = compile_package({"main": f"{source}:make"}, tmp_path / "first.coil", options)
    assert first.cached_targets == ()
    again = compile_package({"main": f"{source}:make"}, tmp_path / "again.coil", options)
    assert again.cached_targets == ("sm_80", "sm_90")
    assert _digest(first.output) == _digest(again.output)
    with Package.open(first.output) as package:
        assert [target.name for target in package.program.targets] == ["sm_80", "sm_90a"]
        assert [s.name for s in package.program.storages] == ["0.bias", "0.weight"]
    assert {(e.target, e.image_kind) for e in read_executables(first.output)} == {
        ("sm_80", "ptx"),
        ("sm_80", "cubin"),
        ("sm_90a", "ptx"),
        ("sm_90a", "cubin"),
    }


def test_builds_in_different_folders_without_a_cache_have_equal_bytes(source, tmp_path) -> None:
    digests = set()
    for name in ("here", "there"):
        folder = tmp_path / name
        folder.mkdir()
        copy = folder / "model.py"
        copy.write_text(source.read_text())
        compile_package({"main": f"{copy}:make"}, folder / "out.coil", CompileOptions())
        content = (folder / "out.coil").read_bytes()
        assert str(tmp_path).encode() not in content
        digests.add(hashlib.sha256(content).hexdigest())
    assert len(digests) == 1


def test_an_executable_holds_the_kernels_under_their_export_names(source, tmp_path) -> None:
    options = CompileOptions(emit="cda1", image="ptx")
    output = compile_package({"my$fn": f"{source}:make"}, tmp_path / "out.cda1", options).output
    (executable,) = read_executables(output)
    (export,) = executable.exports
    assert export.export_name is not None
    assert export.export_name.startswith("my$fn_dispatch_0_triton_tem_")
    assert export.kernel_name == export.export_name.replace("$", "_")
    assert (export.binding_count, export.constant_count) == (4, 0)
    assert f".entry {export.kernel_name}(".encode() in bytes(executable.modules[export.module_ordinal])


def test_text_parses_back(source, tmp_path) -> None:
    output = compile_package({"main": f"{source}:make"}, tmp_path / "out.mlir", CompileOptions(emit="text")).output
    text = output.read_text()
    assert print_program(parse_program(text)) == text


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("model.py:unsupported", {}, UnsupportedError, r"aten\.topk\S* at \S*model.py:11"),
        ("model.py:wrong", {}, InputError, r"must return \(module, args\)"),
        ("model.py:absent", {}, InputError, "no callable 'absent'; it has .*make"),
        ("absent.pt2", {}, InputError, "no file"),
        ("garbage.pt2", {}, InvalidFileError, "not a .pt2 archive"),
        ("model.py:make", {"targets": ("sm_81",)}, NotFoundError, "nearest: 'sm_8"),
        ("model.py:make", {"targets": ()}, InputError, "no target"),
        ("model.py:make", {"ptx_version": "6.0"}, InputError, "does not know sm_80"),
        ("model.py:make", {"ptx_version": "new"}, InputError, "major.minor"),
        ("model.py:make", {"emit": "cda1"}, InputError, "one image kind"),
    ],
)
@pytest.mark.usefixtures("source")
def test_an_error_says_what_and_leaves_the_output_as_it_was(tmp_path, name, options, error, message) -> None:
    (tmp_path / "garbage.pt2").write_bytes(b"PK no")
    output = tmp_path / "out.coil"
    output.write_text("precious")
    with pytest.raises(error, match=message):
        compile_package({"main": str(tmp_path / name)}, output, CompileOptions(**options))
    assert output.read_text() == "precious"
    assert not list(tmp_path.glob("*.part"))


def test_a_missing_folder_is_reported_before_any_work(tmp_path) -> None:
    with pytest.raises(InputError, match="no folder"):
        compile_package({"main": "absent.pt2"}, tmp_path / "absent" / "out.coil", CompileOptions())
