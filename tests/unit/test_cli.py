"""The command as users meet it: what it prints, where, and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from candidate_samples import candidate_program, write_candidates
from executable_samples import SMALL_PTX, export, full
from square_package import ENTRY, write_square_package

from coilpack.cli import main as cli_main
from coilpack.cli.main import main
from coilpack.cli.terminal import progress_printer
from coilpack.runtime.dtypes import DType
from coilpack.runtime.executable import Executable, Export, write_executable
from coilpack.runtime.package import StorageData, write_package
from coilpack.runtime.program.parser import parse_program

COMPAT = Path(__file__).resolve().parents[1] / "compat"
IREE = COMPAT / "iree"


@pytest.fixture
def executable_file(tmp_path) -> Path:
    path = tmp_path / "kernels.cda1"
    path.write_bytes(write_executable(full()))
    return path


@pytest.fixture
def state_file(tmp_path) -> Path:
    """A package of the sample program with globals, an integer, guards and seeds; its kernel does nothing."""
    text = (Path(__file__).parent / "data" / "programs" / "valid" / "state.txt").read_text("utf-8")
    program = parse_program(text)
    parameters = ".param .u64 a, .param .u64 b, .param .u32 c, .param .f32 d"
    ptx = f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry step({parameters})\n{{\n    ret;\n}}\n"
    executable = write_executable(Executable((ptx.encode(),), (Export(0, "step", "step", (32, 1, 1)),)))
    weights = [StorageData("w", DType.f32, (16,), lambda: [bytes(64)])]
    path = tmp_path / "state.coil"
    write_package(path, program, {program.targets[0].images[0].entry: executable}, weights)
    return path


@pytest.fixture
def package_file(tmp_path) -> Path:
    return write_square_package(tmp_path / "square.coil")


def inspect_json(path: Path, capsys) -> dict:
    assert main(["inspect", "--json", str(path)]) == 0
    return json.loads(capsys.readouterr().out)


class TestInspect:
    def test_executable_as_json(self, executable_file: Path, capsys) -> None:
        found = inspect_json(executable_file, capsys)
        assert found["kind"] == "executable"
        assert found["functions"] == []
        (executable,) = found["executables"]
        assert executable["target"] == "sm_80"
        assert executable["image"] == "ptx"
        assert executable["exports"] == [
            {
                "ordinal": 0,
                "export_name": "add$one",
                "kernel_name": "add_one",
                "name_source": "export_name",
                "symbol": "add_one",
                "block_dims": [128, 2, 1],
                "shared_memory_bytes": 0,
                "constant_count": 1,
                "binding_count": 2,
            },
            {
                "ordinal": 1,
                "export_name": "twice",
                "kernel_name": "twice",
                "name_source": "kernel_name",
                "symbol": "twice",
                "block_dims": [32, 1, 1],
                "shared_memory_bytes": 4096,
                "constant_count": 0,
                "binding_count": 1,
            },
            {
                "ordinal": 2,
                "export_name": "\u30ab\u30fc\u30cd\u30eb",
                "kernel_name": "k",
                "name_source": "export_name",
                "symbol": "k",
                "block_dims": [32, 1, 1],
                "shared_memory_bytes": 0,
                "constant_count": 0,
                "binding_count": 1,
            },
        ]

    def test_executable_for_people(self, executable_file: Path, capsys) -> None:
        assert main(["inspect", str(executable_file)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == f"{executable_file}: executable"
        assert lines[2].split() == ["#", "name", "symbol", "block", "shared", "bindings", "constants"]
        assert lines[3].split() == ["0", "add$one", "add_one", "128x2x1", "0", "2", "1"]
        assert lines[4].split() == ["1", "twice", "same", "32x1x1", "4096", "1", "0"]
        assert lines[-1].startswith("1 of 3 kernels have no export_name")

    @pytest.mark.parametrize(("version", "source"), [("3.13.0", "export_name"), ("2.9.0", "kernel_name")])
    def test_iree_module(self, version: str, source: str, capsys) -> None:
        found = inspect_json(IREE / f"names-{version}.vmfb", capsys)
        assert found["kind"] == "vmfb"
        exports = [export for executable in found["executables"] for export in executable["exports"]]
        assert exports
        assert {export["name_source"] for export in exports} == {source}
        decode = next(function for function in found["functions"] if function["name"] == "decode$step")
        assert decode["inputs"] == [{"name": "input0", "type": "tensor<8xf32>"}]
        assert decode["outputs"] == [{"name": "output0", "type": "tensor<8xf32>"}]

    def test_names_cannot_steer_the_terminal(self, tmp_path, capsys) -> None:
        path = tmp_path / "x.cda1"
        path.write_bytes(write_executable(Executable((SMALL_PTX,), (export(export_name="a\x1b[2J\nb[red]"),))))
        assert main(["inspect", str(path)]) == 0
        assert "  a\\x1b[2J\\nb[red]  " in capsys.readouterr().out

    def test_table_on_a_terminal(self, executable_file: Path) -> None:
        controller, terminal = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "coilpack.cli", "inspect", str(executable_file)],
            stdout=terminal,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        ) as process:
            os.close(terminal)
            shown = b""
            while chunk := _read(controller):
                shown += chunk
        assert process.returncode == 0
        text = shown.decode()
        assert "\u2503" in text  # a drawn table
        assert "add$one" in text

    def test_package_as_json(self, package_file: Path, capsys) -> None:
        found = inspect_json(package_file, capsys)
        assert found["kind"] == "package"
        assert found["producer"] == "test 1.0"
        assert found["weights"] == {"storages": 0, "bytes": 0}
        assert found["functions"] == [
            {
                "name": "main",
                "inputs": [{"name": "x", "type": "tensor<4xf32>"}],
                "outputs": [{"name": "y", "type": "tensor<4xf32>"}],
                "symbols": [],
                "guards": [],
                "random": False,
            }
        ]
        (executable,) = found["executables"]
        assert (executable["target"], executable["image"], executable["entry"]) == ("sm_80", "ptx", ENTRY)
        (export,) = executable["exports"]
        assert export["export_name"] == "main_dispatch_0_square$4"
        assert export["kernel_name"] == "main_dispatch_0_square_4"
        pointer = "ptr<f32, access = {}, alignment = 4>"
        assert export["parameters"] == [pointer.format("read"), pointer.format("write")]
        assert (export["cooperative"], export["grid"]) == (False, None)

    def test_state_and_conditions_as_json(self, state_file: Path, capsys) -> None:
        found = inspect_json(state_file, capsys)
        assert found["globals"] == [
            {"name": "cache", "bytes": 256, "initial": None},
            {"name": "start", "bytes": 64, "initial": "w"},
        ]
        (function,) = found["functions"]
        assert function["inputs"][1] == {"name": "n", "type": "integer (n)"}
        assert function["outputs"][0] == {"name": "", "type": "integer (n + 1)"}
        assert function["symbols"] == [
            {"name": "rows", "input": 0, "dim": 0, "minimum": 1, "maximum": 8},
            {"name": "n", "input": 1, "dim": None, "minimum": -1, "maximum": 8},
        ]
        assert (function["guards"], function["random"]) == (["(rows * n) <= 7"], True)
        (export,) = found["executables"][0]["exports"]
        assert (export["cooperative"], export["grid"]) == (True, ["((p2 + 127) floordiv 128)", "1", "1"])

    def test_state_and_conditions_for_people(self, state_file: Path, capsys) -> None:
        assert main(["inspect", str(state_file)]) == 0
        lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        at = lines.index("Conditions of a call")
        assert lines[at + 2 : at + 6] == [
            "main rows, in dimension 0 of x, is 1 to 8",
            "main n, in the value of n, is -1 to 8",
            "main (rows * n) <= 7",
            "main it draws random numbers: a seed is given",
        ]
        assert {"cache 256 zeros", "start 64 w"} <= set(lines)
        assert lines[-1].endswith("cooperative; grid ((p2 + 127) floordiv 128), 1, 1")

    def test_package_for_people(self, package_file: Path, capsys) -> None:
        assert main(["inspect", str(package_file)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[:2] == [f"{package_file}: package", "  producer test 1.0; 0 weights, 0 bytes"]
        assert lines[4].split() == ["main", "x:", "tensor<4xf32>", "y:", "tensor<4xf32>"]

    def test_candidates(self, tmp_path: Path, capsys) -> None:
        path = tmp_path / "m.coil"
        write_candidates(path, candidate_program("sm_80", "sm_90"))
        exports = inspect_json(path, capsys)["executables"][1]["exports"]
        assert [(e["configuration"], e["candidates"], e["candidate_for"]) for e in exports] == [
            ("", 2, []),
            ("", 0, []),
            ("XBLOCK=64", 0, ["scale$1"]),
            ("XBLOCK=1", 0, ["scale$1"]),
        ]
        assert main(["inspect", str(path)]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()[-4:]]
        assert [row[7:] for row in rows] == [["2"], [], ["XBLOCK=64", "for", "#0"], ["XBLOCK=1", "for", "#0"]]
        assert main(["verify", str(path)]) == 0
        counts = "kernels: 2 for sm_80 (and 2 candidates), 2 for sm_90 (and 2 candidates)"
        assert capsys.readouterr().out == f"{path}: valid package; {counts}\n"

    def test_package_as_text(self, package_file: Path, capsys) -> None:
        assert main(["inspect", "--text", str(package_file)]) == 0
        text = capsys.readouterr().out
        assert parse_program(text).producer == "test 1.0"
        assert "dispatch(%x, %y)" in text

    def test_text_is_for_packages(self, executable_file: Path, capsys) -> None:
        assert main(["inspect", "--text", str(executable_file)]) == 1
        assert "only packages" in capsys.readouterr().err


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the other end is closed
        return b""


class TestVerify:
    def test_sound_file(self, executable_file: Path, capsys) -> None:
        assert main(["verify", str(executable_file)]) == 0
        assert capsys.readouterr().out == f"{executable_file}: valid executable; kernels: 3 for sm_80\n"

    def test_damaged_file(self, executable_file: Path, capsys) -> None:
        executable_file.write_bytes(executable_file.read_bytes()[:-100])
        assert main(["verify", str(executable_file)]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"coilpack: error: {executable_file}: ")
        assert len(captured.err.splitlines()) == 1

    @pytest.mark.parametrize("contents", [b"", b"C", b"PK\x03\x04", b"hello world, this is no file of ours"])
    def test_other_files(self, tmp_path, contents: bytes, capsys) -> None:
        path = tmp_path / "x"
        path.write_bytes(contents)
        assert main(["verify", str(path)]) == 1
        assert str(path) in capsys.readouterr().err


class TestRunWithoutADevice:
    def test_says_what_the_input_lacks_before_it_opens_a_device(self, package_file: Path, capsys) -> None:
        assert main(["run", str(package_file), "--input", "4xf32=1", "--input", "4xf32=1,2,x,4"]) == 1
        assert "--input 1: value '4xf32=1,2,x,4': column 11: 'x' is not an f32" in capsys.readouterr().err

    def test_names_an_input_file_that_is_not_there(self, package_file: Path, capsys) -> None:
        assert main(["run", str(package_file), "--input", "@none.npy"]) == 1
        assert capsys.readouterr().err == "coilpack: error: --input 0: none.npy: No such file or directory\n"

    @pytest.mark.parametrize(
        ("file", "kind"),
        [("iree/names-3.13.0.vmfb", "an IREE module"), ("executables/full-0.1.0.cda1", "an executable")],
    )
    def test_says_that_other_kinds_of_files_hold_no_program(self, file: str, kind: str, capsys) -> None:
        assert main(["run", str(COMPAT / file)]) == 1
        assert f"{file}: it is {kind} (" in capsys.readouterr().err

    @pytest.mark.parametrize("device", ["cuda:x", "tpu"])
    def test_refuses_unknown_devices(self, package_file: Path, device: str, capsys) -> None:
        assert main(["run", str(package_file), "--device", device, "--input", "4xf32=1"]) == 1
        assert device in capsys.readouterr().err


class TestExitCodes:
    @pytest.mark.parametrize(
        "arguments",
        [
            ["nonsense"],
            ["inspect"],
            ["inspect", "--nonsense", "x"],
            ["inspect", "--json", "--text", "x"],
            ["compile", "x.pt2"],
            ["compile", "x.pt2", "-o", "y.coil", "--emit", "exe"],
            ["compile", "x.pt2", "-o", "y.coil", "--jobs", "0"],
        ],
    )
    def test_wrong_usage_is_2(self, arguments: list[str], capsys) -> None:
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "Usage: coilpack" in captured.err

    @pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"]])
    def test_help_is_0(self, arguments: list[str], capsys) -> None:
        assert main(arguments) == 0
        assert "coilpack" in capsys.readouterr().out

    @pytest.mark.parametrize("command", ["inspect", "verify", "run"])
    def test_missing_file_is_1(self, command: str, tmp_path, capsys) -> None:
        assert main([command, str(tmp_path / "none.coil")]) == 1
        error = capsys.readouterr().err
        assert error.startswith("coilpack: error: ")
        assert "none.coil" in error
        assert len(error.splitlines()) == 1

    def test_traceback_only_with_debug(self, tmp_path) -> None:
        command = [sys.executable, "-m", "coilpack.cli"]
        plain, debug = (
            subprocess.run(
                [*command, *flag, "verify", str(tmp_path / "none")], capture_output=True, text=True, check=False
            )
            for flag in ([], ["--debug"])
        )
        assert (plain.returncode, debug.returncode) == (1, 1)
        assert "Traceback" not in plain.stderr
        assert "Traceback" in debug.stderr

    def test_interrupt_is_130(self, monkeypatch, capsys) -> None:
        monkeypatch.setattr(cli_main.cli, "callback", _raise(KeyboardInterrupt()))
        assert main(["verify", "x"]) == 130
        assert "Traceback" not in capsys.readouterr().err

    def test_a_fault_of_the_program_is_70(self, monkeypatch, capsys) -> None:
        monkeypatch.setattr(cli_main.cli, "callback", _raise(ZeroDivisionError("boom")))
        assert main(["verify", "x"]) == 70
        assert "ZeroDivisionError: boom" in capsys.readouterr().err

    def test_a_closed_pipe_is_quiet(self, executable_file: Path) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as pipe:
            done = subprocess.run(
                [sys.executable, "-m", "coilpack.cli", "inspect", str(executable_file)],
                stdout=pipe,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert done.returncode == 1
        assert done.stderr == b""


def _raise(error: BaseException):
    def callback(**_: object) -> None:
        raise error

    return callback


def test_progress_shows_names_from_files_without_their_control_characters(capsys):
    with progress_printer() as progress:
        progress("kernel 1 of 2: k\x1b[2J\nits second line")
    assert capsys.readouterr().err == "kernel 1 of 2: k\\x1b[2J\nits second line\n"
