"""What a handler of an operation works with: the values so far, the functions of the module, sizes, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from coilpack.compiler.mlir.diagnostics import invalid, unsupported
from coilpack.compiler.mlir.functions import function_name
from coilpack.compiler.mlir.lower.elements import DTYPES, element_of
from coilpack.compiler.mlir.lower.frames import called_at
from coilpack.compiler.mlir.syntax import Block, Module, Operation, TensorType, Value
from coilpack.runtime.errors import InvalidFileError, UnsupportedError

Size = int | torch.SymInt
Data = torch.Tensor | Size  # a scalar is a tensor without dimensions; one of type index or i64 may be a size
Handler = Callable[["Context", Operation], Sequence[Data]]

_OPERATION_LIMIT = 100_000  # executed per function, calls inlined; each becomes a few nodes of the exported graph
_CALL_DEPTH = 64
_TERMINATORS = frozenset({"func.return", "linalg.yield", "tensor.yield"})


def as_number(size: Data) -> Any:
    """A number, for those functions of torch's whose annotations know Python's numbers alone."""
    return size


class ExampleError(Exception):
    """A condition on sizes does not hold for the example sizes of an export.

    Args:
        condition: what does not hold.
        problem: what that means for the module, as an error that can be shown.
    """

    def __init__(self, condition: torch.SymBool, problem: InvalidFileError) -> None:
        self.condition, self.problem = condition, problem
        super().__init__(str(problem))


def _assume(condition: bool | torch.SymBool) -> None:
    """Makes a condition one that the exported program checks."""
    torch._check(condition)  # type: ignore[no-untyped-call]


@dataclass
class Context:
    """The state of executing one function.

    Attributes:
        module: what is lowered.
        table: the handler of each operation, by name.
        constants: the tensor of each `arith.constant` that is kept as one.
        indices: in the body of a `linalg.generic` and its like, the index of each dimension of the iteration space;
            as tensors that broadcast to that space.
    """

    module: Module
    table: Mapping[str, Handler]
    constants: Mapping[Operation, torch.Tensor] = field(default_factory=dict)
    indices: Sequence[Data] = ()
    _values: dict[Value, Data] = field(default_factory=dict)
    _calls: list[str] = field(default_factory=list)
    _executed: int = 0

    @cached_property
    def functions(self) -> Mapping[str, Operation]:
        """The functions of the module by name."""
        return {function_name(function): function for function in self.module.functions()}

    # --- values ---

    def data(self, value: Value) -> Data:
        """What a value holds."""
        return self._values[value]

    def bind(self, values: Sequence[Value], data: Sequence[Data]) -> None:
        """Says what values hold."""
        self._values.update(zip(values, data, strict=True))

    def tensor(self, value: Value) -> torch.Tensor:
        """What a value holds, as a tensor of its element type."""
        return self.as_tensor(self._values[value], value)

    def as_tensor(self, data: Data, value: Value) -> torch.Tensor:
        """`data`, which is of the type of `value`, as a tensor."""
        if isinstance(data, torch.Tensor):
            return data
        element = element_of(value.type)
        assert element is not None
        return torch.full((), as_number(data), dtype=DTYPES[element.name])

    def tensors(self, operation: Operation) -> list[torch.Tensor]:
        """The operands as tensors."""
        return [self.tensor(operand) for operand in operation.operands]

    def size(self, operation: Operation, value: Value) -> Size:
        """An operand that is used as a size or an offset.

        Raises:
            UnsupportedError: it depends on the contents of tensors.
        """
        data = self._values[value]
        if isinstance(data, torch.Tensor):
            raise self.unsupported(operation, f"{value.name} depends on the contents of a tensor, so it is no size")
        return data

    # --- execution ---

    def run(self, block: Block, arguments: Sequence[Data]) -> tuple[Data, ...]:
        """Executes a block; what its terminator returns or yields."""
        self.bind(block.arguments, arguments)
        for operation in block.operations:
            if operation.name in _TERMINATORS:
                return tuple(self._values[operand] for operand in operation.operands)
            self.execute(operation)
        return ()

    def execute(self, operation: Operation) -> None:
        """Executes one operation.

        Raises:
            UnsupportedError: it is not covered, or too many have been executed.
        """
        handler = self.table.get(operation.name)
        if handler is None:
            raise self.unsupported(operation, f"the operation {operation.name} is not covered")
        for value in (*operation.operands, *operation.results):
            self.check_type(operation, value)
        self._executed += 1
        if self._executed > _OPERATION_LIMIT:
            raise self.unsupported(
                operation, f"more than {_OPERATION_LIMIT} operations with those of called functions; split the function"
            )
        file, line = self.module.source.file, operation.location.line
        self.bind(operation.results, called_at(file, line, handler, self, operation))

    def check_type(self, operation: Operation, value: Value) -> None:
        """Refuses values whose type torch does not hold."""
        element = element_of(value.type)
        if element is None or element.name not in DTYPES:
            raise self.unsupported(operation, f"{operation.name}: {value.name} has the type {value.type}, not covered")

    @contextmanager
    def iterating(self, indices: Sequence[Data]) -> Iterator[None]:
        """Within it, bodies are executed over another iteration space."""
        before, self.indices = self.indices, indices
        try:
            yield
        finally:
            self.indices = before

    @contextmanager
    def calling(self, operation: Operation, name: str) -> Iterator[None]:
        """Within it, the function `name` is executed.

        Raises:
            UnsupportedError: it is being executed already, or too many others are.
        """
        if name in self._calls:
            chain = " -> ".join(f"@{n}" for n in (*self._calls, name))
            raise self.unsupported(operation, f"the function calls itself: {chain}; recursion is not covered")
        if len(self._calls) == _CALL_DEPTH:
            raise self.unsupported(operation, f"@{name} is more than {_CALL_DEPTH} calls deep")
        self._calls.append(name)
        try:
            yield
        finally:
            self._calls.pop()

    # --- sizes ---

    def require_equal(self, operation: Operation, left: Size, right: Size, what: str) -> None:
        """Two sizes that MLIR says are equal: an error where they cannot be, else checked when the program runs.

        Raises:
            InvalidFileError: both are known and differ; `what` says what they are.
            ExampleError: they differ for the example sizes.
        """
        self.require(operation, left == right, f"{what}: {left} and {right} must be equal")

    def require(self, operation: Operation, condition: bool | torch.SymBool, what: str) -> None:
        """A condition on sizes: an error where it does not hold for known ones, else checked when the program runs.

        Raises:
            InvalidFileError: it does not hold; `what` says what is wrong.
            ExampleError: it does not hold for the example sizes.
        """
        if not condition:
            problem = self.invalid(operation, f"{operation.name}: {what}")
            raise ExampleError(condition, problem) if isinstance(condition, torch.SymBool) else problem
        if isinstance(condition, torch.SymBool):
            _assume(condition)

    def declared(self, operation: Operation, data: Sequence[Data]) -> tuple[Data, ...]:
        """Results whose sizes are checked against the types that the text declares."""
        for value, result in zip(operation.results, data, strict=True):
            if isinstance(value.type, TensorType) and isinstance(result, torch.Tensor):
                for size, given in zip(result.shape, value.type.shape, strict=True):
                    if given is not None:
                        self.require_equal(operation, size, given, f"a size of {value.name}")
        return tuple(data)

    # --- errors ---

    def unsupported(self, operation: Operation, problem: str) -> UnsupportedError:
        """The error for valid text that is not covered."""
        return unsupported(self.module.source, operation.location, problem)

    def invalid(self, operation: Operation, problem: str) -> InvalidFileError:
        """The error for text that breaks a rule."""
        return invalid(self.module.source, operation.location, problem)
