"""The program IR: what the host does to run a model, as plain data.

A `Program` holds the signatures that callers see and, for each target architecture, the kernels and one function body a
signature. A body is a list of operations over values in single assignment: its arguments, then the results of its
operations. All memory is explicit: `Alloc` names a place in the arena, `View` retypes memory, `Dispatch` launches a
kernel on addresses. Wire form: `schemas/program_def.fbs`; text form: `coilpack.runtime.program.text`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import NotFoundError
from coilpack.runtime.program.expr import Expr, ExprKind, binary

ARENA_ALIGNMENT = 256  # bytes; what cuMemAlloc guarantees, so arena values are as aligned as allocations of their own


def aligned(nbytes: int) -> int:
    """The bytes that a block takes where blocks of `ARENA_ALIGNMENT` follow each other."""
    return -(-nbytes // ARENA_ALIGNMENT) * ARENA_ALIGNMENT


def contiguous_strides(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Row-major strides, in elements, of an array of that shape."""
    strides: list[Expr] = []
    step: Expr = 1
    for size in reversed(shape):
        strides.append(step)
        step = binary(ExprKind.MUL, step, size)
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class TensorType:
    """A strided array: element type, shape and strides in elements, outermost dimension first."""

    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]

    @classmethod
    def contiguous(cls, dtype: DType, shape: tuple[Expr, ...]) -> TensorType:
        """The row-major type of that shape."""
        return cls(dtype, shape, contiguous_strides(shape))

    @property
    def is_contiguous(self) -> bool:
        """Whether the strides are exactly the row-major ones."""
        return self.strides == contiguous_strides(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """One value of a function: `name` is for text and messages, identity is the object."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Storage:
    """A block of `nbytes` constant bytes, the entry `name` of the weights file."""

    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Global:
    """Memory that lives across calls, `nbytes` in each context; it starts as a copy of `initial`, or as zeros."""

    name: str
    nbytes: int
    initial: Storage | None = None


@dataclass(frozen=True, slots=True)
class SizeSymbol:
    """An integer fixed at call time, within [minimum, maximum].

    It is read off dimension `dim` of input number `input`, which is a * symbol + b with constants a > 0 and b; or it is
    the value of that input, an integer, where `dim` is None.
    """

    name: str
    input: int
    dim: int | None
    minimum: int
    maximum: int


INTEGER_TYPE = TensorType(DType.i64, (), ())  # what stands for the type of an integer argument


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or output as callers see it; `name` may be empty.

    Where `value` is given, it is an integer of the host and no array: an input that defines the symbol `value`, or an
    output that is computed from the sizes. Its type is `INTEGER_TYPE`.
    """

    name: str
    type: TensorType
    value: Expr | None = None


class GuardKind(enum.Enum):
    """How the two sides of a guard compare; values are the wire codes."""

    EQUAL = 1
    NOT_EQUAL = 2
    LESS_EQUAL = 3


@dataclass(frozen=True, slots=True)
class Guard:
    """A relation between sizes under which the function was compiled; a call that breaks it is refused."""

    kind: GuardKind
    lhs: Expr
    rhs: Expr


@dataclass(frozen=True, slots=True)
class Signature:
    """What callers see of the function `name`; where it is `random`, a call needs a seed."""

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    symbols: tuple[SizeSymbol, ...] = ()
    guards: tuple[Guard, ...] = ()
    random: bool = False


class Access(enum.Flag):
    """What a kernel does through a pointer."""

    READ = 1
    WRITE = 2


@dataclass(frozen=True, slots=True)
class PointerParameter:
    """A 64-bit address of `dtype` elements; the code relies on it being a multiple of `alignment` bytes."""

    dtype: DType
    access: Access
    alignment: int


@dataclass(frozen=True, slots=True)
class ScalarParameter:
    """A value of `dtype`, passed in its own width."""

    dtype: DType


KernelParameter = PointerParameter | ScalarParameter


@dataclass(frozen=True, slots=True)
class Kernel:
    """How the export `export_name` of the executable is called: its parameters in the image's order.

    All workgroups of a `cooperative` kernel must be resident at once. `grid` is what launches it by itself, over
    symbols `p<i>` that stand for the value of scalar parameter i; None where only dispatches say the grid.

    `source` and `configuration` say what it was compiled from, where that is known: a digest of the Triton source, and
    how it was configured (`XBLOCK=256 num_warps=4 num_stages=1`). Together they tell the candidates of a kernel apart.
    """

    export_name: str
    parameters: tuple[KernelParameter, ...]
    cooperative: bool = False
    grid: tuple[Expr, Expr, Expr] | None = None
    source: str = ""
    configuration: str = ""


# --- operations ---

# A kernel argument: a value's address, an integer expression, a float immediate, or a null pointer.
Operand = Value | Expr | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Base of all operations. `location` is the model's source line (`file:line`), for messages only."""

    mnemonic: ClassVar[str]
    location: str = ""


@dataclass(frozen=True, slots=True)
class Parameter(Operation):
    """`result` = the bytes of `storage` from `byte_offset` on."""

    mnemonic: ClassVar[str] = "parameter"
    result: Value
    storage: Storage
    byte_offset: int = 0


class AllocSpace(enum.Enum):
    """Where an `Alloc` takes memory from; values are the wire codes."""

    ARENA = 1
    OUTPUT = 2


@dataclass(frozen=True, slots=True)
class Alloc(Operation):
    """`result` = `nbytes` of uninitialised memory, `offset` bytes into the arena or of its own for an output."""

    mnemonic: ClassVar[str] = "alloc"
    result: Value
    space: AllocSpace
    nbytes: Expr
    offset: Expr = 0


@dataclass(frozen=True, slots=True)
class View(Operation):
    """`result` = the memory of `source`, from `offset` elements (of the result's type) on."""

    mnemonic: ClassVar[str] = "view"
    result: Value
    source: Value
    offset: Expr = 0


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another kernel that does the work of a dispatch, on the same operands, and its own grid."""

    kernel: Kernel
    grid: tuple[Expr, Expr, Expr]


@dataclass(frozen=True, slots=True)
class Dispatch(Operation):
    """Launches `kernel` on `grid` workgroups (x, y, z), one operand for each of its parameters.

    `kernel` is what runs. `alternatives` are candidates for tuning, best guess first; their kernels take the same
    parameters and are as cooperative as `kernel`.
    """

    mnemonic: ClassVar[str] = "dispatch"
    kernel: Kernel
    grid: tuple[Expr, Expr, Expr]
    operands: tuple[Operand, ...]
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy(Operation):
    """Copies all bytes of `source` over `target`: both contiguous, of the same size."""

    mnemonic: ClassVar[str] = "copy"
    source: Value
    target: Value


@dataclass(frozen=True, slots=True)
class Fill(Operation):
    """Sets every element of the contiguous `target` to the element whose bits are `pattern`."""

    mnemonic: ClassVar[str] = "fill"
    target: Value
    pattern: int


@dataclass(frozen=True, slots=True)
class GetGlobal(Operation):
    """`result` = the bytes of `global_` from `byte_offset` on, which may be written."""

    mnemonic: ClassVar[str] = "get_global"
    result: Value
    global_: Global
    byte_offset: int = 0


@dataclass(frozen=True, slots=True)
class RandomSeeds(Operation):
    """`result` = a row of i64 seeds drawn from the call's seed, as `torch.randint` draws them on a CUDA device.

    Element i is made of the first two words of Philox4x32-10 with the call's seed as key, subsequence i and offset
    `philox_offset` (in 32-bit words, a multiple of 4).
    """

    mnemonic: ClassVar[str] = "random_seeds"
    result: Value
    philox_offset: int = 0


@dataclass(frozen=True, slots=True)
class Matmul(Operation):
    """`target` = `alpha` * `lhs` @ `rhs` + `beta` * `addend`, by the device's library of matrix products.

    Two dimensions, or three for a batch; the innermost two row- or column-major. The addend has the target's element
    type and shape; it is laid out as the target, or is one row (of a row-major target) or column, broadcast by a stride
    of 0 and with `beta` 1. f32 products may be rounded to TF32 where `tf32` says so.
    """

    mnemonic: ClassVar[str] = "matmul"
    target: Value
    lhs: Value
    rhs: Value
    addend: Value | None = None
    alpha: float = 1.0
    beta: float = 0.0
    tf32: bool = False


@dataclass(frozen=True, slots=True)
class Return(Operation):
    """Ends the function with its outputs: one value for each that is an array, in order."""

    mnemonic: ClassVar[str] = "return"
    values: tuple[Value, ...]


# --- containers ---


@dataclass(frozen=True, slots=True)
class Function:
    """The body of `signature` for one target; `arguments` are its inputs as values."""

    signature: Signature
    arguments: tuple[Value, ...]
    operations: tuple[Operation, ...]
    arena_nbytes: Expr = 0

    @property
    def name(self) -> str:
        """The function's name, which is its signature's."""
        return self.signature.name


class ImageKind(enum.Enum):
    """The form of the kernels in an executable; values are the wire codes."""

    PTX = 1
    CUBIN = 2


@dataclass(frozen=True, slots=True)
class Image:
    """An executable in the package: its kind and the name of its entry."""

    kind: ImageKind
    entry: str


@dataclass(frozen=True, slots=True)
class Target:
    """All that was compiled for one architecture, named as PTX does (`sm_80`, `sm_90a`)."""

    name: str
    images: tuple[Image, ...]
    kernels: tuple[Kernel, ...]
    functions: tuple[Function, ...]

    def function(self, name: str) -> Function:
        """The body of the function `name`; `NotFoundError` where there is none."""
        for function in self.functions:
            if function.name == name:
                return function
        raise NotFoundError("function", name, f"target {self.name}", [f.name for f in self.functions])


@dataclass(frozen=True, slots=True)
class Program:
    """A whole program; `producer` names the writer and its version."""

    producer: str
    signatures: tuple[Signature, ...]
    storages: tuple[Storage, ...]
    targets: tuple[Target, ...] = field(default=())
    globals: tuple[Global, ...] = field(default=())

    def signature(self, name: str) -> Signature:
        """The signature of the function `name`; `NotFoundError` where there is none."""
        for signature in self.signatures:
            if signature.name == name:
                return signature
        raise NotFoundError("function", name, "the program", [s.name for s in self.signatures])


def results(operation: Operation) -> Iterator[Value]:
    """The value that an operation defines, if it defines one."""
    if isinstance(operation, Parameter | Alloc | View | GetGlobal | RandomSeeds):
        yield operation.result


def operands(operation: Operation) -> Iterator[Value]:
    """The values that an operation uses, in order, with repeats."""
    if isinstance(operation, View):
        yield operation.source
    elif isinstance(operation, Dispatch):
        yield from (operand for operand in operation.operands if isinstance(operand, Value))
    elif isinstance(operation, Copy):
        yield from (operation.source, operation.target)
    elif isinstance(operation, Fill):
        yield operation.target
    elif isinstance(operation, Matmul):
        yield from (operation.target, operation.lhs, operation.rhs)
        if operation.addend is not None:
            yield operation.addend
    elif isinstance(operation, Return):
        yield from operation.values
