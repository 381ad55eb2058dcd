"""Small kernels around a few instructions, run over arrays on any device, and exact references for rounding."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from coilpack.runtime.devices.base import Device, LaunchConfig

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"

# numpy type → (register type, type of the load and store)
_TYPES = {
    "uint8": (".b16", "u8"),
    "int8": (".b16", "s8"),
    "uint16": (".b16", "b16"),
    "int16": (".b16", "b16"),
    "float16": (".b16", "b16"),
    "uint32": (".b32", "b32"),
    "int32": (".b32", "b32"),
    "float32": (".b32", "b32"),
    "uint64": (".b64", "b64"),
    "int64": (".b64", "b64"),
    "float64": (".b64", "b64"),
}


class Machine:
    """A device with what tests do on it."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def upload(self, array: np.ndarray):
        buffer = self.device.allocate(max(array.nbytes, 1), self.device.default_stream)
        if array.nbytes:
            data = memoryview(np.ascontiguousarray(array)).cast("B")
            self.device.write(buffer.address, data, self.device.default_stream)
        return buffer

    def download(self, buffer, like: np.ndarray) -> np.ndarray:
        out = np.empty_like(like)
        self.device.read(buffer.address, memoryview(out).cast("B"), self.device.default_stream)
        return out

    def run(
        self,
        ptx: str,
        arrays: Sequence[np.ndarray],
        constants: Sequence[int] = (),
        *,
        grid: int | tuple[int, int, int] = 1,
        block: int | tuple[int, int, int] = 32,
        shared: int = 0,
        name: str = "k",
    ) -> list[np.ndarray]:
        """Runs entry `name` over the arrays' buffers and 32-bit constants; returns the arrays as it leaves them."""
        module = self.device.load_module(memoryview(ptx.encode()), "case.ptx")
        buffers = [self.upload(array) for array in arrays]
        values = [buffer.address.to_bytes(8, "little") for buffer in buffers]
        values += [(value % 2**32).to_bytes(4, "little") for value in constants]
        grid = (grid, 1, 1) if isinstance(grid, int) else grid
        block = (block, 1, 1) if isinstance(block, int) else block
        launch = self.device.prepare(module.kernel(name), LaunchConfig(grid, block, shared), values)
        with self.device.activate():
            launch.run(self.device.default_stream)
        self.device.synchronize(self.device.default_stream)
        results = [self.download(buffer, array) for buffer, array in zip(buffers, arrays, strict=True)]
        for buffer in buffers:
            buffer.close()
        module.close()
        return results

    def elementwise(self, code: str, inputs: Sequence[np.ndarray], result: str, *, registers: str = "") -> np.ndarray:
        """Runs `code`, which computes %d from %a, %b and %c, in one thread for each element of equally long inputs."""
        count = len(inputs[0])
        out = np.zeros(count, result)
        return self.run(
            kernel_of(code, [array.dtype.name for array in inputs], result, registers),
            [*inputs, out],
            [count],
            grid=-(-count // 64),
            block=64,
        )[-1]


def kernel_of(code: str, inputs: Sequence[str], result: str, registers: str = "") -> str:
    names = "abc"[: len(inputs)]
    parameters = [f".param .u64 p{n}" for n in (*names, "d")] + [".param .u32 count"]
    lines = [".reg .pred %outside, %p, %q;", ".reg .b32 %i, %n, %t0;", ".reg .b64 %at, %base;", registers]
    lines += [f".reg {_TYPES[kind][0]} %{name};" for name, kind in zip((*names, "d"), (*inputs, result), strict=True)]
    lines += [
        "mov.u32 %i, %ctaid.x;",
        "mov.u32 %n, %ntid.x;",
        "mov.u32 %t0, %tid.x;",
        "mad.lo.u32 %i, %i, %n, %t0;",
        "ld.param.u32 %n, [count];",
        "setp.ge.u32 %outside, %i, %n;",
        "@%outside bra END;",
    ]
    for name, kind in zip(names, inputs, strict=True):
        size = np.dtype(kind).itemsize
        lines += [
            f"ld.param.u64 %base, [p{name}];",
            f"mad.wide.u32 %at, %i, {size}, %base;",
            f"ld.global.{_TYPES[kind][1]} %{name}, [%at];",
        ]
    size = np.dtype(result).itemsize
    lines += [code, "ld.param.u64 %base, [pd];", f"mad.wide.u32 %at, %i, {size}, %base;"]
    lines += [f"st.global.{_TYPES[result][1]} [%at], %d;", "END: ret;"]
    return f"{HEADER}.visible .entry k({', '.join(parameters)}) {{\n" + "\n".join(lines) + "\n}\n"


# --- values ---

_INTEGER_EDGES = (0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, -1, -2, -3, -128, -129)
_FLOAT_EDGES = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 0.1, -0.3, 100.25, 65504.0, 65520.0, 1e-8, -1e-8),
    *(np.inf, -np.inf, np.nan),
)
_FLOAT_LIMITS = {
    "float16": (6.1e-5, 6e-8, 3e-6, 65504.0),
    "float32": (
        2.0**-126,
        2.0**-149,
        1.1e-40,
        3.4e38,
        16777216.0,
        16777217.0,
        2147483648.0,
        4294967296.0,
        -2147483904.0,
    ),
    "float64": (2.0**-1022, 5e-324, 3e-310, 1.7e308, 2.0**53, 2.0**63, 2.0**64, -(2.0**63), 4294967295.5, 2.0**-126),
}


