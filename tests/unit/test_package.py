"""Packages: what is written is read back, by others too; what is not whole is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import struct
import subprocess
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from program_samples import one_target, small_program

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError, InvalidFileError, NotFoundError
from coilpack.runtime.package import Package, StorageData, Zeros, write_package
from coilpack.runtime.package.archive_writer import ArchiveWriter
from coilpack.runtime.package.crc import crc32_of_zeros
from coilpack.runtime.program import ir
from coilpack.runtime.program.codec import encode_program
from coilpack.runtime.program.text import print_program

PROGRAM = small_program()
EXECUTABLES = {
    image.entry: f"content of {image.entry}".encode() * 5 for target in PROGRAM.targets for image in target.images
}
WEIGHT, BIAS = bytes(range(256)), np.arange(16, dtype=np.float32).tobytes()
STORAGES = [
    StorageData("layer.0/weight", DType.bf16, (8, 16), lambda: [WEIGHT[:100], memoryview(WEIGHT)[100:]]),
    StorageData("bias", DType.f32, (16,), lambda: iter([BIAS])),
]


@pytest.fixture
def package_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.coil"
    write_package(path, PROGRAM, EXECUTABLES, STORAGES)
    return path


def with_storages(*sizes: int) -> ir.Program:
    """A program that has storages `w0`, `w1`... and does nothing."""
    storages = tuple(ir.Storage(f"w{index}", size) for index, size in enumerate(sizes))
    return ir.Program("tests", (), storages, ())


# --- what is written is read ---


def test_round_trip(package_file: Path) -> None:
    with Package.open(package_file) as package:
        assert package.path == package_file
        assert print_program(package.program) == print_program(PROGRAM)
        assert {entry: bytes(package.image(entry)) for entry in EXECUTABLES} == EXECUTABLES
        assert bytes(package.storage("layer.0/weight")) == WEIGHT
        assert bytes(package.storage("bias")) == BIAS
        package.verify()


def test_views_are_aligned_and_not_copied(package_file: Path) -> None:
    with Package.open(package_file) as package:
        for entry in EXECUTABLES:
            address = np.frombuffer(package.image(entry), np.uint8).ctypes.data
            assert address % 64 == 0
        view = package.storage("bias")
        assert np.frombuffer(view, np.float32).ctypes.data % 64 == 0  # widest elements first, data at 64 bytes
        assert view.readonly


def test_views_outlive_the_package(package_file: Path) -> None:
    package = Package.open(package_file)
    view = package.storage("bias")
    package.close()
    package.close()
    assert bytes(view) == BIAS


def test_names_that_are_not_there(package_file: Path) -> None:
    with closing(Package.open(package_file)) as package:
        with pytest.raises(NotFoundError, match="no storage named 'bios'; nearest: 'bias'"):
            package.storage("bios")
        with pytest.raises(NotFoundError, match=r"no image named 'program\.fb'"):
            package.image("program.fb")


def test_entries_are_sorted_stored_and_aligned(package_file: Path) -> None:
    with zipfile.ZipFile(package_file) as archive:
        infos = archive.infolist()
        assert archive.testzip() is None
        assert [info.filename for info in infos] == sorted([*EXECUTABLES, "program.fb", "weights.safetensors"])
        for info in infos:
            assert info.compress_type == zipfile.ZIP_STORED
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            data = package_file.read_bytes()
            name, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
            start = info.header_offset + 30 + name + extra
            assert start % (4096 if info.filename == "weights.safetensors" else 64) == 0
            assert data[start : start + info.file_size] == archive.read(info)


@pytest.mark.skipif(shutil.which("unzip") is None, reason="needs unzip")
def test_unzip_reads_it(package_file: Path, tmp_path: Path) -> None:
    subprocess.run(["unzip", "-q", package_file, "-d", tmp_path / "out"], check=True)
    assert (tmp_path / "out" / "program.fb").read_bytes() == encode_program(PROGRAM)


def test_same_bytes_anywhere_and_in_any_order(package_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "other.coil"
    other.parent.mkdir()
    write_package(other, PROGRAM, dict(reversed(EXECUTABLES.items())), STORAGES[::-1])
    assert other.read_bytes() == package_file.read_bytes()


def test_bytes_of_an_archive(tmp_path: Path) -> None:
    """The layout to the byte, as docs/formats.md states it."""
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 10, 0, 0, 0, 33, zlib.crc32(b"abc"), 3, 3, 5, 29)
    padding = struct.pack("<3H23x", 0xD935, 25, 64)
    central = struct.pack(
        "<4s6H3I5H2I",
        b"PK\1\2",
        3 << 8 | 45,
        10,
        0,
        0,
        0,
        33,
        zlib.crc32(b"abc"),
        3,
        3,
        5,
        0,
        0,
        0,
        0,
        0o100644 << 16,
        0,
    )
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, 51, 67, 0)
    expected = local + b"a.bin" + padding + b"abc" + central + b"a.bin" + end
    assert archive(tmp_path / "x.zip", ("a.bin", b"abc")).read_bytes() == expected


def test_program_without_storages_has_no_weights(tmp_path: Path) -> None:
    path = tmp_path / "x.coil"
    write_package(path, ir.Program("tests", (), (), ()), {}, [])
    assert zipfile.ZipFile(path).namelist() == ["program.fb"]
    with Package.open(path) as package:
        package.verify()


@pytest.mark.parametrize("dtype", list(DType))
def test_every_element_type(dtype: DType, tmp_path: Path) -> None:
    path = tmp_path / "x.coil"
    data = bytes(range(6 * dtype.itemsize))
    write_package(path, with_storages(len(data)), {}, [StorageData("w0", dtype, (2, 3), lambda: [data])])
    with Package.open(path) as package:
        assert bytes(package.storage("w0")) == data


# --- weights beside the package ---


def test_weights_beside(tmp_path: Path) -> None:
    path = tmp_path / "model.v1.coil"
    write_package(path, PROGRAM, EXECUTABLES, STORAGES, weights="beside")
    assert "weights.safetensors" not in zipfile.ZipFile(path).namelist()
    with Package.open(path) as package:
        assert bytes(package.storage("bias")) == BIAS
        package.verify()
    (tmp_path / "model.v1.safetensors").unlink()
    with pytest.raises(InvalidFileError, match=r"no 'weights\.safetensors', and there is no 'model\.v1\.safetensors'"):
        Package.open(path)


def test_the_safetensors_library_reads_our_weights(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors")
    path = tmp_path / "model.coil"
    write_package(path, PROGRAM, EXECUTABLES, STORAGES, weights="beside")
    beside = path.with_suffix(".safetensors").read_bytes()
    found = dict(library.deserialize(beside))
    assert (found["bias"]["dtype"], found["bias"]["shape"], bytes(found["bias"]["data"])) == ("F32", [16], BIAS)
    assert found["layer.0/weight"]["dtype"] == "BF16"
    assert found["layer.0/weight"]["shape"] == [8, 16]
    assert bytes(found["layer.0/weight"]["data"]) == WEIGHT
    write_package(path, PROGRAM, EXECUTABLES, STORAGES)
    assert zipfile.ZipFile(path).read("weights.safetensors") == beside


def test_we_read_what_the_safetensors_library_wrote(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "model.coil"
    write_package(path, PROGRAM, EXECUTABLES, STORAGES, weights="beside")
    arrays = {
        "bias": np.frombuffer(BIAS, np.float32),
        "layer.0/weight": np.frombuffer(WEIGHT, np.uint8),
        "more": np.ones((3, 3), np.float16),
    }
    numpy.save_file(arrays, path.with_suffix(".safetensors"), metadata={"format": "np"})
    with Package.open(path) as package:
        assert bytes(package.storage("layer.0/weight")) == WEIGHT
        assert bytes(package.storage("bias")) == BIAS


# --- large weights ---


def test_zeros_have_the_crc_of_zeros() -> None:
    for count in (0, 1, 2, 7, 255, 4096, 1_000_003):
        assert crc32_of_zeros(count, 0x12345678) == zlib.crc32(bytes(count), 0x12345678)
    assert crc32_of_zeros(3) == zlib.crc32(bytes(3))


def _large(path: Path) -> tuple[int, ir.Program]:
    """A package with 5 GiB of weights, nearly all a hole, and an executable behind them."""
    gigabytes = 5 * 2**30
    program = one_target(PROGRAM)
    image = ir.Image(ir.ImageKind.PTX, "zz/late.cda1")
    target = dataclasses.replace(program.targets[0], images=(image,))
    program = dataclasses.replace(
        program, targets=(target,), storages=(*program.storages, ir.Storage("huge", gigabytes))
    )
    huge = StorageData("huge", DType.ui8, (gigabytes,), lambda: [b"start", Zeros(gigabytes - 8), b"end"])
    write_package(path, program, {"zz/late.cda1": b"late" * 40}, [*STORAGES, huge])
    return gigabytes, program


def test_weights_over_4_gib(tmp_path: Path) -> None:
    path = tmp_path / "large.coil"
    gigabytes, program = _large(path)
    assert path.stat().st_size > gigabytes
    assert path.stat().st_blocks * 512 < 2**20, "the hole was written"
    with Package.open(path) as package:
        assert print_program(package.program) == print_program(program)
        huge = package.storage("huge")
        assert (huge.nbytes, bytes(huge[:6]), bytes(huge[-4:])) == (gigabytes, b"start\0", b"\0end")
        assert bytes(package.image("zz/late.cda1")) == b"late" * 40
        assert bytes(package.storage("bias")) == BIAS
    with zipfile.ZipFile(path) as archive:
        late, weights = archive.getinfo("zz/late.cda1"), archive.getinfo("weights.safetensors")
        assert late.header_offset > 2**32
        assert archive.read(late) == b"late" * 40
        assert weights.file_size > gigabytes
        with archive.open(weights) as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            assert b'"huge":{"dtype":"U8","shape":[5368709120]' in stream.read(length)


@pytest.mark.slow
def test_crc_of_weights_over_4_gib(tmp_path: Path) -> None:
    path = tmp_path / "large.coil"
    _large(path)
    with Package.open(path) as package:
        package.verify()
    assert zipfile.ZipFile(path).testzip() is None


def test_writing_holds_one_chunk_at_a_time(tmp_path: Path) -> None:
    count, size = 32, 1 << 20

    def chunks() -> Iterable[bytes]:
        for index in range(count):
            yield bytes([index]) * size

    tracemalloc.start()
    data = StorageData("w0", DType.ui8, (count * size,), chunks)
    write_package(tmp_path / "x.coil", with_storages(count * size), {}, [data])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * size
    with Package.open(tmp_path / "x.coil") as package:
        assert hashlib.sha256(package.storage("w0")).digest() == hashlib.sha256(b"".join(chunks())).digest()


# --- writing fails whole ---


def failing() -> Iterable[bytes]:
    yield b"x" * 32
    raise RuntimeError("the source of the weights failed")


_WRONG: dict[str, tuple[dict[str, bytes], list[StorageData], str]] = {
    "no executable": ({}, STORAGES, r"'executables/sm_80\.cubin\.cda1': there is no executable for it"),
    "unknown executable": ({**EXECUTABLES, "x": b""}, STORAGES, "'x': the program has no such image"),
    "no storage": (EXECUTABLES, STORAGES[:1], "storage 'bias': there is no data for it"),
    "unknown storage": (
        EXECUTABLES,
        [*STORAGES, dataclasses.replace(STORAGES[0], name="b")],
        "storage 'b': the program has no such storage",
    ),
    "storage twice": (EXECUTABLES, [*STORAGES, STORAGES[0]], "two storages of the package have the same name"),
    "storage size": (
        EXECUTABLES,
        [STORAGES[0], dataclasses.replace(STORAGES[1], shape=(15,))],
        r"storage 'bias': f32 of shape \(15,\), which takes 60 bytes; the program has 64",
    ),
    "few bytes": (
        EXECUTABLES,
        [STORAGES[0], dataclasses.replace(STORAGES[1], chunks=lambda: [b"x" * 63])],
        "storage 'bias': its chunks have 63 bytes, not 64",
    ),
    "many bytes": (
        EXECUTABLES,
        [STORAGES[0], dataclasses.replace(STORAGES[1], chunks=lambda: [BIAS, b"x"])],
        "storage 'bias': its chunks have more than 64 bytes, not 64",
    ),
}


@pytest.mark.parametrize("case", _WRONG)
def test_wrong_arguments_leave_the_old_file(case: str, package_file: Path) -> None:
    executables, storages, message = _WRONG[case]
    before = package_file.read_bytes()
    with pytest.raises(InputError, match=message):
        write_package(package_file, PROGRAM, executables, storages)
    assert package_file.read_bytes() == before
    assert os.listdir(package_file.parent) == [package_file.name]


def test_error_of_a_source_leaves_the_old_file(package_file: Path) -> None:
    before = package_file.read_bytes()
    storages = [STORAGES[0], dataclasses.replace(STORAGES[1], chunks=failing)]
    with pytest.raises(RuntimeError, match="the source of the weights failed"):
        write_package(package_file, PROGRAM, EXECUTABLES, storages)
    assert package_file.read_bytes() == before
    assert os.listdir(package_file.parent) == [package_file.name]


@pytest.mark.parametrize("entry", ["../x", "/x", "a//b", "a\\b", "C:x", ".hidden", "größe", "program.fb", "x" * 256])
def test_entry_names_that_are_not_written(entry: str, tmp_path: Path) -> None:
    program = one_target(PROGRAM)
    target = dataclasses.replace(program.targets[0], images=(ir.Image(ir.ImageKind.PTX, entry),))
    program = dataclasses.replace(program, targets=(target,))
    with pytest.raises(InputError, match="package entry"):
        write_package(tmp_path / "x.coil", program, {entry: b"x"}, STORAGES)
    assert not list(tmp_path.iterdir())


# --- archives that are refused ---


def archive(path: Path, *entries: tuple[str, bytes], alignment: int = 64) -> Path:
    with path.open("wb") as file:
        writer = ArchiveWriter(file)
        for name, data in entries:
            writer.add(name, len(data), [data], alignment)
        writer.finish()
    return path


EMPTY = encode_program(ir.Program("tests", (), (), ()))


def test_hand_made_archive_is_read(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.coil", ("program.fb", EMPTY), ("notes.txt", b"more is allowed"))
    with Package.open(path) as package:
        assert package.program.producer == "tests"


@pytest.mark.parametrize("name", ["../program.fb", "/etc/passwd", "a/../b", "a\\b", "C:evil", "a//b", "", "a/", "."])
def test_hostile_names(name: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.coil", ("program.fb", EMPTY), (name, b"x"))
    with pytest.raises(InvalidFileError, match="central directory: entry 1: its name is"):
        Package.open(path)


def test_name_twice(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.coil", ("program.fb", EMPTY), ("program.fb", EMPTY))
    with pytest.raises(InvalidFileError, match=r"entry 'program\.fb': it is there twice"):
        Package.open(path)


def test_unaligned(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.coil", ("program.fb", EMPTY), alignment=1)
    with pytest.raises(InvalidFileError, match="its data starts at byte 40, which is not a multiple of 64"):
        Package.open(path)


def test_no_program(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.coil", ("other", b"x"))
    with pytest.raises(InvalidFileError, match=r"it has no entry 'program\.fb'; its entries: other"):
        Package.open(path)


def test_image_that_is_not_there(tmp_path: Path) -> None:
    program = encode_program(one_target(PROGRAM))
    with pytest.raises(InvalidFileError, match=r"target sm_80: its image 'executables/sm_80\.ptx\.cda1' is not there"):
        Package.open(archive(tmp_path / "x.coil", ("program.fb", program)))


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_compressed(method: int, tmp_path: Path) -> None:
    path = tmp_path / "x.coil"
    with zipfile.ZipFile(path, "w", method) as made:
        made.writestr("program.fb", EMPTY)
    with pytest.raises(InvalidFileError, match="compressed, encrypted or streamed"):
        Package.open(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data + b"x", "no end-of-archive record"),
        (lambda data: b"x" * 64 + data, "the directory ends at"),
        (lambda data: data[:-2] + b"\1\0", "no end-of-archive record"),
        (lambda data: data[:100], "no end-of-archive record"),
        (lambda data: data[:0], "it has 0 bytes"),
        (lambda data: data.replace(b"content of", b"CONTENT OF", 1), "its CRC-32 is 0x"),
        (lambda data: data.replace(b"PK\1\2", b"PK\1\3", 1), "entry 0: its record at byte .* is damaged"),
        (lambda data: data.replace(b"PK\3\4", b"PK\3\5", 1), "its local header at byte 0 is damaged"),
        (lambda data: data.replace(b"program.fb", b"program.xx", 1), "its local header at byte .* differs"),
    ],
)
def test_damage_by_kind(change, message: str, package_file: Path) -> None:
    package_file.write_bytes(change(package_file.read_bytes()))
    with pytest.raises(InvalidFileError, match=message):
        Package.open(package_file)


def test_damaged_weights_are_found_by_verify(package_file: Path) -> None:
    data = package_file.read_bytes()
    package_file.write_bytes(data.replace(BIAS, BIAS[::-1], 1))
    with (
        Package.open(package_file) as package,
        pytest.raises(InvalidFileError, match=r"'weights\.safetensors': its CRC"),
    ):
        package.verify()


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidFileError, match=r"none\.coil: it cannot be opened: No such file"):
        Package.open(tmp_path / "none.coil")


def test_storage_sizes_must_agree(tmp_path: Path) -> None:
    path = tmp_path / "x.coil"
    write_package(
        path, with_storages(8), {}, [StorageData("w0", DType.ui8, (8,), lambda: [b"x" * 8])], weights="beside"
    )
    other = tmp_path / "y.coil"
    write_package(
        other, with_storages(4), {}, [StorageData("w0", DType.ui8, (4,), lambda: [b"x" * 4])], weights="beside"
    )
    shutil.copy(tmp_path / "y.safetensors", tmp_path / "x.safetensors")
    with pytest.raises(InvalidFileError, match="storage 'w0': the file has 4 bytes; the program wants 8 bytes"):
        Package.open(path)
