"""Rules of operations that the generic form does not hold by itself, and those between operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from coilpack.compiler.mlir.diagnostics import invalid
from coilpack.compiler.mlir.syntax import (
    Block,
    DenseElementsAttr,
    FloatAttr,
    FunctionType,
    IntegerAttr,
    Module,
    Operation,
    StringAttr,
    SymbolRefAttr,
    Type,
    TypeAttr,
    Value,
)
from coilpack.compiler.mlir.text.attributes import I1
from coilpack.compiler.mlir.text.common import truths
from coilpack.compiler.mlir.text.operations import CASTS, ELEMENTWISE, PAIRS, TESTS
from coilpack.runtime.errors import InvalidFileError

_LAST = ("func.return", "linalg.yield", "tensor.yield")  # operations that end their block
_PREDICATES = {"arith.cmpf": 16, "arith.cmpi": 10}  # how many there are
_Rule = Callable[[Operation], str | None]


def verify(module: Module) -> None:
    """Checks a module.

    Raises:
        InvalidFileError: a rule is broken; the message has the place of the operation.
    """
    functions = {_text(f): f for f in module.functions()}
    for block in _blocks(module.operations):
        for operation in block.operations:
            problem = _problem(operation)
            if problem is None and operation.name in _LAST and operation is not block.operations[-1]:
                problem = f"{operation.name} ends its block, but operations follow"
            if problem is None and operation.name == "func.call":
                problem = _call(operation, functions)
            if problem is not None:
                raise _invalid(module, operation, problem)
    for function in functions.values():
        _function(module, function)


def _invalid(module: Module, operation: Operation, problem: str) -> InvalidFileError:
    return invalid(module.source, operation.location, problem)


def _blocks(operations: tuple[Operation, ...]) -> Iterator[Block]:
    """The blocks within operations, at any depth."""
    waiting = list(operations)
    while waiting:
        for region in waiting.pop().regions:
            for block in region.blocks:
                yield block
                waiting += [operation for operation in block.operations if operation.regions]


def _problem(operation: Operation) -> str | None:
    rule = _RULES.get(operation.name)
    return None if rule is None else rule(operation)


def _text(function: Operation) -> str:
    name = function.attributes["sym_name"]
    assert isinstance(name, StringAttr)
    return name.value


def _signature(function: Operation) -> FunctionType:
    attribute = function.attributes["function_type"]
    assert isinstance(attribute, TypeAttr)
    assert isinstance(attribute.type, FunctionType)
    return attribute.type


def _function(module: Module, function: Operation) -> None:
    """Every block that goes on nowhere returns what the function gives."""
    wanted = _signature(function).results
    for block in function.regions[0].blocks:
        last = block.operations[-1] if block.operations else function
        if last.name == "func.return":
            if _types(last.operands) != wanted:
                given = _shown(_types(last.operands))
                raise _invalid(module, last, f"{last.name} gives {given}; the function's results are {_shown(wanted)}")
        elif not last.successors:
            raise _invalid(module, last, "a block of a function ends with func.return; this is the last that it has")


def _call(operation: Operation, functions: Mapping[str, Operation]) -> str | None:
    callee = operation.attributes.get("callee")
    if not isinstance(callee, SymbolRefAttr):
        return f"{operation.name} needs its function as 'callee'"
    function = functions.get(callee.path[-1])
    given = FunctionType(_types(operation.operands), _types(operation.results))
    if function is None or _signature(function) == given:
        return None  # one that is not there is told where it is called for
    return f"@{callee.path[-1]} is of type {_signature(function)}, called as {given}"


def _types(values: tuple[Value, ...]) -> tuple[Type, ...]:
    return tuple(value.type for value in values)


def _shown(types: tuple[Type, ...]) -> str:
    return f"({', '.join(map(str, types))})"


def _expect(operation: Operation, operands: tuple[Type, ...], results: tuple[Type, ...]) -> str | None:
    given = _types(operation.operands), _types(operation.results)
    if given == (operands, results):
        return None
    shown = FunctionType(*given)
    return f"{operation.name} is of type {FunctionType(operands, results)} here, not {shown}"


def _elementwise(operation: Operation) -> str | None:
    if len(operation.operands) != ELEMENTWISE[operation.name]:
        return f"{operation.name} needs another number of operands: {ELEMENTWISE[operation.name]}"
    type_ = operation.operands[0].type
    results = (truths(type_),) if operation.name in TESTS else (type_,) * (2 if operation.name in PAIRS else 1)
    return _expect(operation, (type_,) * len(operation.operands), results)


def _compare(operation: Operation) -> str | None:
    if len(operation.operands) != 2:
        return f"{operation.name} needs another number of operands: 2"
    type_ = operation.operands[0].type
    predicate, count = operation.attributes.get("predicate"), _PREDICATES[operation.name]
    if not isinstance(predicate, IntegerAttr) or not 0 <= predicate.value < count:
        return f"{operation.name} needs its 'predicate', an integer from 0 to {count - 1}"
    return _expect(operation, (type_, type_), (truths(type_),))


def _select(operation: Operation) -> str | None:
    if len(operation.operands) != 3:
        return f"{operation.name} needs another number of operands: 3"
    truth, type_, _ = _types(operation.operands)
    return _expect(operation, (truth if truth == I1 else truths(type_), type_, type_), (type_,))


def _cast(operation: Operation) -> str | None:
    if (len(operation.operands), len(operation.results)) != (1, 1):
        return f"{operation.name} takes one value and gives one"
    return None


def _constant(operation: Operation) -> str | None:
    value = operation.attributes.get("value")
    if not isinstance(value, IntegerAttr | FloatAttr | DenseElementsAttr):
        return None  # told where it is used
    return _expect(operation, (), (value.type,))


_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(CASTS, _cast),
    **dict.fromkeys(_PREDICATES, _compare),
    "arith.select": _select,
    "arith.constant": _constant,
}
