"""The whole compile, in the processes that users get: files, cache, reproducibility, errors."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from coilpack.compiler import driver  # noqa: E402
from coilpack.compiler.driver import CompileOptions, compile_package  # noqa: E402
from coilpack.compiler.pt2 import Pt2File  # noqa: E402
from coilpack.compiler.target_process import Work  # noqa: E402
from coilpack.compiler.targets import TARGETS  # noqa: E402
from coilpack.runtime.errors import InputError, InvalidFileError, NotFoundError, UnsupportedError  # noqa: E402
from coilpack.runtime.files import read_executables  # noqa: E402
from coilpack.runtime.package import Package  # noqa: E402
from coilpack.runtime.program.ir import ImageKind  # noqa: E402
from coilpack.runtime.program.parser import parse_program  # noqa: E402
from coilpack.runtime.program.text import print_program  # noqa: E402
from coilpack.runtime.tuning.report import TuningReport  # noqa: E402

MODEL = textwrap.dedent(
    """
    import torch

    def make():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.GELU()), (torch.zeros(4, 32),)

    def unsupported():
        class Inverse(torch.nn.Module):
            def forward(self, x):
                return torch.linalg.inv(x @ x.T)
        return Inverse(), (torch.zeros(4, 32),)

    def wrong():
        return 3
    """
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """Shared: what the first test compiles, the one of text need not compile again."""
    return tmp_path_factory.mktemp("cache")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_two_targets_compile_into_one_file_of_equal_bytes_from_the_cache_and_anywhere(source, tmp_path, cache) -> None:
    options = CompileOptions(targets=("sm_80", "sm_90"), cache=cache)
    first = compile_package({"main": f"{source}:make"}, tmp_path / "first.coil", options)
    assert first.cached_targets == ()
    again = compile_package({"main": f"{source}:make"}, tmp_path / "again.coil", options)
    assert again.cached_targets == ("sm_80", "sm_90")
    assert _digest(first.output) == _digest(again.output)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    copy = folder / "model.py"
    copy.write_text(source.read_text())
    anew = compile_package({"main": f"{copy}:make"}, folder / "anew.coil", replace(options, cache=None))
    assert _digest(first.output) == _digest(anew.output)
    assert str(tmp_path).encode() not in first.output.read_bytes()
    with Package.open(first.output) as package:
        assert [target.name for target in package.program.targets] == ["sm_80", "sm_90a"]
        assert [s.name for s in package.program.storages] == ["0.bias", "0.weight"]
    assert {(e.target, e.image_kind) for e in read_executables(first.output)} == {
        ("sm_80", "ptx"),
        ("sm_80", "cubin"),
        ("sm_90a", "ptx"),
        ("sm_90a", "cubin"),
    }


def test_what_decides_the_code_of_a_target_is_in_the_key_of_its_bundle(tmp_path, monkeypatch) -> None:
    files = {name: Pt2File(tmp_path / name, {"model.json": name}) for name in ("a", "b")}

    def key(*order: str, **changed: object) -> str:
        exported = {name: files[name] for name in order}
        work = Work(exported, [], (ImageKind.PTX,), None, "highest", "triton", None, 1, None, None, tmp_path, print)
        return driver._bundle_key(replace(work, **changed), TARGETS["sm_80"])

    keys = [key("a", "b"), key("b", "a"), key("a"), key("a", "b", float32_matmul_precision="high")]
    keys += [
        key("a", "b", matmul="cublaslt"),
        key("a", "b", image_kinds=(ImageKind.CUBIN,)),
        key("a", "b", fused_buffers=16),
        key("a", "b", candidates=2),
        key("a", "b", tuning=TuningReport("", "", "", "", "sm_80", "us", (), ())),
    ]
    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32")
    keys.append(key("a", "b"))
    assert len(set(keys)) == len(keys)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert key("a", "b") == keys[-1]
    assert key("a", "b", tuning=TuningReport("", "", "", "", "sm_90a", "us", (), ())) == keys[-1]  # another target's


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


def test_text_parses_back(source, tmp_path, cache) -> None:
    options = CompileOptions(emit="text", cache=cache)
    output = compile_package({"main": f"{source}:make"}, tmp_path / "out.mlir", options).output
    text = output.read_text()
    assert print_program(parse_program(text)) == text


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("model.py:unsupported", {}, UnsupportedError, r"aten\.linalg_inv_ex\S* at \S*model.py:11"),
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


@pytest.mark.parametrize(
    ("output", "message"),
    [("absent/out.coil", "no folder"), (".", "is a folder"), ("model.pt2", "is the input too")],
)
def test_an_output_that_cannot_be_is_reported_before_any_work(tmp_path, output: str, message: str) -> None:
    source = tmp_path / "model.pt2"
    source.write_bytes(b"never read")
    with pytest.raises(InputError, match=message):
        compile_package({"main": source}, tmp_path / output, CompileOptions())
    assert source.read_bytes() == b"never read"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_is_not_writable_is_reported_before_any_work(tmp_path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(InputError, match="its folder is not writable"):
        compile_package({"main": "absent.pt2"}, tmp_path / "out.coil", CompileOptions())


CUSTOM = textwrap.dedent(
    """
    import torch
    import triton
    import triton.language as tl
    from torch.library import triton_op, wrap_triton

    @triton.jit
    def kernel(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

    @triton_op("coilpack_driver_test::twice", mutates_args={})
    def twice(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        wrap_triton(kernel)[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
        return out

    class Twice(torch.nn.Module):
        def forward(self, x):
            return twice(x)

    def make():
        return Twice(), (torch.zeros(300),)
    """
)


def test_kernels_of_the_models_author_are_found_and_a_change_in_them_is_seen(tmp_path) -> None:
    path, options = tmp_path / "custom.py", CompileOptions(image="ptx", cache=tmp_path / "cache")
    products = []
    for factor in ("* 2", "* 3"):
        path.write_text(CUSTOM.replace("* 2", factor))
        report = compile_package({"main": f"{path}:make"}, tmp_path / "out.coil", options)
        (executable,) = read_executables(report.output)
        assert [export.name for export in executable.exports] == ["main_dispatch_0_kernel_0"]
        products.append(bytes(executable.modules[0]))
    assert products[0] != products[1]


def _processes(folder: Path) -> list[str]:
    """Command lines of the processes that compile with a scratch folder in `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:  # it has ended, or is another user's
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to see the processes of another")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])
def test_an_interrupt_ends_all_processes_and_leaves_nothing(tmp_path, number: int, status: int) -> None:
    scratch, model = tmp_path / "scratch", tmp_path / "model.pt2"
    scratch.mkdir()
    torch.export.save(torch.export.export(torch.nn.Linear(32, 48), (torch.zeros(4, 32),)), model)
    command = [sys.executable, "-m", "coilpack.cli", "compile", str(model), "-o", str(tmp_path / "out.coil")]
    process = subprocess.Popen(
        [*command, "--no-cache", "--target", "sm_80,sm_90"],
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background, SIGINT is ignored, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "compiling" in line:  # both processes run now, and the first has workers of its own
            break
    process.send_signal(number)
    begin = time.monotonic()
    process.communicate()
    assert process.returncode == status
    assert time.monotonic() - begin < 20
    assert [p.name for p in scratch.iterdir()] == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.pt2", "scratch"]
    while _processes(scratch):  # workers end by themselves once nobody speaks to them
        assert time.monotonic() - begin < 30, _processes(scratch)
        time.sleep(0.1)
