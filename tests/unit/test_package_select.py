"""Packages written anew with the candidates that were chosen: byte for byte what the writer makes of that program."""

from __future__ import annotations

import dataclasses
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from candidate_samples import (
    ADD,
    KERNELS,
    NARROW,
    SCALE,
    WIDE,
    candidate_executable,
    candidate_program,
    storages,
    write_candidates,
)
from program_samples import READ, WRITE, pointer, tensor
from runtime_samples import PTX

from coilpack import runtime
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InvalidFileError, NotFoundError
from coilpack.runtime.executable import BindingFlags, Executable, Export, read_executable, write_executable
from coilpack.runtime.package import Package, StorageData, Zeros, write_package
from coilpack.runtime.package.select import select_candidates
from coilpack.runtime.program import ir
from coilpack.runtime.program.select import select

GEMM = Path(__file__).parents[1] / "bench" / "data"
GEMM_NAME = "main_dispatch_000_triton_tem_fused_addmm_t_view_000"
CHOICES = {SCALE.export_name: NARROW.export_name}


def selected(source: Path, target: Path, name: str = "sm_80", choices: dict[str, str] | None = None) -> bytes:
    with Package.open(source) as package:
        select_candidates(package, target, name, CHOICES if choices is None else choices)
    return target.read_bytes()


@pytest.mark.parametrize(
    "choices", [CHOICES, {SCALE.export_name: WIDE.export_name}, {}], ids=["narrow", "wide", "none"]
)
def test_bytes_are_those_of_the_writer(tmp_path, choices):
    made = candidate_program("sm_80", "sm_90")
    write_candidates(tmp_path / "m.coil", made)
    write_candidates(tmp_path / "expected.coil", select(made, "sm_90", choices))
    assert (
        selected(tmp_path / "m.coil", tmp_path / "n.coil", "sm_90", choices)
        == (tmp_path / "expected.coil").read_bytes()
    )


def test_the_selected_package_runs(tmp_path):
    write_candidates(tmp_path / "m.coil", candidate_program())
    selected(tmp_path / "m.coil", tmp_path / "n.coil")
    x = np.arange(40, dtype=np.float32)
    with Package.open(tmp_path / "n.coil") as package:
        package.verify()
        (image,) = package.program.targets[0].images
        assert [e.name for e in read_executable(package.image(image.entry)).exports] == ["add", NARROW.export_name]
    with runtime.open(tmp_path / "n.coil", device="emulator") as program:
        np.testing.assert_array_equal(program(x, function="dynamic").numpy(), x)


def test_a_package_may_replace_itself(tmp_path):
    path = tmp_path / "m.coil"
    write_candidates(path, candidate_program(), weights="beside")
    weights = (tmp_path / "m.safetensors").stat()
    write_candidates(tmp_path / "n.coil", select(candidate_program(), "sm_80", CHOICES), weights="beside")
    assert selected(path, path) == (tmp_path / "n.coil").read_bytes()
    assert (tmp_path / "m.safetensors").stat().st_ino == weights.st_ino


