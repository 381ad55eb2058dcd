"""The functions of `mlir/*.mlir`, with what the comments before them say about their inputs (see mlir/README.md)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

from coilpack.compiler.mlir.functions import body_of, public_functions
from coilpack.compiler.mlir.parser import parse_module
from coilpack.compiler.mlir.syntax import Module, ScalarType, TensorType, Type

FOLDER = Path(__file__).parent / "mlir"
USUAL_SIZES = (0, 1, 2, 7, 50)  # of dynamic dimensions; those of an export are others
_INPUT = re.compile(r"// input (?P<number>\d+): (?:(?P<shape>[\w ]+?)(?:, |$))??(?P<values>not [-\d ]+|\S+ to \S+)?$")
_SIZES = re.compile(r"// sizes: (?P<name>\w+) (?P<sizes>[\d ]+)$")
_TOLERANCE = re.compile(r"// tolerance: (?P<value>\S+)$")

DTYPES: Mapping[str, np.dtype] = {
    **{name: np.dtype(name.replace("i", "int")) for name in ("i8", "i16", "i32", "i64")},
    **{name: np.dtype(name.replace("f", "float")) for name in ("f16", "f32", "f64")},
    "i1": np.dtype(bool),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "index": np.dtype(np.int64),
}


@dataclass(frozen=True)
class Input:
    """One argument: its type, the names of its sizes, and the values that it may have."""

    type: Type
    shape: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    excluded: tuple[int, ...] = ()

    def draw(self, random: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
        """Random values, with some of those that stand at the edges of the type or the range."""
        element = self.type.element if isinstance(self.type, TensorType) else self.type
        assert isinstance(element, ScalarType)
        dtype = DTYPES[element.name]
        shape = tuple(sizes[name] if name in sizes else int(name) for name in self.shape)
        values = self._floats(random, shape, dtype) if element.name.startswith(("f", "b")) else None
        return self._integers(random, shape, dtype) if values is None else values

    def _floats(self, random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if self.low is not None and self.high is not None:
            values = random.uniform(self.low, self.high, shape)
            edges = [self.low, self.high, *(v for v in (0.0, -0.0, 1.0, -1.0) if self.low <= v <= self.high)]
        else:
            values = random.standard_normal(shape) * 10.0 ** random.integers(-3, 4, shape)
            edges = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 0.5, -2.5]
        return _mixed(random, values, edges).astype(dtype)

    def _integers(self, random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if dtype.kind == "b":
            return random.integers(0, 2, shape).astype(bool)
        info = np.iinfo(dtype)
        low = info.min if self.low is None else int(self.low)
        high = info.max if self.high is None else int(self.high)
        values = random.integers(low, high, shape, dtype=np.int64, endpoint=True)
        small = random.integers(-9, 10, shape)
        values = np.where(random.random(shape) < 0.3, np.clip(small, low, high), values)
        edges = [low, high, *(v for v in (0, 1, -1, low + 1) if low <= v <= high)]
        values = _mixed(random, values, edges)
        return np.where(np.isin(values, self.excluded), 3, values).astype(dtype)


def _mixed(random: np.random.Generator, values: np.ndarray, edges: Sequence[float]) -> np.ndarray:
    """A sixth of the values replaced by edges."""
    picked = np.asarray(edges, dtype=values.dtype)[random.integers(0, len(edges), values.shape)]
    return np.where(random.random(values.shape) < 1 / 6, picked, values)


@dataclass(frozen=True)
class TestedFunction:
    """A public function of a file."""

    __test__ = False  # pytest takes it for a class of tests

    file: Path
    name: str
    inputs: tuple[Input, ...]
    results: tuple[TensorType, ...]
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    tolerance: float | None = None

    def runs(self) -> Iterator[dict[str, int]]:
        """The sizes of its dynamic dimensions by name: every size of each, beside different ones of the others."""
        names = sorted({name for i in self.inputs for name in i.shape if not name.isdigit()})
        choices = [self.sizes.get(name, USUAL_SIZES) for name in names]
        longest = max(map(len, choices), default=1)
        for step in range(longest):
            yield {
                name: choice[(step + place) % len(choice)]
                for place, (name, choice) in enumerate(zip(names, choices, strict=True))
            }


@cache
def module_of(file: Path) -> Module:
    """The parsed file."""
    return parse_module(file.read_text(encoding="utf-8"), file=str(file))


@cache
def functions_of(file: Path) -> tuple[TestedFunction, ...]:
    """The public functions of a file, in order."""
    module, lines = module_of(file), file.read_text(encoding="utf-8").splitlines()
    found = []
    for name, function in public_functions(module).items():
        above = itertools.takewhile(lambda line: line.strip().startswith("//"), lines[function.location.line - 2 :: -1])
        comments = [line.strip() for line in above]
        body = body_of(function)
        assert body is not None
        results = body.operations[-1].operands
        found.append(
            TestedFunction(
                file,
                name,
                _inputs([argument.type for argument in body.arguments], comments),
                tuple(result.type for result in results if isinstance(result.type, TensorType)),
                {m["name"]: [int(n) for n in m["sizes"].split()] for m in map(_SIZES.match, comments) if m},
                next((float(m["value"]) for m in map(_TOLERANCE.match, comments) if m), None),
            )
        )
    return tuple(found)


def _inputs(types: Sequence[Type], comments: Sequence[str]) -> tuple[Input, ...]:
    given = {int(m["number"]): m for m in map(_INPUT.match, comments) if m}
    assert len(given) == sum(line.startswith("// input") for line in comments), comments
    return tuple(_input(type_, given.get(number)) for number, type_ in enumerate(types))


def _input(type_: Type, match: re.Match[str] | None) -> Input:
    shape = tuple(str(size) for size in type_.shape) if isinstance(type_, TensorType) else ()
    if match is None:
        assert "None" not in shape, f"no comment names the sizes of {type_}"
        return Input(type_, shape)
    values = match["values"] or ""
    low, high = map(float, values.split(" to ")) if " to " in values else (None, None)
    excluded = tuple(map(int, values.split()[1:])) if values.startswith("not") else ()
    named = tuple(match["shape"].split(" x ")) if match["shape"] else shape
    assert len(named) == len(shape)
    return Input(type_, named, low, high, excluded)


ALL_FILES = sorted(FOLDER.glob("*.mlir"))
