"""A function's body for concrete sizes: a flat list of launches, products, copies and fills over resolved memory.

A plan says what runs, not how: `coilpack.runtime.executor` queues it step by step, or as a graph made of the same
steps. Memory is named by `Reference`: a base (an argument, an output, the arena, the weights, the globals, the seeds)
and bytes from its start; addresses come in when the plan is bound to a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from coilpack.runtime.collector import no_collections
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError
from coilpack.runtime.layout import ArrayType
from coilpack.runtime.products import describe_product
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr, evaluate
from coilpack.runtime.program.types import INT64_MAX
from coilpack.runtime.steps import (
    Base,
    CopyStep,
    FillStep,
    LaunchChoice,
    LaunchStep,
    MatmulStep,
    Range,
    Reference,
    SeedRow,
    Step,
)

__all__ = ["Base", "Plan", "Reference", "build_plan", "concrete", "encode_scalar"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one call does.

    Args:
        name: the function's name.
        arguments: the layout that each argument must have in memory; an integer has `ir.INTEGER_TYPE`'s, and no memory.
        alignments: bytes that each argument's address must be a multiple of.
        written: the arguments that steps write to.
        output_nbytes: bytes of memory to allocate for each output.
        arena_nbytes: bytes of arena that the steps use.
        steps: what runs, in order.
        results: the arrays that the call returns: where each lies and its layout.
        seeds: rows of seeds that each call writes before the steps run.
        seeds_nbytes: bytes of memory that they lie in.
    """

    name: str
    arguments: tuple[ArrayType, ...]
    alignments: tuple[int, ...]
    written: frozenset[int]
    output_nbytes: tuple[int, ...]
    arena_nbytes: int
    steps: tuple[Step, ...]
    results: tuple[tuple[Reference, ArrayType], ...]
    seeds: tuple[SeedRow, ...] = ()
    seeds_nbytes: int = 0


_ARGUMENT_ALIGNMENT = 16  # bytes; what libraries get of arguments, as kernels do


def build_plan(
    function: ir.Function,
    sizes: Mapping[str, int],
    weight_offsets: Mapping[str, int],
    global_offsets: Mapping[str, int] | None = None,
    *,
    candidates: bool = False,
) -> Plan:
    """Evaluates a function's body.

    A result that lies in the weights, the globals, the seeds or the arena is copied out at the end, so that a caller
    cannot change those through it, and later calls cannot change the result.

    Args:
        function: a body of a verified program.
        sizes: the value of each symbol of its signature.
        weight_offsets: bytes from the start of the weights to each storage; multiples of 256.
        global_offsets: bytes from the start of the globals to each; multiples of 256.
        candidates: whether launches state the alternatives of their dispatches.

    Raises:
        InputError: with these sizes an operation reaches out of its memory, or a value does not fit its parameter, or
            an alternative launches nothing.
    """
    with no_collections():
        return _Builder(function, sizes, weight_offsets, global_offsets or {}, candidates).build()


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
    """A value's memory: where it begins, and the allocation that it lies in."""

    reference: Reference
    within: Range


class _Facts(NamedTuple):
    """A type for the sizes at hand, and where its bytes begin and end, counted from its first element."""

    type: ArrayType
    low: int
    high: int


class _PointerRule(NamedTuple):
    """What a kernel does through a pointer parameter and relies on; flat, as it is asked for at every operand."""

    reads: bool
    writes: bool
    alignment: int


