"""A function's body for concrete sizes: a flat list of launches, copies and fills over resolved memory.

A plan says what runs, not how: `coilpack.runtime.executor` launches it step by step, and a CUDA graph can be built from
the same steps. Memory is named by `Reference`: a base (an argument, an output, the arena, the weights) and bytes from
its start; addresses come in when the plan is bound to a device.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from coilpack.runtime.collector import no_collections
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr, evaluate


class Base(enum.Enum):
    """What a reference counts from."""

    ARGUMENT = "argument"
    OUTPUT = "output"
    ARENA = "arena"
    WEIGHTS = "weights"


@dataclass(frozen=True, slots=True)
class Reference:
    """A place in memory: `offset` bytes into argument or output number `index`, or into the arena or the weights."""

    base: Base
    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """A kernel launch: parameters are bytes, ready, or places whose addresses they take."""

    kernel: ir.Kernel
    grid: tuple[int, int, int]
    parameters: tuple[bytes | Reference, ...]


@dataclass(frozen=True, slots=True)
class CopyStep:
    """Copies `nbytes` from one place to another."""

    target: Reference
    source: Reference
    nbytes: int


@dataclass(frozen=True, slots=True)
class FillStep:
    """Fills `nbytes` with a repeated pattern."""

    target: Reference
    pattern: bytes
    nbytes: int


Step = LaunchStep | CopyStep | FillStep


@dataclass(frozen=True, slots=True)
class Plan:
    """What one call does.

    Args:
        name: the function's name.
        arguments: the layout that each argument must have in memory.
        alignments: bytes that each argument's address must be a multiple of.
        written: the arguments that steps write to.
        output_nbytes: bytes of memory to allocate for each output.
        arena_nbytes: bytes of arena that the steps use.
        steps: what runs, in order.
        results: what the call returns: where each result lies and its layout.
    """

    name: str
    arguments: tuple[ArrayType, ...]
    alignments: tuple[int, ...]
    written: frozenset[int]
    output_nbytes: tuple[int, ...]
    arena_nbytes: int
    steps: tuple[Step, ...]
    results: tuple[tuple[Reference, ArrayType], ...]


def build_plan(function: ir.Function, sizes: Mapping[str, int], weight_offsets: Mapping[str, int]) -> Plan:
    """Evaluates a function's body.

    A result that lies in the weights is copied out at the end, so that a caller cannot change the weights through it.

    Args:
        function: a body of a verified program.
        sizes: the value of each symbol of its signature.
        weight_offsets: bytes from the start of the weights to each storage; multiples of 256.

    Raises:
        InputError: with these sizes an operation reaches out of its memory, or a value does not fit its parameter.
    """
    with no_collections():
        return _Builder(function, sizes, weight_offsets).build()


def concrete(type_: ir.TensorType, sizes: Mapping[str, int]) -> ArrayType:
    """The type with its sizes evaluated."""
    shape = tuple(evaluate(e, sizes) for e in type_.shape)
    return ArrayType(type_.dtype, shape, tuple(evaluate(e, sizes) for e in type_.strides))


def encode_scalar(dtype: DType, value: int | float) -> bytes:
    """A kernel scalar's bytes: integers in their width, floats narrowed to it.

    Raises:
        InputError: an integer is out of range, or a fraction is given for an integer type.
    """
    if dtype.is_float:
        with np.errstate(over="ignore"):  # beyond the range is infinity, as in the narrowing of a C compiler
            return bytes(np.float64(value).astype(dtype.numpy).tobytes())
    if isinstance(value, float) or dtype.name.startswith("complex"):
        raise InputError(f"{value!r} cannot be passed as a scalar of type {dtype.name}")
    signed = not dtype.name.startswith("ui") and dtype is not DType.i1
    bits = 1 if dtype is DType.i1 else 8 * dtype.itemsize
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not low <= value <= high:
        raise InputError(f"{value} is out of the range of {dtype.name}, {low} to {high}")
    return value.to_bytes(dtype.itemsize, "little", signed=signed)


class _Place(NamedTuple):
    """A value's memory: where it begins, and how many bytes its allocation has from that allocation's start."""

    reference: Reference
    nbytes: int
    start: int  # the allocation's own offset from the base


class _Facts(NamedTuple):
    """A type for the sizes at hand: its first and last byte are counted from its first element."""

    type: ArrayType
    low: int
    high: int


class _PointerRule(NamedTuple):
    """What a kernel does through a pointer parameter and relies on; flat, as it is asked for at every operand."""

    writes: bool
    alignment: int


@dataclass(slots=True)
class _Builder:
    function: ir.Function
    sizes: Mapping[str, int]
    weight_offsets: Mapping[str, int]
    operation: ir.Operation | None = None
    places: dict[ir.Value, _Place] = field(default_factory=dict)
    # By identity: many values share a type, many kernels their parameters, and hashing either walks all of it.
    facts: dict[int, _Facts] = field(default_factory=dict)
    rules: dict[int, list[_PointerRule | DType]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    output_nbytes: list[int] = field(default_factory=list)
    written: set[int] = field(default_factory=set)
    results: list[tuple[Reference, ArrayType]] = field(default_factory=list)
    alignments: list[int] = field(default_factory=list)
    arena_nbytes: int = 0

    def build(self) -> Plan:
        arguments = [self.type_of(value) for value in self.function.arguments]
        for index, (value, type_) in enumerate(zip(self.function.arguments, arguments, strict=True)):
            self.places[value] = _Place(Reference(Base.ARGUMENT, index, 0), type_.span_nbytes, 0)
            self.alignments.append(type_.dtype.itemsize)
        self.arena_nbytes = self.evaluate(self.function.arena_nbytes)
        for operation in self.function.operations:
            self.operation = operation
            _HANDLERS[type(operation)](self, operation)
        return Plan(
            self.function.name,
            tuple(arguments),
            tuple(self.alignments),
            frozenset(self.written),
            tuple(self.output_nbytes),
            self.arena_nbytes,
            tuple(self.steps),
            tuple(self.results),
        )

    def fail(self, problem: str) -> NoReturn:
        operation = self.operation
        what = f"{operation.mnemonic} operation" if operation else "arena"
        location = f" (from {operation.location})" if operation and operation.location else ""
        sizes = f" with {', '.join(f'{n} = {v}' for n, v in self.sizes.items())}" if self.sizes else ""
        raise InputError(f"function {self.function.name!r}: {what}{location}{sizes}: {problem}")

    def evaluate(self, expr: Expr) -> int:
        if type(expr) is int:  # most are
            return expr
        try:
            return evaluate(expr, self.sizes)
        except ZeroDivisionError:
            self.fail("a size is divided by zero")

    def facts_of(self, value: ir.Value) -> _Facts:
        facts = self.facts.get(id(value.type))
        if facts is None:
            try:
                type_ = concrete(value.type, self.sizes)
            except ZeroDivisionError:
                self.fail("a size is divided by zero")
            if any(size < 0 for size in type_.shape):
                self.fail(f"%{value.name} has the shape {type_.shape}")
            low, high = (element * type_.dtype.itemsize for element in type_.extent)
            facts = self.facts[id(value.type)] = _Facts(type_, low, high)
        return facts

    def type_of(self, value: ir.Value) -> ArrayType:
        return self.facts_of(value).type

    def define(self, value: ir.Value, place: _Place) -> None:
        facts = self.facts_of(value)
        begin = place.reference.offset - place.start
        low, high = begin + facts.low, begin + facts.high
        if not 0 <= low <= high <= place.nbytes:
            self.fail(f"%{value.name} takes bytes {low} to {high} of memory that has {place.nbytes}")
        self.places[value] = place

    def write(self, value: ir.Value) -> Reference:
        reference = self.places[value].reference
        if reference.base is Base.ARGUMENT:
            self.written.add(reference.index)
        return reference

    # --- operations ---

    def parameter(self, operation: ir.Parameter) -> None:
        start = self.weight_offsets[operation.storage.name]
        reference = Reference(Base.WEIGHTS, 0, start + operation.byte_offset)
        self.define(operation.result, _Place(reference, operation.storage.nbytes, start))

    def alloc(self, operation: ir.Alloc) -> None:
        nbytes, offset = self.evaluate(operation.nbytes), self.evaluate(operation.offset)
        if operation.space is ir.AllocSpace.OUTPUT:
            reference = Reference(Base.OUTPUT, len(self.output_nbytes), 0)
            self.output_nbytes.append(nbytes)
        else:
            reference = Reference(Base.ARENA, 0, offset)
            if offset < 0 or offset % ir.ARENA_ALIGNMENT or offset + nbytes > self.arena_nbytes:
                limits = f"multiples of {ir.ARENA_ALIGNMENT}, {self.arena_nbytes} bytes in all"
                self.fail(f"{nbytes} bytes at offset {offset} do not fit the arena ({limits})")
        self.define(operation.result, _Place(reference, nbytes, reference.offset))

    def view(self, operation: ir.View) -> None:
        source = self.places[operation.source]
        offset = self.evaluate(operation.offset) * operation.result.type.dtype.itemsize
        base, index, start = source.reference.base, source.reference.index, source.reference.offset
        self.define(operation.result, source._replace(reference=Reference(base, index, start + offset)))

    def dispatch(self, operation: ir.Dispatch) -> None:
        x, y, z = operation.grid
        grid = (self.evaluate(x), self.evaluate(y), self.evaluate(z))
        if min(grid) < 0:
            self.fail(f"kernel {operation.kernel.export_name!r}: the grid is {grid}")
        parameters = tuple(
            [
                self.scalar(index, operand, rule) if isinstance(rule, DType) else self.pointer(operand, rule)
                for index, (operand, rule) in enumerate(
                    zip(operation.operands, self.rules_of(operation.kernel), strict=True)
                )
            ]
        )
        if 0 not in grid:  # an empty grid has nothing to do, and CUDA refuses it
            self.steps.append(LaunchStep(operation.kernel, grid, parameters))

    def rules_of(self, kernel: ir.Kernel) -> list[_PointerRule | DType]:
        rules = self.rules.get(id(kernel.parameters))
        if rules is None:
            rules = self.rules[id(kernel.parameters)] = [
                _PointerRule(ir.Access.WRITE in parameter.access, parameter.alignment)
                if isinstance(parameter, ir.PointerParameter)
                else parameter.dtype
                for parameter in kernel.parameters
            ]
        return rules

    def pointer(self, operand: ir.Operand, rule: _PointerRule) -> bytes | Reference:
        if operand is None:
            return bytes(8)
        assert isinstance(operand, ir.Value), "the verifier lets nothing else be a pointer"
        writes, alignment = rule
        reference = self.write(operand) if writes else self.places[operand].reference
        if reference.offset % alignment and self.type_of(operand).size:
            self.fail(
                f"%{operand.name} starts {reference.offset} bytes into the {reference.base.value}; the kernel relies "
                f"on an alignment of {alignment} bytes"
            )
        if reference.base is Base.ARGUMENT:
            self.alignments[reference.index] = max(self.alignments[reference.index], alignment)
        return reference

    def scalar(self, index: int, operand: ir.Operand, dtype: DType) -> bytes:
        assert operand is not None, "the verifier lets no null be a scalar"
        assert not isinstance(operand, ir.Value), "the verifier lets no value be a scalar"
        value = operand if isinstance(operand, float) else self.evaluate(operand)
        try:
            return encode_scalar(dtype, value)
        except InputError as error:
            self.fail(f"parameter {index}: {error}")

    def copy(self, operation: ir.Copy) -> None:
        nbytes = self.nbytes(operation.source)
        if nbytes != self.nbytes(operation.target):
            self.fail(f"%{operation.source.name} has {nbytes} bytes, %{operation.target.name} has another size")
        source = self.places[operation.source].reference
        target = self.write(operation.target)
        if nbytes and source != target:
            self.steps.append(CopyStep(target, source, nbytes))

    def fill(self, operation: ir.Fill) -> None:
        nbytes = self.nbytes(operation.target)
        target = self.write(operation.target)
        if nbytes:
            pattern = operation.pattern.to_bytes(operation.target.type.dtype.itemsize, "little")
            self.steps.append(FillStep(target, pattern, nbytes))

    def nbytes(self, value: ir.Value) -> int:
        type_ = self.type_of(value)
        if type_.span_nbytes != type_.size * type_.dtype.itemsize:
            self.fail(f"%{value.name} has gaps between its elements")
        return type_.span_nbytes

    def return_(self, operation: ir.Return) -> None:
        for value in operation.values:
            reference, type_ = self.places[value].reference, self.type_of(value)
            if reference.base in (Base.WEIGHTS, Base.ARENA):
                reference = self.copy_out(reference, type_)
            self.results.append((reference, type_))

    def copy_out(self, source: Reference, type_: ArrayType) -> Reference:
        low = type_.extent[0] * type_.dtype.itemsize
        target = Reference(Base.OUTPUT, len(self.output_nbytes), 0)
        self.output_nbytes.append(type_.span_nbytes)
        if type_.span_nbytes:
            begin = Reference(source.base, source.index, source.offset + low)
            self.steps.append(CopyStep(target, begin, type_.span_nbytes))
        return Reference(target.base, target.index, -low)


_HANDLERS: dict[type[ir.Operation], Callable[[_Builder, Any], None]] = {
    ir.Parameter: _Builder.parameter,
    ir.Alloc: _Builder.alloc,
    ir.View: _Builder.view,
    ir.Dispatch: _Builder.dispatch,
    ir.Copy: _Builder.copy,
    ir.Fill: _Builder.fill,
    ir.Return: _Builder.return_,
}
