"""The calls that tuning measures: functions at given sizes, over inputs that were given or made up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coilpack.runtime.arguments import bind_arguments
from coilpack.runtime.arrays import DeviceArray, HostArray, as_bytes, as_device_view
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError, NotFoundError
from coilpack.runtime.loaded import Callee, LoadedProgram
from coilpack.runtime.program import ir
from coilpack.runtime.sizes import Given, as_integer, check_shapes, describe_symbol, solve_sizes, value_of

Sizes = Mapping[str, int]
SEED = 0  # of the inputs that are made up, and of functions that draw random numbers


@dataclass(frozen=True)
class Call:
    """A call of a function: the values of its symbols, and its arguments on the host."""

    callee: Callee
    sizes: dict[str, int]
    arguments: tuple[HostArray | int, ...]

    def __str__(self) -> str:
        sizes = ", ".join(f"{name}={value}" for name, value in self.sizes.items())
        return f"{self.callee.signature.name} ({sizes})" if sizes else self.callee.signature.name

    def digest(self) -> str:
        """Hex digits that differ where the function's name, a size or an argument differs."""
        made = hashlib.sha256(repr((self.callee.signature.name, self.sizes)).encode())
        for argument in self.arguments:
            if isinstance(argument, int):
                made.update(f"{argument};".encode())
            else:
                made.update(f"{argument.dtype}{argument.shape};".encode())
                made.update(as_bytes(np.ascontiguousarray(argument)))
        return made.hexdigest()


def make_calls(
    program: LoadedProgram,
    functions: Sequence[str],
    inputs: Mapping[str, Sequence[object]],
    sizes: Sequence[Sizes],
) -> list[Call]:
    """The calls of these functions, one for each combination of sizes.

    Args:
        program: where the functions are.
        functions: their names.
        inputs: of some of them all arguments; sizes are read off those.
        sizes: combinations of values of symbols. A function is called for each one that gives all its symbols; what
            belongs to other functions is passed over.

    Raises:
        NotFoundError: a function is not there, or none of them has a symbol that a combination names.
        InputError: a function has no combination, or one gives some of its symbols only; sizes or arguments are not
            what it takes.
    """
    callees = [program.callee(name) for name in functions]
    _check_names(callees, inputs, sizes, program.file)
    calls = []
    for callee in callees:
        name = callee.signature.name
        if name in inputs:
            calls.append(_given(program, callee, inputs[name]))
        else:
            calls += [_made_up(callee, values) for values in _combinations(callee.signature, sizes)]
    return calls


def _check_names(callees: Sequence[Callee], inputs: Mapping[str, object], sizes: Sequence[Sizes], file: str) -> None:
    names = [callee.signature.name for callee in callees]
    for name in inputs:
        if name not in names:
            raise NotFoundError("function to tune", name, file, names)
    known = {symbol.name for callee in callees for symbol in callee.signature.symbols}
    for name in (name for combination in sizes for name in combination):
        if name not in known:
            raise NotFoundError("size", name, f"{file}: {', '.join(names)}", known)


def _given(program: LoadedProgram, callee: Callee, values: Sequence[object]) -> Call:
    """A call with these arguments, brought to the host."""
    signature, device = callee.signature, program.device
    arguments: list[HostArray | int] = []
    bound = bind_arguments(signature, values, {})
    for value, argument, what in zip(bound, signature.inputs, callee.labels, strict=True):
        if argument.value is not None:
            arguments.append(as_integer(value, what))
            continue
        view = as_device_view(value, device, device.default_stream, what)
        arguments.append(view.numpy() if isinstance(view, DeviceArray) else view.copy())
    given = [argument if isinstance(argument, int) else argument.shape for argument in arguments]
    return Call(callee, _checked_sizes(signature, given), tuple(arguments))


def _made_up(callee: Callee, sizes: Sizes) -> Call:
    """A call at these sizes: normally distributed numbers; zeros for integers and booleans, which any index may be."""
    signature = callee.signature
    given = [_size_or_shape(argument, signature, sizes) for argument in signature.inputs]
    checked = _checked_sizes(signature, given)  # before memory is taken for what a wrong size asks for
    generator = np.random.default_rng(SEED)
    arguments = (
        size if isinstance(size, int) else _array(size, argument.type.dtype, generator, what)
        for size, argument, what in zip(given, signature.inputs, callee.labels, strict=True)
    )
    return Call(callee, checked, tuple(arguments))


def _size_or_shape(argument: ir.Argument, signature: ir.Signature, sizes: Sizes) -> Given:
    if argument.value is not None:
        return value_of(argument.value, signature, sizes)
    shape = tuple(value_of(size, signature, sizes) for size in argument.type.shape)
    if min(shape, default=0) < 0:
        raise InputError(f"{signature.name}: {argument.name or 'an argument'} would have the shape {shape}")
    return shape


def _array(shape: tuple[int, ...], dtype: DType, generator: np.random.Generator, what: str) -> HostArray:
    try:
        if dtype.is_float:
            return generator.standard_normal(shape, np.float32).astype(dtype.numpy)
        if dtype.name.startswith("complex"):
            parts: Any = generator.standard_normal((2, *shape), np.float32)
            return np.asarray(parts[0] + 1j * parts[1], dtype.numpy)
        return np.zeros(shape, dtype.numpy)
    except (MemoryError, ValueError) as error:  # the latter where not even its bytes can be counted
        raise InputError(f"{what}: it cannot be made up with the shape {shape}: {error}") from error


def _checked_sizes(signature: ir.Signature, given: Sequence[Given]) -> dict[str, int]:
    sizes = solve_sizes(signature, given)
    check_shapes(signature, given, sizes)
    return sizes


def _combinations(signature: ir.Signature, sizes: Sequence[Sizes]) -> Iterator[dict[str, int]]:
    """The different combinations of values of a function's symbols."""
    names = [symbol.name for symbol in signature.symbols]
    made: list[dict[str, int]] = []
    for given in sizes:
        missing = [name for name in names if name not in given]
        if missing and len(missing) < len(names):
            stated = ", ".join(f"{name}={given[name]}" for name in names if name in given)
            raise InputError(
                f"{signature.name}: the combination {stated} has no value for {', '.join(missing)}; give all together, "
                f"as {','.join(f'{name}=N' for name in names)}"
            )
        values = {name: as_integer(given[name], f"size {name}") for name in names if not missing}
        if values and values not in made:
            made.append(values)
    if not names:
        made.append({})
    if not made:
        listed = "; ".join(describe_symbol(signature, symbol) for symbol in signature.symbols)
        raise InputError(
            f"{signature.name}: say at which sizes to measure it, as {','.join(f'{name}=N' for name in names)} (--size)"
            f"; they are: {listed}"
        )
    yield from made
