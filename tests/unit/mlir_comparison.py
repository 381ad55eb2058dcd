"""Modules as text that is equal where they are: values are numbered, attributes sorted.

iree-opt prints what MLIR's definitions give an operation by default, the regions and maps that the named operations of
linalg have without saying so, integers with their sign, and affine expressions in an order of its own. `canonical`
levels these; there is no other difference that it hides.
"""

import operator

import numpy as np

from coilpack.compiler.mlir import syntax
from coilpack.compiler.mlir.text.operations import NAMED

_DEFAULTS = {
    "fastmath": syntax.DialectAttr("arith.fastmath", "none"),
    "overflowFlags": syntax.DialectAttr("arith.overflow", "none"),
}
_BODILESS = {*NAMED, "linalg.transpose", "linalg.broadcast"}
_POINTS = ([3, 7, 31, 127, 5, 11, 2, 13], [-5, 1009, -2, 0, 64, 3, 1, -9])
_ONES = ("strides", "dilations")  # of convolutions and poolings, where nothing else is said


class _Printer:
    def __init__(self):
        self.lines, self.names = [], {}

    def name(self, value):
        return self.names.setdefault(value, f"%{len(self.names)}")

    def operation(self, operation, indent):
        operands = ", ".join(f"{self.name(value)}: {value.type}" for value in operation.operands)
        results = ", ".join(f"{self.name(value)}: {value.type}" for value in operation.results)
        attributes = {key: value for key, value in sorted(operation.attributes.items()) if not _default(key, value)}
        attributes.pop("linalg.memoized_indexing_maps", None)
        if operation.name in NAMED:
            attributes.pop("indexing_maps", None)  # which iree-opt prints always, for some of them
        shown = ", ".join(f"{key} = {_attribute(value)}" for key, value in attributes.items())
        self.lines.append(f"{indent}{results} = {operation.name}({operands}) {{{shown}}} {operation.successors}")
        for region in operation.regions if operation.name not in _BODILESS else ():
            self.lines.append(f"{indent}region")
            for block in region.blocks:
                arguments = ", ".join(f"{self.name(value)}: {value.type}" for value in block.arguments)
                self.lines.append(f"{indent}block({arguments})")
                for inner in block.operations:
                    self.operation(inner, indent + "  ")


def _default(key, value):
    if key in _ONES and isinstance(value, syntax.DenseElementsAttr):
        return bool(np.all(value.array == 1))
    return _DEFAULTS.get(key) == value


def _attribute(value):
    if isinstance(value, syntax.DenseElementsAttr):
        array = value.array
        patterns = {element.tobytes() for element in array.reshape(-1)}
        shown = array.reshape(-1)[:1].reshape(()) if len(patterns) == 1 else array  # iree-opt prints one for all
        return f"{value.type} {array.dtype} {shown.tobytes().hex()} {shown.shape}"
    if isinstance(value, syntax.ArrayAttr):
        return f"[{', '.join(map(_attribute, value.values))}]"
    if isinstance(value, syntax.DictionaryAttr):
        return str({key: _attribute(inner) for key, inner in sorted(value.values.items())})
    if isinstance(value, syntax.AffineMapAttr):
        map_ = value.map
        results = [[_at(result, point) for result in map_.results] for point in _POINTS]
        return f"map of {map_.dims}, {map_.symbols} with {results}"
    if isinstance(value, syntax.IntegerAttr) and value.type.name.startswith("i") and value.type.name != "index":
        return f"{value.value % (1 << int(value.type.name[1:]))} : {value.type}"
    return str(value)


def _at(expression, point):
    """An affine expression's value where dimension n is `point[n]` and symbol n is `point[-1 - n]`."""
    if isinstance(expression, syntax.AffineConstant):
        return expression.value
    if isinstance(expression, syntax.AffineDim):
        return point[expression.position]
    if isinstance(expression, syntax.AffineSymbol):
        return point[-1 - expression.position]
    return _OPERATORS[expression.operator](_at(expression.lhs, point), _at(expression.rhs, point))


_OPERATORS = {
    "+": operator.add,
    "*": operator.mul,
    "mod": operator.mod,
    "floordiv": operator.floordiv,
    "ceildiv": lambda lhs, rhs: -(-lhs // rhs),
}


def canonical(module):
    printer = _Printer()
    printer.lines.append(f"{module.name} {sorted((k, _attribute(v)) for k, v in module.attributes.items())}")
    for operation in module.operations:
        printer.operation(operation, "")
    return "\n".join(printer.lines)