@dataclass(slots=True)
class _Builder:
    function: ir.Function
    sizes: Mapping[str, int]
    weight_offsets: Mapping[str, int]
    global_offsets: Mapping[str, int]
    candidates: bool = False
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
    seeds: list[SeedRow] = field(default_factory=list)
    seeds_nbytes: int = 0

    def build(self) -> Plan:
        arguments = [self.type_of(value) for value in self.function.arguments]
        for index, (value, type_) in enumerate(zip(self.function.arguments, arguments, strict=True)):
            whole = Range(Base.ARGUMENT, index, 0, type_.span_nbytes)
            self.places[value] = _Place(Reference(Base.ARGUMENT, index, 0), whole)
            self.alignments.append(type_.dtype.itemsize)
        self.arena_nbytes = self.size(self.function.arena_nbytes)
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
            tuple(self.seeds),
            self.seeds_nbytes,
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

    def size(self, expr: Expr) -> int:
        """A number of bytes to allocate."""
        nbytes = self.evaluate(expr)
        if nbytes > INT64_MAX:
            self.fail(f"it takes {nbytes} bytes; the limit is {INT64_MAX}")
        return nbytes

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
            if low < 0:  # nothing of an allocation lies before its start
                self.fail(f"%{value.name} has the strides {type_.strides}; they must not be negative")
            if high > INT64_MAX:
                self.fail(f"%{value.name} reaches over {high} bytes; the limit is {INT64_MAX}")
            facts = self.facts[id(value.type)] = _Facts(type_, low, high)
        return facts

    def type_of(self, value: ir.Value) -> ArrayType:
        return self.facts_of(value).type

    def define(self, value: ir.Value, place: _Place) -> None:
        facts = self.facts_of(value)
        start, end = place.within.begin, place.within.end
        begin = place.reference.offset - start
        low, high = begin + facts.low, begin + facts.high
        if not 0 <= low <= high <= end - start:
            self.fail(f"%{value.name} takes bytes {low} to {high} of memory that has {end - start}")
        self.places[value] = place

    def define_at(self, value: ir.Value, base: Base, start: int, nbytes: int, offset: int = 0, index: int = 0) -> None:
        """Places a value `offset` bytes into an allocation of `nbytes` that begins at byte `start` of the base."""
        within = Range(base, index, start, start + nbytes)
        self.define(value, _Place(Reference(base, index, start + offset), within))

    def write(self, value: ir.Value) -> _Place:
        place = self.places[value]
        if place.reference.base is Base.ARGUMENT:
            self.written.add(place.reference.index)
        return place

    # --- operations ---

    def parameter(self, operation: ir.Parameter) -> None:
        storage = operation.storage
        start = self.weight_offsets[storage.name]
        self.define_at(operation.result, Base.WEIGHTS, start, storage.nbytes, operation.byte_offset)

    def get_global(self, operation: ir.GetGlobal) -> None:
        global_ = operation.global_
        start = self.global_offsets[global_.name]
        self.define_at(operation.result, Base.GLOBALS, start, global_.nbytes, operation.byte_offset)

    def random_seeds(self, operation: ir.RandomSeeds) -> None:
        type_ = self.type_of(operation.result)
        self.seeds.append(SeedRow(self.seeds_nbytes, type_.size, operation.philox_offset))
        self.define_at(operation.result, Base.SEEDS, self.seeds_nbytes, type_.span_nbytes)
        # Rows are as aligned as other allocations: kernels rely on it.
        self.seeds_nbytes += ir.aligned(type_.span_nbytes)

    def alloc(self, operation: ir.Alloc) -> None:
        nbytes, offset = self.size(operation.nbytes), self.evaluate(operation.offset)
        if operation.space is ir.AllocSpace.OUTPUT:
            self.define_at(operation.result, Base.OUTPUT, 0, nbytes, index=len(self.output_nbytes))
            self.output_nbytes.append(nbytes)
            return
        if offset < 0 or offset % ir.ARENA_ALIGNMENT or offset + nbytes > self.arena_nbytes:
            limits = f"multiples of {ir.ARENA_ALIGNMENT}, {self.arena_nbytes} bytes in all"
            self.fail(f"{nbytes} bytes at offset {offset} do not fit the arena ({limits})")
        self.define_at(operation.result, Base.ARENA, offset, nbytes)

    def view(self, operation: ir.View) -> None:
        source = self.places[operation.source]
        offset = self.evaluate(operation.offset) * operation.result.type.dtype.itemsize
        base, index, start = source.reference.base, source.reference.index, source.reference.offset
        self.define(operation.result, source._replace(reference=Reference(base, index, start + offset)))

    def dispatch(self, operation: ir.Dispatch) -> None:
        grid = self.grid(operation.grid)
        if grid is None:
            return  # an empty grid has nothing to do, and CUDA refuses it
        if min(grid) < 0:
            self.fail(f"kernel {operation.kernel.export_name!r}: the grid is {grid}")
        parameters: list[bytes | Reference] = []
        reads: list[Range] = []
        writes: list[Range] = []
        for index, (operand, rule) in enumerate(zip(operation.operands, self.rules_of(operation.kernel), strict=True)):
            if isinstance(rule, DType):
                parameters.append(self.scalar(index, operand, rule))
            elif operand is None:
                parameters.append(bytes(8))
            else:
                place = self.pointer(operand, rule)
                parameters.append(place.reference)
                if rule.reads:
                    reads.append(place.within)
                if rule.writes:
                    writes.append(place.within)
        choices = tuple(map(self.choice, operation.alternatives)) if self.candidates else ()
        self.steps.append(LaunchStep(operation.kernel, grid, tuple(parameters), tuple(reads), tuple(writes), choices))

    def choice(self, alternative: ir.Alternative) -> LaunchChoice:
        """An alternative of a dispatch that launches something; so must the alternative."""
        grid = self.grid(alternative.grid)
        if grid is None or min(grid) < 0:
            found = "empty, and that of the kernel whose place it takes is not" if grid is None else str(grid)
            self.fail(f"alternative kernel {alternative.kernel.export_name!r}: the grid is {found}")
        return LaunchChoice(alternative.kernel, grid)

    def grid(self, axes: tuple[Expr, Expr, Expr]) -> tuple[int, int, int] | None:
        """The grid for the sizes at hand; None where an axis is 0, whatever the others are.

        Inductor spreads a long axis over two by dividing one by the other, so an axis may be undefined where its
        neighbour is 0.
        """
        x, y, z = axes
        if type(x) is int and type(y) is int and type(z) is int and x and y and z:  # most are
            return x, y, z
        sizes = [self.quotient(axis) for axis in axes]
        if 0 in sizes:
            return None
        x, y, z = (self.evaluate(axis) if size is None else size for axis, size in zip(axes, sizes, strict=True))
        return x, y, z

    def quotient(self, expr: Expr) -> int | None:
        """The value of an expression, None where it divides by 0."""
        try:
            return evaluate(expr, self.sizes)
        except ZeroDivisionError:
            return None

    def rules_of(self, kernel: ir.Kernel) -> list[_PointerRule | DType]:
        rules = self.rules.get(id(kernel.parameters))
        if rules is None:
            rules = self.rules[id(kernel.parameters)] = [
                _PointerRule(
                    ir.Access.READ in parameter.access, ir.Access.WRITE in parameter.access, parameter.alignment
                )
                if isinstance(parameter, ir.PointerParameter)
                else parameter.dtype
                for parameter in kernel.parameters
            ]
        return rules

    def pointer(self, operand: ir.Operand, rule: _PointerRule) -> _Place:
        assert isinstance(operand, ir.Value), "the verifier lets nothing else be a pointer"
        place = self.write(operand) if rule.writes else self.places[operand]
        reference, alignment = place.reference, rule.alignment
        if reference.offset % alignment and self.type_of(operand).size:
            self.fail(
                f"%{operand.name} starts {reference.offset} bytes into the {reference.base.value}; the kernel relies "
                f"on an alignment of {alignment} bytes"
            )
        if reference.base is Base.ARGUMENT:
            self.alignments[reference.index] = max(self.alignments[reference.index], alignment)
        return place

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
        source, target = self.places[operation.source], self.write(operation.target)
        if nbytes and source.reference != target.reference:
            one, other = source.reference, target.reference
            same = (one.base, one.index) == (other.base, other.index)
            if same and abs(one.offset - other.offset) < nbytes:
                self.fail(f"%{operation.source.name} and %{operation.target.name} overlap")
            self.steps.append(CopyStep(target.reference, source.reference, nbytes, (source.within,), (target.within,)))

    def fill(self, operation: ir.Fill) -> None:
        nbytes = self.nbytes(operation.target)
        target = self.write(operation.target)
        if nbytes:
            pattern = operation.pattern.to_bytes(operation.target.type.dtype.itemsize, "little")
            self.steps.append(FillStep(target.reference, pattern, nbytes, (target.within,)))

    def matmul(self, operation: ir.Matmul) -> None:
        addend = () if operation.addend is None or not operation.beta else (operation.addend,)
        values = (operation.target, operation.lhs, operation.rhs, *addend)
        try:
            product = describe_product(operation, [self.type_of(value) for value in values])
        except InputError as error:
            self.fail(str(error))
        target = self.write(operation.target)
        if not product.size:
            return
        if not product.k:
            if addend:
                self.fail("a sum over nothing, with an addend, is not supported")
            zero = bytes(product.target_dtype.itemsize)
            self.steps.append(FillStep(target.reference, zero, self.nbytes(operation.target), (target.within,)))
            return
        places = [target, *(self.places[value] for value in values[1:])]
        references, within = [place.reference for place in places], [place.within for place in places]
        for reference in references:
            if reference.base is Base.ARGUMENT:
                self.alignments[reference.index] = max(self.alignments[reference.index], _ARGUMENT_ALIGNMENT)
        alignments = tuple(_alignment(reference) for reference in references)
        self.steps.append(
            MatmulStep(product, tuple(references), alignments, operation.location, tuple(within[1:]), (within[0],))
        )

    def nbytes(self, value: ir.Value) -> int:
        type_ = self.type_of(value)
        if type_.span_nbytes != type_.size * type_.dtype.itemsize:
            self.fail(f"%{value.name} has gaps between its elements")
        return type_.span_nbytes

    def return_(self, operation: ir.Return) -> None:
        for value in operation.values:
            place, type_ = self.places[value], self.type_of(value)
            own = place.reference.base in (Base.ARGUMENT, Base.OUTPUT)
            self.results.append((place.reference if own else self.copy_out(place, type_), type_))

    def copy_out(self, source: _Place, type_: ArrayType) -> Reference:
        low, nbytes, index = type_.extent[0] * type_.dtype.itemsize, type_.span_nbytes, len(self.output_nbytes)
        self.output_nbytes.append(nbytes)
        if nbytes:
            place = source.reference
            begin = Reference(place.base, place.index, place.offset + low)
            written = (Range(Base.OUTPUT, index, 0, nbytes),)
            self.steps.append(CopyStep(Reference(Base.OUTPUT, index, 0), begin, nbytes, (source.within,), written))
        return Reference(Base.OUTPUT, index, -low)


def _alignment(reference: Reference) -> int:
    """Bytes that an address surely is a multiple of."""
    start = _ARGUMENT_ALIGNMENT if reference.base is Base.ARGUMENT else ir.ARENA_ALIGNMENT
    return math.gcd(start, reference.offset)


_HANDLERS: dict[type[ir.Operation], Callable[[_Builder, Any], None]] = {
    ir.Parameter: _Builder.parameter,
    ir.GetGlobal: _Builder.get_global,
    ir.RandomSeeds: _Builder.random_seeds,
    ir.Alloc: _Builder.alloc,
    ir.View: _Builder.view,
    ir.Dispatch: _Builder.dispatch,
    ir.Copy: _Builder.copy,
    ir.Fill: _Builder.fill,
    ir.Matmul: _Builder.matmul,
    ir.Return: _Builder.return_,
}
