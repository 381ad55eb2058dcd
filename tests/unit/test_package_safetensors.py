"""Headers of safetensors files: what breaks the format is refused."""

from __future__ import annotations

import json
import struct

import pytest

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.package.safetensors import Tensor, pack_header, read_header


def file(header: object, data: bytes = b"") -> memoryview:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return memoryview(struct.pack("<Q", len(text)) + text + data)


def entry(dtype: object = "U8", shape: object = (4,), offsets: object = (0, 4)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_what_is_written_is_read() -> None:
    header = pack_header(
        [("a", DType.f32, (2, 3)), ("b/№", DType.i1, ()), ("c", DType.complex64, (2,)), ("d", DType.i8, (0,))]
    )
    assert len(header) % 64 == 0
    tensors, start = read_header(memoryview(header + bytes(24 + 1 + 16)), "x")
    assert start == len(header)
    assert tensors["a"] == Tensor("a", "F32", (2, 3), 0, 24)
    assert tensors["b/№"] == Tensor("b/№", "BOOL", (), 24, 25)
    assert tensors["c"] == Tensor("c", "F32", (2, 2), 25, 41)
    assert tensors["d"] == Tensor("d", "I8", (0,), 41, 41)


def test_metadata_and_narrow_types_are_read() -> None:
    header = {"__metadata__": {"format": "pt"}, "a": entry("F4", [8], [0, 4]), "b": entry("F8_E8M0", [2], [4, 6])}
    assert set(read_header(file(header, bytes(6)), "x")[0]) == {"a", "b"}


_CASES = {
    "short": (memoryview(b"1234567"), "it has 7 bytes; a safetensors file has at least 8"),
    "long header": (memoryview(struct.pack("<Q", 100) + b"{}"), "the header has 100 bytes; the limit is 2"),
    "longest header": (memoryview(b"\xff" * 8), "the header has 18446744073709551615 bytes; the limit is 0"),
    "not JSON": (file(b"{]"), "header: it is not JSON"),
    "not UTF-8": (file(b'{"\xff": 1}'), "header: it is not JSON"),
    "deep JSON": (file(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "nested too deeply"),
    "a list": (file([]), "the JSON is not an object"),
    "key twice": (file(b'{"a": 1, "a": 2}'), "the key 'a' is there twice"),
    "inner key twice": (file(b'{"a": {"dtype": "U8", "dtype": "I8"}}'), "the key 'dtype' is there twice"),
    "no object": (file({"a": 3}), "tensor 'a': it must be an object of dtype, shape and data_offsets"),
    "more keys": (file({"a": entry() | {"x": 1}}, bytes(4)), "tensor 'a': it must be an object"),
    "dtype": (file({"a": entry("U9")}, bytes(4)), "its dtype is 'U9'; known are BOOL, I8"),
    "dtype kind": (file({"a": entry(["U8"])}, bytes(4)), "its dtype is"),
    "negative size": (file({"a": entry(shape=[-4])}, bytes(4)), "its shape must be a list"),
    "fraction": (file({"a": entry(shape=[4.0])}, bytes(4)), "its shape must be a list"),
    "boolean": (file({"a": entry(shape=[True], offsets=[0, 1])}, bytes(1)), "its shape must be a list"),
    "many dimensions": (file({"a": entry(shape=[1] * 65)}, bytes(4)), "up to 64 sizes"),
    "huge number": (file(b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,4]}}'), "not JSON"),
    "three offsets": (file({"a": entry(offsets=[0, 2, 4])}, bytes(4)), "data_offsets must be two numbers"),
    "backwards": (file({"a": entry(offsets=[4, 0])}, bytes(4)), "data_offsets must be two numbers"),
    "size": (file({"a": entry("F32")}, bytes(4)), r"4 bytes of data for F32 elements of shape \[4\], which take 16"),
    "product": (file({"a": entry(shape=[2**62, 2**62, 4])}, bytes(4)), "4 bytes of data for U8"),
    "overlap": (
        file({"a": entry(), "b": entry(offsets=[3, 7])}, bytes(7)),
        "tensor 'b': it overlaps the tensor before it: it starts at byte 3 of the data, but that before it ends at 4",
    ),
    "gap": (file({"a": entry(), "b": entry(offsets=[5, 9])}, bytes(9)), "tensor 'b': it leaves a gap"),
    "out of bounds": (file({"a": entry()}, bytes(3)), "its tensors take 4 bytes, but 3 bytes of data follow"),
    "more data": (file({"a": entry()}, bytes(5)), "its tensors take 4 bytes, but 5 bytes of data follow"),
}


@pytest.mark.parametrize("case", _CASES)
def test_refused(case: str) -> None:
    data, message = _CASES[case]
    with pytest.raises(InvalidFileError, match=message):
        read_header(data, "w.safetensors")
