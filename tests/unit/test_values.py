"""The text notation of arrays: what IREE prints and reads, exact round trips, and messages that point at the fault."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.values import format_type, format_value, parse_value

# Input given to, and result line printed by, iree-run-module 3.13.0 for the identity function on a local device.
IREE_LINES = [
    ("2x3xf32=[1 2.5 3][-0.0000123456789 1e20 123456789]", "2x3xf32=[1 2.5 3][-1.23457E-05 1E+20 1.23457E+08]"),
    ("f32=3.14159265", "f32=3.14159"),
    ("8xf32=inf,-inf,nan,-nan,1e-30,0.1,1234567,100000", "8xf32=INF -INF NAN -NAN 1E-30 0.1 1.23457E+06 100000"),
    ("4xf16=1 0.1 65504 1e-8", "4xf16=1 0.0999756 65504 0"),
    ("4xbf16=1 0.1 3e38 -0", "4xbf16=1 0.100098 3.00406E+38 -0"),
    ("2xi1=00 01", "2xi1=00 01"),
    ("3xi8=-128 127 0x10", "3xi8=-128 127 16"),
    ("3xui8=255 1 8", "3xui8=255 1 8"),
    ("2x2x2xi64=[[1 2][3 4]][[5 6][7 8]]", "2x2x2xi64=[[1 2][3 4]][[5 6][7 8]]"),
    ("0xf32=", "0xf32="),
    ("2x0xf32", "2x0xf32=[][]"),
    ("3xf8E4M3FN=1.1 448 nan", "3xf8E4M3FN=1.125 448 NAN"),
    ("3xf8E5M2=1.1 inf nan", "3xf8E5M2=1 INF NAN"),
    ("2x4xi32=7", "2x4xi32=[7 7 7 7][7 7 7 7]"),
    ("2x4xi32", "2x4xi32=[0 0 0 0][0 0 0 0]"),
    ("2x2xi32=1 2 3 4", "2x2xi32=[1 2][3 4]"),
]


@pytest.mark.parametrize(("given", "printed"), IREE_LINES, ids=[line[0] for line in IREE_LINES])
def test_prints_what_iree_prints(given: str, printed: str) -> None:
    assert format_value(parse_value(given)) == printed


@pytest.mark.parametrize(("limit", "printed"), [(5, "2x4xi32=[1 2 3 4][5...]"), (3, "2x4xi32=[1 2 3...][...]")])
def test_elides_as_iree_does(limit: int, printed: str) -> None:
    assert format_value(parse_value("2x4xi32=1 2 3 4 5 6 7 8"), max_elements=limit) == printed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4xf32=1,2,3,4", np.array([1, 2, 3, 4], np.float32)),
        ("  4xf32=1, 2 3\t4 \n", np.array([1, 2, 3, 4], np.float32)),
        ('"2xi32=1 2"', np.array([1, 2], np.int32)),
        ("2xi1=true 0", np.array([True, False])),
        ("i32=5", np.array(5, np.int32)),
        ("2xsi8=-1 1", np.array([-1, 1], np.int8)),
        ("2xcf64=1+2j -3j", np.array([1 + 2j, 0 - 3j], np.complex64)),
        ("2x2xi32=[[1 2][3 4]]", np.array([[1, 2], [3, 4]], np.int32)),
        ("ui64=18446744073709551615", np.array(2**64 - 1, np.uint64)),
        ("3xbf16=0.5", np.full(3, 0.5, ml_dtypes.bfloat16)),
    ],
)
def test_reads(text: str, expected: np.ndarray) -> None:
    found = parse_value(text)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, "element type is missing"),
        ("4x", 3, "element type is missing"),
        ("4xf33=1", 3, "'f33' is not an element type"),
        ("-4xf32", 1, "'-4' is not an element type"),
        ("4xf32x2=1", 6, "expected '='"),
        ("3.14", 1, "not an element type"),
        ("4xf32=1 2 3", 12, "3 elements; 4xf32 has 4"),
        ("2xf32=1 2 3", 11, "'3' is one too many"),
        ("0xf32=1", 7, "one too many"),
        ("2xf32=1 x", 9, "'x' is not an f32"),
        ("2xf32=1 1_0", 9, "'1_0' is not an f32"),
        ("2xi32=1 2.5", 9, "'2.5' is not an i32"),
        ("i8=128", 4, "out of range for i8: -128 to 127"),
        ("ui8=-1", 5, "out of range for ui8: 0 to 255"),
        ("i32=010", 5, "'010' is not an i32"),
        ("f16=65520", 5, "out of range for f16"),
        ("f64=1e999", 5, "out of range for f64"),
        ("f8E4M3FN=inf", 10, "out of range for f8E4M3FN"),
        ("i1=2", 4, "expected 0, 1, true or false"),
        ("cf64=i", 6, "expected a number as 1+2j"),
        ("2x2xi32=[1 2][3 4", 14, "'[' is not closed"),
        ("2xi32=1 2]", 10, "closes nothing"),
        ("2x3xi32=[1 2][3 4 5 6]", 13, "brackets around 2 elements; 2x3xi32 has 3 or 6"),
        ("1x" * 65 + "f32=1", 1, "65 dimensions; the limit is 64"),
        ("99999999999x9999999xf32=1", 1, "does not fit in memory"),
        ("99999999999999999999xf32", 1, "does not fit in memory"),
    ],
)
def test_names_the_column_and_what_it_expected(text: str, column: int, words: str) -> None:
    with pytest.raises(InputError, match=f"column {column}: ") as caught:
        parse_value(text)
    assert words in str(caught.value)


def test_quotes_only_the_neighbourhood_of_a_fault_in_a_long_text() -> None:
    text = "1000xf32=" + "1 " * 500 + "oops " + "1 " * 499
    with pytest.raises(InputError, match="'oops' is not an f32") as caught:
        parse_value(text)
    assert len(str(caught.value)) < 200


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Arrays of every element type, with arbitrary bits."""
    dtype = draw(st.sampled_from(list(DType)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    count = int(np.prod(shape, dtype=int))
    raw = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    bits = bytes(byte & 1 for byte in raw) if dtype is DType.i1 else raw
    return np.frombuffer(bits, dtype.numpy).reshape(shape)


@settings(max_examples=400, deadline=None)
@given(arrays())
def test_round_trips_exactly_with_enough_digits(array: np.ndarray) -> None:
    found = parse_value(format_value(array, digits=17))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    wide = np.complex128 if array.dtype.kind == "c" else None if array.dtype.kind in "biu" else np.float64
    if wide is None:
        np.testing.assert_array_equal(found, array)
    else:  # a NaN has no payload in text; everything else is equal, and so is the sign of zero
        np.testing.assert_array_equal(found.astype(wide), array.astype(wide))
        assert format_value(found, digits=17) == format_value(array, digits=17)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789xfibuc=[], .-+eEnaM", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    assume(len(text.split("=")[0]) <= 8)  # a long shape is a huge allocation by request
    try:
        found = parse_value(text)
    except InputError as error:
        found, problem = None, str(error)
    assert isinstance(found, np.ndarray) or "column" in problem


def test_type_names() -> None:
    assert format_type(DType.f32, (2, 3)) == "2x3xf32"
    assert format_type(DType.complex128, ()) == "cf128"
    assert format_type(DType.bf16, ("s0", 4)) == "s0x4xbf16"


def test_refuses_to_print_what_has_no_notation() -> None:
    with pytest.raises(InputError, match="datetime64"):
        format_value(np.array(["2020-01-01"], "datetime64[D]"))


class TestFiles:
    def test_npy(self, tmp_path) -> None:
        array = np.arange(6, dtype=">i4").reshape(2, 3)
        np.save(tmp_path / "x.npy", np.asfortranarray(array))
        found = parse_value(f"@{tmp_path / 'x.npy'}")
        assert found.dtype == np.dtype("=i4")
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, array)

    def test_scalar_npy_stays_a_scalar(self, tmp_path) -> None:
        np.save(tmp_path / "x.npy", np.float32(2))
        assert format_value(parse_value(f"@{tmp_path / 'x.npy'}")) == "f32=2"

    def test_npy_of_bf16_needs_its_type(self, tmp_path) -> None:
        array = np.array([1, 2, 3], ml_dtypes.bfloat16)
        path = tmp_path / "x.npy"
        np.save(path, array)
        with pytest.raises(InputError, match="3xbf16=@"):
            parse_value(f"@{path}")
        assert format_value(parse_value(f"3xbf16=@{path}")) == "3xbf16=1 2 3"
        with pytest.raises(InputError, match="expected 4xbf16, found 3x"):
            parse_value(f"4xbf16=@{path}")

    def test_raw_bytes(self, tmp_path) -> None:
        (tmp_path / "x.bin").write_bytes(np.arange(4, dtype="<f4").tobytes())
        found = parse_value(f"2x2xf32=@{tmp_path / 'x.bin'}")
        assert format_value(found) == "2x2xf32=[0 1][2 3]"
        assert found.flags.writeable
        with pytest.raises(InputError, match="takes 20 bytes, the file has 16"):
            parse_value(f"5xf32=@{tmp_path / 'x.bin'}")

    @pytest.mark.parametrize(
        ("name", "contents", "words"),
        [
            ("x.npy", b"", "not a readable .npy file"),
            ("x.npy", b"\x93NUMPY\x01\x00v\x00", "not a readable .npy file"),
            ("x.npy", b"hello world", "not a readable .npy file"),
            ("x.bin", b"1234", "write as 4xf32=@"),
        ],
    )
    def test_unreadable(self, tmp_path, name: str, contents: bytes, words: str) -> None:
        (tmp_path / name).write_bytes(contents)
        with pytest.raises(InputError, match=words):
            parse_value(f"@{tmp_path / name}")

    def test_pickled_objects_are_refused(self, tmp_path) -> None:
        np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
        with pytest.raises(InputError, match="not a readable"):
            parse_value(f"@{tmp_path / 'x.npy'}")

    def test_archives_are_refused(self, tmp_path) -> None:
        with (tmp_path / "x.npy").open("wb") as file:
            np.savez(file, a=np.zeros(2))
        with pytest.raises(InputError, match="several arrays"):
            parse_value(f"@{tmp_path / 'x.npy'}")
