"""A function of an MLIR module as an exported program.

`torch.export` needs example sizes for the dimensions that are dynamic. They are distinct at first, so that no two
become one by chance; where the function needs sizes to be equal (two arguments of an addition), an example that breaks
that is changed until none does, and export then makes that equality a condition of the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sympy
import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.mlir.diagnostics import unsupported
from coilpack.compiler.mlir.functions import body_of, public_functions
from coilpack.compiler.mlir.lower.context import ExampleError
from coilpack.compiler.mlir.lower.elements import DTYPES, INDEX
from coilpack.compiler.mlir.lower.functions import FunctionModule
from coilpack.compiler.mlir.lower.table import TABLE
from coilpack.compiler.mlir.syntax import Module, Operation, ScalarType, TensorType, Value
from coilpack.runtime.errors import CoilpackError, NotFoundError

# Examples are multiples of this, as expanded shapes need sizes that can be divided, and none is a size that is special.
_STEP = 24
_ATTEMPTS = 50
_MINIMUM, _SEARCHED = 2, 200  # examples of 0 and 1 would be taken for constants
_Place = tuple[int, int | None]  # an argument, and its dimension where it is a tensor


def lower_function(module: Module, name: str) -> FunctionModule:
    """The public function `name`, to be called with torch.

    Raises:
        NotFoundError: there is none of that name.
    """
    functions = public_functions(module)
    if name not in functions:
        raise NotFoundError("function", name, module.source.file, functions)
    return FunctionModule(module, name, TABLE)


def export_function(module: Module, name: str) -> torch.export.ExportedProgram:
    """Exports the public function `name`.

    Raises:
        NotFoundError: there is none of that name.
        InvalidFileError: sizes in it cannot be what they must.
        UnsupportedError: something in it is not covered.
    """
    lowered = lower_function(module, name)
    function = public_functions(module)[name]
    examples = _Examples.of(module, function)
    for _ in range(_ATTEMPTS):
        try:
            return examples.export(lowered)
        except ExampleError as error:
            if not examples.repair(error):
                raise error.problem from error
        except CoilpackError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise unsupported(
                module.source, function.location, f"@{name} cannot be exported by torch.export: {reason}"
            ) from error
    raise unsupported(module.source, function.location, f"@{name}: no example sizes fit after {_ATTEMPTS} attempts")


def save_function(module: Module, name: str, target: Path) -> None:
    """Exports the public function `name` as the `.pt2` file `target`; raises as `export_function` does."""
    program = export_function(module, name)
    program.example_inputs = None  # they have the size of the inputs, and say nothing
    torch.export.save(program, target)


@dataclass
class _Examples:
    """Example arguments of a function.

    Attributes:
        arguments: its arguments.
        sizes: the example of each dynamic dimension, and of each argument of type `index`.
    """

    arguments: tuple[Value, ...]
    sizes: dict[_Place, int]

    @classmethod
    def of(cls, module: Module, function: Operation) -> _Examples:
        """The first examples to try.

        Raises:
            UnsupportedError: an argument is neither a tensor nor a number that is covered.
        """
        body = body_of(function)
        assert body is not None
        places: list[_Place] = []
        for number, argument in enumerate(body.arguments):
            type_ = argument.type
            element = type_.element if isinstance(type_, TensorType) else type_
            if not isinstance(element, ScalarType) or element.name not in DTYPES:
                raise unsupported(module.source, function.location, f"{argument.name} has the type {type_}")
            if isinstance(type_, TensorType):
                places += [(number, dim) for dim, size in enumerate(type_.shape) if size is None]
            elif type_ == INDEX:
                places.append((number, None))
        return cls(body.arguments, {place: _STEP * (count + 1) for count, place in enumerate(places)})

    def export(self, lowered: FunctionModule) -> torch.export.ExportedProgram:
        """One attempt."""
        values = tuple(self._value(number, argument) for number, argument in enumerate(self.arguments))
        dynamic = tuple(_dynamic(argument) for argument in self.arguments)
        with torch.no_grad():
            return torch.export.export(lowered, values, dynamic_shapes={"arguments": dynamic} if values else None)

    def _value(self, number: int, argument: Value) -> torch.Tensor | int:
        type_ = argument.type
        if isinstance(type_, TensorType):
            shape = [self.sizes[number, dim] if size is None else size for dim, size in enumerate(type_.shape)]
            return torch.empty(shape, dtype=DTYPES[type_.element.name])
        assert isinstance(type_, ScalarType)
        return self.sizes[number, None] if type_ == INDEX else torch.empty((), dtype=DTYPES[type_.name])

    def repair(self, error: ExampleError) -> bool:
        """Changes one example so that a condition holds; False where none can."""
        condition, values = compat.condition_with_examples(error.condition)
        for symbol in sorted(values, key=values.__getitem__, reverse=True):
            places = [place for place, size in self.sizes.items() if size == values[symbol]]
            rest = condition.subs({other: value for other, value in values.items() if other != symbol})
            found = next((v for v in _candidates(rest, symbol) if rest.subs(symbol, v) == sympy.true), None)
            if places and found is not None:
                self.sizes[places[-1]] = found
                return True
        return False


def _dynamic(argument: Value) -> Any:
    """What torch.export may find out about the sizes of an argument."""
    auto = torch.export.Dim.AUTO
    if isinstance(argument.type, TensorType):
        return {dim: auto for dim, size in enumerate(argument.type.shape) if size is None}
    return auto if argument.type == INDEX else None


def _candidates(condition: sympy.Basic, symbol: sympy.Symbol) -> Iterator[int]:
    """Sizes that may make a condition hold: what solves an equation, and all that are small."""
    if isinstance(condition, sympy.Eq):
        solutions = sympy.solve(condition.lhs - condition.rhs, symbol)
        yield from (int(value) for value in solutions if value.is_Integer and value >= _MINIMUM)
    yield from range(_MINIMUM, _SEARCHED)
