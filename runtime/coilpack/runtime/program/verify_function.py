"""The rules of a function's body: values, memory ranges, and what dispatches hand to kernels."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from coilpack.runtime.dtypes import DType
from coilpack.runtime.program import ir
from coilpack.runtime.program.types import TypeChecker, TypeFacts, TypeProblemError
from coilpack.runtime.program.verify_dispatch import alternatives_problem, grid_problem, kernel_problem
from coilpack.runtime.program.verify_matmul import matmul_problem

MAX_OPERATIONS = 1_000_000
MAX_SEEDS = 65536  # of one function: they are computed on the host, at every call
PHILOX_WORDS = 4  # that Philox4x32 makes at a time

SCALAR_RANGE: dict[DType, tuple[int, int]] = {
    dtype: (0, 2**bits - 1) if dtype.name.startswith("ui") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for dtype in DType
    if dtype.name.startswith(("i", "ui"))
    for bits in (8 * dtype.itemsize,)
} | {DType.i1: (0, 1)}


class OperationProblemError(Exception):
    """A rule that an operation breaks; `where` is its place in the function, `subject` the operation."""

    def __init__(self, problem: str, where: str, subject: object) -> None:
        super().__init__(problem)
        self.where, self.subject = where, subject


_DEFINING = (ir.Parameter, ir.Alloc, ir.View, ir.GetGlobal, ir.RandomSeeds)  # operations that define a value


class _Space(enum.Enum):
    """What kind of memory a value lies in."""

    ARGUMENT = "an argument"
    STORAGE = "a storage"
    ARENA = "an arena allocation"
    OUTPUT = "an output"
    GLOBAL = "a global"
    SEEDS = "the call's seeds"


# What a function may not write to, and why.
_CONSTANT = {
    _Space.STORAGE: "lies in a storage; weights are constant",
    _Space.SEEDS: "is a row of seeds; they are the call's",
}
# What a function may not return, and why.
_SHORT_LIVED = {
    _Space.ARENA: "lies in the arena: the next call overwrites it",
    _Space.SEEDS: "is a row of seeds: the next call overwrites it",
}


class _Memory(NamedTuple):
    """Where a value lies: its allocation (`root` tells it apart), and where in it, in bytes; None if not known."""

    root: object
    space: _Space
    nbytes: int | None
    start: int | None


class _PointerRule(NamedTuple):
    """What the verifier asks of a pointer parameter; flat, as it is asked for every operand."""

    dtype: DType
    writes: bool
    alignment: int


def _rule(parameter: ir.KernelParameter) -> _PointerRule | DType:
    """What is asked of an operand: that of a pointer, or the type of a scalar."""
    if isinstance(parameter, ir.ScalarParameter):
        return parameter.dtype
    return _PointerRule(parameter.dtype, ir.Access.WRITE in parameter.access, parameter.alignment)


class FunctionVerifier:
    """Checks one function; `run` raises `OperationProblemError` where a rule is broken.

    Args:
        function: the function.
        kernels: the target's kernels by export name.
        storages: the program's storages by name.
        globals_: the program's globals by name.
    """

    def __init__(
        self,
        function: ir.Function,
        kernels: Mapping[str, ir.Kernel],
        storages: Mapping[str, ir.Storage],
        globals_: Mapping[str, ir.Global],
    ) -> None:
        self.function = function
        self.kernels = kernels
        self.storages = storages
        self.globals = globals_
        self.integers: set[ir.Value] = set()
        self.checker = TypeChecker(frozenset(symbol.name for symbol in function.signature.symbols))
        self.memory: dict[ir.Value, _Memory] = {}
        self._kernel_rules: dict[int, list[_PointerRule | DType]] = {}
        self.arena_nbytes: int | None = 0
        self.seeds = 0  # drawn by the operations so far
        self.index = -1

    def fail(self, problem: str) -> NoReturn:
        """Raises for the operation at hand."""
        if self.index < 0:
            raise OperationProblemError(problem, "", self.function)
        operation = self.function.operations[self.index]
        location = f" at {operation.location}" if operation.location else ""
        where = f"operation {self.index} ({getattr(operation, 'mnemonic', '?')}{location})"
        raise OperationProblemError(problem, where, operation)

    def run(self) -> None:
        """Checks the whole function."""
        function = self.function
        try:
            self._texts()
            self._interface()
            for index, operation in enumerate(function.operations):
                self.index = index
                handler = _HANDLERS.get(type(operation))
                if handler is None:
                    self.fail(f"{type(operation).__name__} is not an operation of the IR")
                handler(self, operation)
        except TypeProblemError as error:
            self.fail(str(error))

    def _interface(self) -> None:
        function = self.function
        inputs, arguments = function.signature.inputs, function.arguments
        if len(arguments) != len(inputs):
            self.fail(f"it has {len(arguments)} arguments, its signature has {len(inputs)} inputs")
        for index, (value, argument) in enumerate(zip(arguments, inputs, strict=True)):
            if value.type is not argument.type and value.type != argument.type:
                self.fail(f"the type of argument {index} differs from that of the signature's input")
            if argument.value is not None:
                self.integers.add(value)
                continue
            self.memory[value] = _Memory(value, _Space.ARGUMENT, self.checker.check(value.type).extent, 0)
        self.arena_nbytes = self.checker.value(function.arena_nbytes)
        if self.arena_nbytes is not None and self.arena_nbytes < 0:
            self.fail(f"arena_nbytes is {self.arena_nbytes}; it must not be negative")
        count = len(function.operations)
        if not count or type(function.operations[-1]) is not ir.Return:
            self.fail("its last operation must be a return")
        if count > MAX_OPERATIONS:
            self.fail(f"it has {count} operations; the limit is {MAX_OPERATIONS}")

    # --- values ---

    def _texts(self) -> None:
        """Names and locations, all at once: they are many and hardly ever wrong.

        As names are unique, no value is defined twice.
        """
        names = [value.name for value in self.function.arguments]
        names += [operation.result.name for operation in self.function.operations if isinstance(operation, _DEFINING)]
        if len(set(names)) < len(names) or not all(names):
            seen: set[str] = set()
            for name in names:
                if name in seen or not name:
                    self.fail(f"two values are named %{name}" if name else "the name of a value is empty")
                seen.add(name)
        locations = [operation.location for operation in self.function.operations]
        for kind, texts in (("name", names), ("location", locations)):
            if not _is_text("".join(texts)):
                wrong = next(text for text in texts if not _is_text(text))
                self.fail(f"the {kind} {wrong!r} holds a NUL or half of a surrogate pair")

    def _use(self, value: ir.Value) -> _Memory:
        memory = self.memory.get(value)
        if memory is None:
            if value in self.integers:
                self.fail(f"%{value.name} is an integer and no memory; expressions use its symbol")
            self.fail(f"%{value.name} is used before it is defined")
        return memory

    def _write(self, value: ir.Value) -> _Memory:
        memory = self._use(value)
        if memory.space in _CONSTANT:
            self.fail(f"it writes to %{value.name}, which {_CONSTANT[memory.space]}")
        return memory

    def _within(self, memory: _Memory, facts: TypeFacts, value: ir.Value) -> None:
        """Fails unless the value's bytes lie in its allocation and its elements are aligned, as far as is known."""
        start = memory.start
        if start is None:
            return
        element = facts.alignment
        if start % element:
            self.fail(
                f"%{value.name} starts at byte {start}, but {value.type.dtype.name} is aligned to {element} bytes"
            )
        end = start + (facts.extent or 0)
        if start < 0 or (memory.nbytes is not None and end > memory.nbytes):
            size = "" if memory.nbytes is None else f" of {memory.nbytes} bytes"
            self.fail(f"%{value.name} takes bytes {start} to {end} of {memory.space.value}{size}")

    # --- operations ---

    def _parameter(self, operation: ir.Parameter) -> None:
        storage = operation.storage
        known = self.storages.get(storage.name)
        if known is not storage and known != storage:
            self.fail(f"storage {storage.name!r} of {storage.nbytes} bytes is not one of the program's")
        memory = _Memory(known, _Space.STORAGE, storage.nbytes, operation.byte_offset)
        self.memory[operation.result] = memory
        self._within(memory, self.checker.check(operation.result.type), operation.result)

    def _get_global(self, operation: ir.GetGlobal) -> None:
        global_ = operation.global_
        known = self.globals.get(global_.name)
        if known is not global_ and known != global_:
            self.fail(f"global {global_.name!r} of {global_.nbytes} bytes is not one of the program's")
        memory = _Memory(known, _Space.GLOBAL, global_.nbytes, operation.byte_offset)
        self.memory[operation.result] = memory
        self._within(memory, self.checker.check(operation.result.type), operation.result)

    def _random_seeds(self, operation: ir.RandomSeeds) -> None:
        value, offset = operation.result, operation.philox_offset
        facts = self.checker.check(value.type)
        if value.type.dtype is not DType.i64 or len(value.type.shape) != 1 or not facts.dense or facts.nbytes is None:
            self.fail(f"%{value.name} must be a contiguous row of i64 whose length is constant")
        count = facts.nbytes // facts.itemsize
        self.seeds += count
        if self.seeds > MAX_SEEDS:
            self.fail(f"the function draws {self.seeds} seeds; the limit is {MAX_SEEDS}")
        if not 0 <= offset < 2**64 or offset % PHILOX_WORDS:
            self.fail(f"its philox_offset is {offset}; it must be a multiple of {PHILOX_WORDS} below 2**64")
        if not self.function.signature.random:
            self.fail("it draws seeds, but the signature is not random")
        self.memory[value] = _Memory(value, _Space.SEEDS, facts.nbytes, 0)

    def _alloc(self, operation: ir.Alloc) -> None:
        value = operation.result
        facts = self.checker.check(value.type)
        nbytes, offset = self.checker.value(operation.nbytes), self.checker.value(operation.offset)
        if nbytes is not None and nbytes < (facts.extent or 0):
            self.fail(f"%{value.name} reaches over {facts.extent or 0} bytes, but nbytes is {nbytes}")
        if operation.space is ir.AllocSpace.OUTPUT:
            if operation.offset != 0:
                self.fail("an output has memory of its own; its offset must be 0")
            self.memory[value] = _Memory(value, _Space.OUTPUT, nbytes, 0)
            return
        if offset is not None:
            if offset < 0 or offset % ir.ARENA_ALIGNMENT:
                self.fail(f"its offset is {offset}; it must be a multiple of {ir.ARENA_ALIGNMENT}")
            limit = self.arena_nbytes
            if nbytes is not None and limit is not None and offset + nbytes > limit:
                self.fail(f"it takes bytes {offset} to {offset + nbytes} of the arena, which has {limit}")
        self.memory[value] = _Memory(value, _Space.ARENA, nbytes, 0)

    def _view(self, operation: ir.View) -> None:
        source, value = self._use(operation.source), operation.result
        facts = self.checker.check(value.type)
        offset = self.checker.value(operation.offset)
        start = None if source.start is None or offset is None else source.start + offset * facts.itemsize
        memory = _Memory(source.root, source.space, source.nbytes, start)
        self.memory[value] = memory
        self._within(memory, facts, value)

    def _dispatch(self, operation: ir.Dispatch) -> None:
        kernel = operation.kernel
        problem = kernel_problem(kernel, self.kernels) or grid_problem(operation.grid, self.checker)
        if not problem and operation.alternatives:
            problem = alternatives_problem(operation, self.kernels, self.checker)
        if problem:
            self.fail(problem)
        if len(operation.operands) != len(kernel.parameters):
            given, taken = len(operation.operands), len(kernel.parameters)
            self.fail(f"it has {given} operands, kernel {kernel.export_name!r} has {taken} parameters")
        rules = self._kernel_rules.get(id(kernel.parameters))
        if rules is None:
            rules = self._kernel_rules[id(kernel.parameters)] = [_rule(item) for item in kernel.parameters]
        for index, (operand, rule) in enumerate(zip(operation.operands, rules, strict=True)):
            if isinstance(rule, _PointerRule):
                self._pointer(index, operand, rule)
            else:
                self._scalar(index, operand, rule)

    def _pointer(self, index: int, operand: ir.Operand, rule: _PointerRule) -> None:
        if operand is None:
            return
        if not isinstance(operand, ir.Value):
            self.fail(f"operand {index} is {_describe(operand)}, but the kernel takes a pointer there")
        dtype, writes, alignment = rule
        memory = self.memory.get(operand)
        if memory is None or writes:
            memory = self._write(operand) if writes else self._use(operand)
        if operand.type.dtype is not dtype:
            given = operand.type.dtype.name
            self.fail(
                f"operand {index}, %{operand.name}, holds {given}, but the kernel takes a pointer to {dtype.name}"
            )
        # Allocations start at multiples of 256; where arguments start is checked at each call.
        if memory.start and memory.start % alignment and memory.space is not _Space.ARGUMENT:
            place = f"starts at byte {memory.start} of its allocation"
            aligned = f"the kernel relies on {alignment}-byte alignment"
            self.fail(f"operand {index}, %{operand.name}, {place}, but {aligned}")

    def _scalar(self, index: int, operand: ir.Operand, dtype: DType) -> None:
        if isinstance(operand, float):
            if not dtype.is_float:
                self.fail(f"operand {index} is the float {operand!r}, but the kernel takes {dtype.name} there")
            return
        if operand is None or isinstance(operand, ir.Value):
            self.fail(f"operand {index} is {_describe(operand)}, but the kernel takes the scalar {dtype.name} there")
        value = self.checker.value(operand)
        if value is not None and dtype in SCALAR_RANGE:
            low, high = SCALAR_RANGE[dtype]
            if not low <= value <= high:
                self.fail(f"operand {index} is {value}, out of the range of {dtype.name}, {low} to {high}")

    def _copy(self, operation: ir.Copy) -> None:
        self._use(operation.source)
        self._write(operation.target)
        first, second = self._dense(operation.source), self._dense(operation.target)
        if first is None or second is None:
            return
        if first != second:
            self.fail(f"%{operation.source.name} has {first} bytes, %{operation.target.name} has {second}")
        self._apart(operation.source, operation.target)

    def _apart(self, source: ir.Value, target: ir.Value) -> None:
        """Fails where both are known to share bytes."""
        one, other = self._use(source), self._use(target)
        if one.root is not other.root or one.start is None or other.start is None:
            return
        reach, extent = self.checker.check(source.type).extent, self.checker.check(target.type).extent
        if reach is None or extent is None:
            return
        if one.start < other.start + extent and other.start < one.start + reach:
            self.fail(f"%{source.name} and %{target.name} overlap")

    def _matmul(self, operation: ir.Matmul) -> None:
        self._write(operation.target)
        for value in (operation.lhs, operation.rhs):
            self._apart(value, operation.target)
        if operation.addend is not None:
            self._use(operation.addend)
        problem = matmul_problem(operation, self.checker)
        if problem:
            self.fail(problem)

    def _fill(self, operation: ir.Fill) -> None:
        self._write(operation.target)
        self._dense(operation.target)
        bits = 8 * min(operation.target.type.dtype.itemsize, 8)
        if not 0 <= operation.pattern < 2**bits:
            dtype = operation.target.type.dtype.name
            self.fail(f"the pattern {operation.pattern:#x} does not fit into the {bits} bits of an element of {dtype}")

    def _dense(self, value: ir.Value) -> int | None:
        """The bytes of a value, which must be contiguous."""
        facts = self.checker.check(value.type)
        if not facts.dense:
            self.fail(f"%{value.name} is not contiguous")
        return facts.nbytes

    def _return(self, operation: ir.Return) -> None:
        if self.index != len(self.function.operations) - 1:
            self.fail("a return must be the last operation")
        outputs = [item for item in enumerate(self.function.signature.outputs) if item[1].value is None]
        if len(operation.values) != len(outputs):
            self.fail(f"it returns {len(operation.values)} values, the signature has {len(outputs)} outputs")
        for value, (index, output) in zip(operation.values, outputs, strict=True):
            reason = _SHORT_LIVED.get(self._use(value).space)
            if reason:
                self.fail(f"it returns %{value.name}, which {reason}")
            if value.type is not output.type and value.type != output.type:
                self.fail(f"the type of %{value.name} differs from that of output {index}")


_HANDLERS: dict[type[ir.Operation], Callable[[FunctionVerifier, Any], None]] = {
    ir.Parameter: FunctionVerifier._parameter,
    ir.Alloc: FunctionVerifier._alloc,
    ir.View: FunctionVerifier._view,
    ir.Dispatch: FunctionVerifier._dispatch,
    ir.Copy: FunctionVerifier._copy,
    ir.Fill: FunctionVerifier._fill,
    ir.GetGlobal: FunctionVerifier._get_global,
    ir.RandomSeeds: FunctionVerifier._random_seeds,
    ir.Matmul: FunctionVerifier._matmul,
    ir.Return: FunctionVerifier._return,
}


def _is_text(text: str) -> bool:
    """Whether a file can hold it: no NUL, which ends strings in C, and no half of a surrogate pair."""
    if "\0" in text:
        return False
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _describe(operand: ir.Operand) -> str:
    if operand is None:
        return "a null pointer"
    if isinstance(operand, ir.Value):
        return f"the address of %{operand.name}"
    return f"the number {operand!r}" if isinstance(operand, int | float) else "an integer expression"
