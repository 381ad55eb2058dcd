"""What a parsed MLIR module is: operations, regions, types and attributes as plain data.

Every operation has its generic form here, whichever form the text has: operands and results are values, everything
else is an attribute under the name that MLIR's operation definitions give it (`predicate` of `arith.cmpf`,
`indexing_maps` of `linalg.generic`, `operandSegmentSizes` of what has several groups of operands). Names are resolved:
a use of a value is the value itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the text, both from 1."""

    line: int
    column: int


# --- types ---


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A number: `f32`, `i1`, `bf16`, `f8E4M3FN`, `index`, as MLIR writes it."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TensorType:
    """A ranked tensor, outermost dimension first; None where a size is dynamic."""

    shape: tuple[int | None, ...]
    element: ScalarType

    def __str__(self) -> str:
        sizes = "".join(f"{'?' if size is None else size}x" for size in self.shape)
        return f"tensor<{sizes}{self.element}>"


@dataclass(frozen=True, slots=True)
class FunctionType:
    """From arguments to results."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.inputs))}) -> ({', '.join(map(str, self.results))})"


@dataclass(frozen=True, slots=True)
class OtherType:
    """A type that is only carried: `!hal.device`, `memref<4xf32>`, `tensor<*xf32>`."""

    text: str

    def __str__(self) -> str:
        return self.text


Type = ScalarType | TensorType | FunctionType | OtherType


# --- affine maps ---


@dataclass(frozen=True, slots=True)
class AffineDim:
    """Dimension number `position` of a map."""

    position: int


@dataclass(frozen=True, slots=True)
class AffineSymbol:
    """Symbol number `position` of a map."""

    position: int


@dataclass(frozen=True, slots=True)
class AffineConstant:
    """An integer."""

    value: int


@dataclass(frozen=True, slots=True)
class AffineBinary:
    """`operator` is one of `+ * mod floordiv ceildiv`; a difference is a sum with a product by -1."""

    operator: str
    lhs: AffineExpr
    rhs: AffineExpr


AffineExpr = AffineDim | AffineSymbol | AffineConstant | AffineBinary


@dataclass(frozen=True, slots=True)
class AffineMap:
    """`(d0, …)[s0, …] -> (results)`."""

    dims: int
    symbols: int
    results: tuple[AffineExpr, ...]


# --- attributes ---


@dataclass(frozen=True, slots=True)
class IntegerAttr:
    """`5 : i64`, also of `index`; `true` and `false` are 1 and 0 of `i1`. Kept as written: -1 and 255 of i8 are two."""

    value: int
    type: ScalarType


@dataclass(frozen=True, slots=True)
class FloatAttr:
    """`0.5 : f32`; bit patterns in hexadecimal are decoded."""

    value: float
    type: ScalarType


@dataclass(frozen=True, slots=True)
class StringAttr:
    """Text, escapes decoded."""

    value: str


@dataclass(frozen=True, slots=True)
class UnitAttr:
    """What is there or not."""


@dataclass(frozen=True, slots=True)
class TypeAttr:
    """A type."""

    type: Type


@dataclass(frozen=True, slots=True)
class SymbolRefAttr:
    """`@a::@b` as its parts, unquoted."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArrayAttr:
    """Attributes in order."""

    values: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class DictionaryAttr:
    """Attributes by name."""

    values: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class DenseArrayAttr:
    """`array<i64: 1, 2>`; booleans are 0 and 1."""

    element: ScalarType
    values: tuple[int | float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DenseElementsAttr:
    """`dense<…>`, or `dense_resource<…>` with its bytes found.

    `array` has the type's shape, or is a scalar array where one value stands for all; elements are numpy's or
    ml_dtypes' of that name, `i1` is bool, integers are signed, `index` is int64.
    """

    type: TensorType
    array: npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class AffineMapAttr:
    """`affine_map<…>`."""

    map: AffineMap


@dataclass(frozen=True, slots=True)
class DialectAttr:
    """`#linalg.iterator_type<parallel>` as `linalg.iterator_type` and `parallel`; `body` is text."""

    name: str
    body: str


Attribute = (
    IntegerAttr
    | FloatAttr
    | StringAttr
    | UnitAttr
    | TypeAttr
    | SymbolRefAttr
    | ArrayAttr
    | DictionaryAttr
    | DenseArrayAttr
    | DenseElementsAttr
    | AffineMapAttr
    | DialectAttr
)


# --- operations ---


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A result of an operation or an argument of a block, by identity; `name` (`%x`, `%x#1`) is for messages."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Operations behind arguments."""

    arguments: tuple[Value, ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """The blocks of an operation; the first is its entry."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation; `location` is where its name stands in the text.

    `successors` are the blocks of its region that it may go on with, by number; what is passed to them is among the
    operands.
    """

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: Mapping[str, Attribute]
    regions: tuple[Region, ...]
    location: Location
    successors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """The text that was parsed, for messages; `file` is its name there."""

    file: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Module:
    """A parsed file: the operations of its `builtin.module`, which the text may leave out."""

    source: Source
    name: str
    attributes: Mapping[str, Attribute]
    operations: tuple[Operation, ...]

    def functions(self) -> Iterator[Operation]:
        """Its `func.func`, in order."""
        return (operation for operation in self.operations if operation.name == "func.func")