def values(dtype: str, count: int = 200, seed: int = 0) -> np.ndarray:
    """Edge values of a type, then random ones: numbers of all sizes, not only common ones."""
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        edges = [v % 2 ** (8 * kind.itemsize) for v in (*_INTEGER_EDGES, info.min, info.max, info.max - 1)]
        edges = np.array(edges, f"u{kind.itemsize}").view(kind)
        wild = random.integers(info.min, info.max, count, kind, endpoint=True)
        small = random.integers(max(info.min, -300), min(info.max, 300), count // 2, kind, endpoint=True)
        return np.concatenate([edges, wild, small])
    limits = _FLOAT_LIMITS[dtype]
    with np.errstate(over="ignore"):
        edges = np.array([*_FLOAT_EDGES, *limits, *(-v for v in limits)], kind)
    bits = random.integers(0, 2 ** (8 * kind.itemsize), count, f"u{kind.itemsize}").view(kind)
    return np.concatenate([edges, bits, random.standard_normal(count).astype(kind)])


def pairs(dtype: str, other: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Each edge with each, and random pairs."""
    left, right = values(dtype, seed=1), values(other or dtype, seed=2)
    edges_left, edges_right = left[:30], right[:30]
    return (
        np.concatenate([np.repeat(edges_left, len(edges_right)), left]),
        np.concatenate([np.tile(edges_right, len(edges_left)), np.resize(right, len(left))]),
    )


def assert_same(got: np.ndarray, expected: np.ndarray, *inputs: np.ndarray) -> None:
    """Equal bit for bit; one NaN is as good as another."""
    assert got.dtype == expected.dtype
    unsigned = f"u{got.itemsize}"
    same = got.view(unsigned) == expected.view(unsigned)
    if got.dtype.kind == "f":
        same |= np.isnan(got) & np.isnan(expected)
    if not same.all():
        at = int(np.flatnonzero(~same)[0])
        shown = ", ".join(repr(array[at]) for array in inputs)
        raise AssertionError(f"{(~same).sum()} of {len(got)} differ; f({shown}) = {got[at]!r}, not {expected[at]!r}")


# --- exact rounding ---

_FORMATS = {
    "bfloat16": (8, -126, 127),
    "float16": (11, -14, 15),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}


def rounded(value: Fraction, dtype: str, mode: str = "rn", *, negative_zero: bool = False) -> float:
    """A rational number rounded once to a floating-point format, by integer arithmetic alone."""
    precision, low, high = _FORMATS[dtype]
    if value == 0:
        return -0.0 if negative_zero else 0.0
    sign, size = (-1 if value < 0 else 1), abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += (Fraction(2) ** exponent <= size) - 1 + (Fraction(2) ** (exponent + 1) <= size)
    unit = Fraction(2) ** (max(exponent, low) - precision + 1)
    whole, rest = divmod(size, unit)
    up = {
        "rn": rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1),
        "rz": False,
        "rm": sign < 0 and rest > 0,
        "rp": sign > 0 and rest > 0,
    }[mode]
    result = (whole + up) * unit
    largest = (Fraction(2) - Fraction(2) ** (1 - precision)) * Fraction(2) ** high
    if result > largest:
        away = mode == "rn" or (mode == "rm" and sign < 0) or (mode == "rp" and sign > 0)
        return sign * (float("inf") if away else float(largest))
    return sign * float(result)