def test_weights_beside_the_package_are_copied_beside_the_new_one(tmp_path):
    write_candidates(tmp_path / "m.coil", candidate_program(), weights="beside")
    selected(tmp_path / "m.coil", tmp_path / "n.coil")
    assert (tmp_path / "n.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()
    assert zipfile.ZipFile(tmp_path / "n.coil").namelist() == ["executables/sm_80.ptx.cda1", "program.fb"]
    with Package.open(tmp_path / "n.coil") as package:
        package.storage("w")


def gemm(kind: str, names: list[str]) -> bytes:
    image = (GEMM / f"gemm.{kind}").read_bytes()
    flags = (BindingFlags.READ_ONLY,) * 3 + (BindingFlags(0),)
    exports = tuple(Export(i, name, f"{name}$", (64, 1, 1), i, 49152, 0, flags) for i, name in enumerate(names))
    return write_executable(
        Executable(tuple(image.replace(GEMM_NAME.encode(), name.encode()) for name in names), exports)
    )


def test_every_form_of_the_kernels_is_cut(tmp_path):
    names = [GEMM_NAME.replace("000", f"{index:03}") for index in range(4)]
    kind = tensor(DType.f16, 16, 384)
    arguments = tuple(ir.Argument(name, kind) for name in "abcd")
    signature = ir.Signature("main", arguments, ())
    parameters = (*(pointer(DType.f16, READ) for _ in range(3)), pointer(DType.f16, WRITE))
    kernels = tuple(ir.Kernel(f"{name}$", parameters) for name in names)
    values = tuple(ir.Value(argument.name, kind) for argument in arguments)
    alternatives = tuple(ir.Alternative(kernel, (1, 1, 1)) for kernel in kernels[1:])
    body = ir.Function(signature, values, (ir.Dispatch(kernels[0], (6, 1, 1), values, alternatives), ir.Return(())))
    images = tuple(ir.Image(kind, f"executables/sm_80.{kind.name.lower()}.cda1") for kind in ir.ImageKind)
    made = ir.Program("tests", (signature,), (), (ir.Target("sm_80", images, kernels, (body,)),))
    choices = {kernels[0].export_name: kernels[2].export_name}

    def write(path: Path, program: ir.Program, kept: list[str]) -> None:
        write_package(path, program, {image.entry: gemm(image.kind.name.lower(), kept) for image in images}, [])

    write(tmp_path / "m.coil", made, names)
    write(tmp_path / "expected.coil", select(made, "sm_80", choices), [names[2]])
    written = selected(tmp_path / "m.coil", tmp_path / "n.coil", choices=choices)
    assert written == (tmp_path / "expected.coil").read_bytes()


def test_a_module_stays_while_one_of_its_kernels_does(tmp_path):
    """Two kernels share the last module, and modules are not in the order of kernels."""
    text = PTX.format(target="sm_80", version="8.7")
    start, end = (text.index(f".visible .entry {symbol}(") for symbol in ("scale", "add"))
    shared = text[:end] + text[start:end].replace("scale", "scale_c2")
    _, add, wide, _ = (bytes(module) for module in read_executable(candidate_executable()).modules)
    exports = tuple(
        dataclasses.replace(export, module_ordinal=number)
        for export, number in zip(read_executable(candidate_executable()).exports, (2, 0, 1, 2), strict=True)
    )
    made = candidate_program()
    (image,) = made.targets[0].images
    executable = write_executable(Executable((add, wide, shared.encode()), exports))
    write_package(tmp_path / "m.coil", made, {image.entry: executable}, storages())
    selected(tmp_path / "m.coil", tmp_path / "n.coil", choices={SCALE.export_name: WIDE.export_name})
    selected(tmp_path / "m.coil", tmp_path / "o.coil", choices=CHOICES)
    found = []
    for name in ("n.coil", "o.coil"):
        with Package.open(tmp_path / name) as package:
            found.append(read_executable(bytes(package.image(image.entry))))
    assert [[(e.name, e.module_ordinal) for e in one.exports] for one in found] == [
        [(ADD.export_name, 0), (WIDE.export_name, 1)],
        [(ADD.export_name, 0), (NARROW.export_name, 1)],
    ]
    assert [[bytes(module) for module in one.modules] for one in found] == [[add, wide], [add, shared.encode()]]


def test_large_weights_are_never_in_memory_at_once(tmp_path):
    size = 64_000_000
    target = ir.Target("sm_80", (ir.Image(ir.ImageKind.PTX, "x"),), KERNELS, ())
    program = ir.Program("tests", (), (ir.Storage("w", size),), (target,))
    weights = StorageData("w", DType.ui8, (size,), lambda: [Zeros(size)])
    write_package(tmp_path / "m.coil", program, {"x": candidate_executable()}, [weights])
    with Package.open(tmp_path / "m.coil") as package:
        tracemalloc.start()
        try:
            select_candidates(package, tmp_path / "n.coil", "sm_80", {})
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (tmp_path / "n.coil").stat().st_size > size
    assert peak < 8_000_000


def test_damaged_weights_are_not_copied(tmp_path):
    path = tmp_path / "m.coil"
    write_candidates(path, candidate_program())
    data = bytearray(path.read_bytes())
    at = data.index(np.float32([10, 20, 30, 40]).tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidFileError, match=r"entry 'weights\.safetensors': its CRC-32"):
        selected(path, tmp_path / "n.coil")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.coil"]


def test_nothing_is_written_for_a_choice_that_there_is_not(tmp_path):
    write_candidates(tmp_path / "m.coil", candidate_program())
    with pytest.raises(NotFoundError, match="has no candidate named 'add'"):
        selected(tmp_path / "m.coil", tmp_path / "n.coil", choices={SCALE.export_name: "add"})
    assert not (tmp_path / "n.coil").exists()
