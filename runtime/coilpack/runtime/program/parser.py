"""Reads programs from their text form (`program.lark`; printed by `coilpack.runtime.program.text`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr
from coilpack.runtime.program.source import DTYPES, TERMINALS, Node, Source, is_tree
from coilpack.runtime.program.text import ACCESSES, RELATIONS, print_type
from coilpack.runtime.program.verify import InvalidProgramError, verify_program

if TYPE_CHECKING:
    from lark import Token

_T = TypeVar("_T")

_ACCESSES = {text: access for access, text in ACCESSES.items()}
_SPACES = {space.name.lower(): space for space in ir.AllocSpace}
_RELATIONS = {text: kind for kind, text in RELATIONS.items()}
_BOOLEANS = {"true": True, "false": False}
_IMAGES = {kind.name.lower(): kind for kind in ir.ImageKind}


def parse_program(text: str, *, file: str = "<text>") -> ir.Program:
    """Reads and checks a program.

    Args:
        text: the text form.
        file: its name in messages.

    Returns:
        A program that `verify_program` has passed.

    Raises:
        InvalidFileError: the text breaks the grammar or the program a rule of the IR; the message has the line, the
            column, and the line itself with a caret.
    """
    source = Source(text, file)
    builder = _ProgramBuilder(source)
    program = builder.build(source.tree())
    try:
        verify_program(program, file=file)
    except InvalidProgramError as error:
        at = source.marks.get(id(error.subject))
        if at is None:
            raise
        source.fail(at, f"{error.where}: {error.problem}")
    return program


def _split(node: Node, *kinds: str) -> list[list[Node]]:
    """The subtrees of each kind, in order."""
    return [[child for child in node.children if is_tree(child) and child.data == kind] for kind in kinds]


class _Attributes:
    """The attributes of one thing; asking for one takes it, and `done` complains about what is left."""

    def __init__(self, source: Source, node: Node, owner: Token) -> None:
        self.source, self.owner = source, owner
        self.values: dict[str, tuple[Token, Node]] = {}
        for attribute in node.children if node is not None else ():
            key, value = attribute.children
            if str(key) in self.values:
                source.fail(key, f"attribute {str(key)!r} is there twice")
            self.values[str(key)] = (key, value)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def _take(self, key: str, *kinds: str) -> Any:
        if key not in self.values:
            self.source.fail(self.owner, f"{str(self.owner)!r} needs an attribute {key!r}")
        at, value = self.values.pop(key)
        kind = value.data if is_tree(value) else value.type
        if kind not in kinds:
            wanted = " or ".join(TERMINALS.get(name, name) for name in kinds)
            self.source.fail(at, f"attribute {key!r} must be {wanted}")
        return value

    def integer(self, key: str) -> int:
        return self.source.integer(self._take(key, "INT"))

    def expression(self, key: str) -> Expr:
        if key in self.values and not is_tree(self.values[key][1]):
            return self.source.expression(self._take(key, "INT", "NAME"))
        return self.source.expression(self._take(key, "binary"))

    def expressions(self, key: str) -> tuple[Expr, ...]:
        return self.source.expressions(self._take(key, "list"))

    def float(self, key: str) -> float:
        return self.source.float(self._take(key, "FLOAT", "FLOAT_BITS"))

    def flag(self, key: str) -> bool:
        return self.word(key, _BOOLEANS)

    def grid(self) -> tuple[Expr, Expr, Expr]:
        return self._three(self.expressions("grid"), self.owner)

    def _three(self, sizes: tuple[Expr, ...], at: Token) -> tuple[Expr, Expr, Expr]:
        if len(sizes) != 3:
            self.source.fail(at, f"the grid has {len(sizes)} sizes; it must have 3")
        return sizes

    def alternatives(self, kernels: Mapping[str, ir.Kernel]) -> tuple[ir.Alternative, ...]:
        made = []
        for node in self._take("alternatives", "alternatives").children:
            at, sizes = node.children
            grid = self._three(self.source.expressions(sizes), at)
            made.append(ir.Alternative(self.source.lookup(at, kernels, "kernel"), grid))
        return tuple(made)

    def string(self, key: str) -> str:
        return self.source.string(self._take(key, "STRING"))

    def reference(self, key: str, table: Mapping[str, _T], kind: str = "") -> _T:
        return self.source.lookup(self._take(key, "REF"), table, kind or key)

    def word(self, key: str, table: Mapping[str, _T]) -> _T:
        return self.source.lookup(self._take(key, "NAME"), table, key)

    def done(self) -> None:
        for key, (at, _) in self.values.items():
            self.source.fail(at, f"{str(self.owner)!r} has no attribute {key!r}")


class _ProgramBuilder:
    """Builds a program from its parse tree."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def build(self, tree: Node) -> ir.Program:
        from lark import Token

        kinds = ("attributes", "storage", "global", "signature", "target")
        attributes, storages, globals_, signatures, targets = _split(tree, *kinds)
        taken = _Attributes(self.source, attributes[0], Token("NAME", "program", line=1, column=1))
        producer = taken.string("producer")
        taken.done()
        made = self._unique(storages, "storage", self._storage)
        lasting = self._unique(globals_, "global", lambda node: self._global(node, made))
        outlines = self._unique(signatures, "signature", self._signature)
        compiled = self._unique(targets, "target", lambda node: self._target(node, made, lasting, outlines))
        parts = (outlines, made, compiled, lasting)
        return ir.Program(producer, *(tuple(part.values()) for part in parts))  # type: ignore[arg-type]

    def _unique(self, nodes: list[Node], kind: str, make: Callable[[Node], _T]) -> dict[str, _T]:
        """What `make` makes of each node, by the name that the node starts with."""
        items: dict[str, _T] = {}
        for node in nodes:
            at = node.children[0]
            key = self.source.string(at)
            if key in items:
                self.source.fail(at, f"{kind} {key!r} is there twice; names must be unique")
            items[key] = self.source.mark(make(node), at)
        return items

    def _storage(self, node: Node) -> ir.Storage:
        reference, attributes = node.children
        taken = _Attributes(self.source, attributes, reference)
        storage = ir.Storage(self.source.string(reference), taken.integer("nbytes"))
        taken.done()
        return storage

    def _global(self, node: Node, storages: Mapping[str, ir.Storage]) -> ir.Global:
        reference, attributes = node.children
        taken = _Attributes(self.source, attributes, reference)
        initial = taken.reference("initial", storages, "storage") if "initial" in taken else None
        global_ = ir.Global(self.source.string(reference), taken.integer("nbytes"), initial)
        taken.done()
        return global_

    def _signature(self, node: Node) -> ir.Signature:
        symbols, inputs, outputs, guards, random = _split(node, "symbol", "input", "output", "guard", "random")
        taken, given = (tuple(self._argument(child) for child in children) for children in (inputs, outputs))
        sizes = tuple(self._symbol(child) for child in symbols)
        relations = tuple(self._guard(child) for child in guards)
        return ir.Signature(self.source.string(node.children[0]), taken, given, sizes, relations, bool(random))

    def _argument(self, node: Node) -> ir.Argument:
        label, kind = node.children
        name = self.source.string(label)
        if kind.data == "integer":
            argument = ir.Argument(name, ir.INTEGER_TYPE, self.source.expression(kind.children[0]))
        else:
            argument = ir.Argument(name, self.source.type(kind))
        return self.source.mark(argument, label)

    def _guard(self, node: Node) -> ir.Guard:
        lhs, relation, rhs = node.children
        kind = self.source.lookup(relation, _RELATIONS, "relation")
        return self.source.mark(ir.Guard(kind, self.source.expression(lhs), self.source.expression(rhs)), relation)

    def _symbol(self, node: Node) -> ir.SizeSymbol:
        label, attributes = node.children
        taken = _Attributes(self.source, attributes, label)
        dim = taken.integer("dim") if "dim" in taken else None
        minimum, maximum = taken.integer("minimum"), taken.integer("maximum")
        symbol = ir.SizeSymbol(str(label), taken.integer("input"), dim, minimum, maximum)
        taken.done()
        return self.source.mark(symbol, label)

    def _target(
        self,
        node: Node,
        storages: Mapping[str, ir.Storage],
        globals_: Mapping[str, ir.Global],
        signatures: Mapping[str, ir.Signature],
    ) -> ir.Target:
        images, kernels, functions = _split(node, "image", "kernel", "function")
        label = node.children[0]
        made = self._unique(kernels, "kernel", self._kernel)

        def build(child: Node) -> ir.Function:
            return _FunctionBuilder(self.source, storages, globals_, made).build(child, signatures)

        bodies = self._unique(functions, "function", build)
        compiled = tuple(self._image(child, label) for child in images)
        return ir.Target(self.source.string(label), compiled, tuple(made.values()), tuple(bodies.values()))

    def _image(self, node: Node, owner: Token) -> ir.Image:
        taken = _Attributes(self.source, node.children[0], owner)
        image = ir.Image(taken.word("kind", _IMAGES), taken.string("entry"))
        taken.done()
        return image

    def _kernel(self, node: Node) -> ir.Kernel:
        label = node.children[0]
        attributes = _split(node, "attributes")[0]
        parameters = tuple(self._parameter(child) for child in node.children[1 : len(node.children) - len(attributes)])
        taken = _Attributes(self.source, attributes[0] if attributes else None, label)
        cooperative = "cooperative" in taken and taken.flag("cooperative")
        grid = taken.grid() if "grid" in taken else None
        source, configuration = (taken.string(key) if key in taken else "" for key in ("source", "configuration"))
        taken.done()
        return ir.Kernel(self.source.string(label), parameters, cooperative, grid, source, configuration)

    def _parameter(self, node: Node) -> ir.KernelParameter:
        dtype = self.source.lookup(node.children[0], DTYPES, "element type")
        if node.data == "scalar":
            return ir.ScalarParameter(dtype)
        _, access, alignment = node.children
        return ir.PointerParameter(
            dtype, self.source.lookup(access, _ACCESSES, "access"), self.source.integer(alignment)
        )


class _FunctionBuilder:
    """Builds one function's body."""

    def __init__(
        self,
        source: Source,
        storages: Mapping[str, ir.Storage],
        globals_: Mapping[str, ir.Global],
        kernels: Mapping[str, ir.Kernel],
    ) -> None:
        self.source, self.storages, self.globals, self.kernels = source, storages, globals_, kernels
        self.values: dict[str, ir.Value] = {}

    def build(self, node: Node, signatures: Mapping[str, ir.Signature]) -> ir.Function:
        label = node.children[0]
        signature = self.source.lookup(label, signatures, "signature")
        arguments, attributes, operations = _split(node, "argument", "attributes", "operation")
        values = tuple(self._define(child.children[0], child.children[1]) for child in arguments)
        taken = _Attributes(self.source, attributes[0], label)
        arena_nbytes = taken.expression("arena_nbytes")
        taken.done()
        made = tuple(self._operation(child) for child in operations)
        return ir.Function(signature, values, made, arena_nbytes)

    def _define(self, label: Token, tensor: Node) -> ir.Value:
        name = self.source.string(label)
        if name in self.values:
            self.source.fail(label, f"%{name} is defined twice")
        self.values[name] = ir.Value(name, self.source.type(tensor))
        return self.values[name]

    def _operation(self, node: Node) -> ir.Operation:
        children = list(node.children)
        label = children.pop(0) if children[0].type == "VALUE" else None
        mnemonic = children[0]
        build, defines, count = self.source.lookup(mnemonic, _OPERATIONS, "operation")
        operands, attributes, types, location = _split(node, "operands", "attributes", "types", "location")
        result = next(child for child in children[1:] if child.data in ("tensor", "no_result"))
        if defines != (label is not None) or defines != (result.data == "tensor"):
            self.source.fail(mnemonic, f"{str(mnemonic)!r} defines {'a value' if defines else 'no value'}")
        given = operands[0].children
        if count is not None and len(given) != count:
            self.source.fail(mnemonic, f"{str(mnemonic)!r} takes {count} operands; it has {len(given)}")
        taken = _Attributes(self.source, attributes[0] if attributes else None, mnemonic)
        arguments = [self._operand(child, mnemonic) for child in given]
        self._check_types(arguments, types[0], mnemonic)
        value = self._define(label, result) if label is not None else None
        where = self.source.string(location[0].children[0]) if location else ""
        operation = build(self, taken, arguments, value, where)
        taken.done()
        return self.source.mark(operation, mnemonic)

    def _operand(self, node: Node, mnemonic: Token) -> ir.Operand:
        kind = "expression" if is_tree(node) else node.type
        if kind == "VALUE":
            return self.source.lookup(node, self.values, "value")
        if mnemonic != ir.Dispatch.mnemonic:
            self.source.fail(mnemonic, f"{str(mnemonic)!r} takes values only")
        if kind in ("FLOAT", "FLOAT_BITS"):
            return self.source.float(node)
        return None if kind == "NULL" else self.source.expression(node)

    def _check_types(self, operands: list[ir.Operand], types: Node, mnemonic: Token) -> None:
        values = [operand for operand in operands if isinstance(operand, ir.Value)]
        stated = [self.source.type(child) for child in types.children]
        if len(values) != len(stated):
            self.source.fail(mnemonic, f"it has {len(values)} values as operands but states {len(stated)} types")
        for value, tensor in zip(values, stated, strict=True):
            if value.type != tensor:
                self.source.fail(mnemonic, f"%{value.name} is {print_type(value.type)}, not {print_type(tensor)}")

    def _dispatch(self, taken: _Attributes, operands: list[ir.Operand], location: str) -> ir.Operation:
        kernel, grid = taken.reference("kernel", self.kernels), taken.grid()
        alternatives = taken.alternatives(self.kernels) if "alternatives" in taken else ()
        return ir.Dispatch(kernel, grid, tuple(operands), alternatives, location=location)

    def _matmul(self, taken: _Attributes, operands: list[ir.Value], location: str) -> ir.Operation:
        if not 3 <= len(operands) <= 4:
            self.source.fail(taken.owner, f"'matmul' takes 3 or 4 operands; it has {len(operands)}")
        target, lhs, rhs, *addend = operands
        factors = taken.float("alpha"), taken.float("beta")
        third = addend[0] if addend else None
        return ir.Matmul(target, lhs, rhs, third, *factors, taken.flag("tf32"), location=location)


_Builder = Callable[[_FunctionBuilder, _Attributes, list[Any], Any, str], ir.Operation]

# How each operation is built, whether it defines a value, and how many operands it takes (None: any number).
_OPERATIONS: dict[str, tuple[_Builder, bool, int | None]] = {
    "parameter": (
        lambda b, a, _, value, where: ir.Parameter(
            value, a.reference("storage", b.storages), a.integer("byte_offset"), location=where
        ),
        True,
        0,
    ),
    "alloc": (
        lambda _, a, __, value, where: ir.Alloc(
            value, a.word("space", _SPACES), a.expression("nbytes"), a.expression("offset"), location=where
        ),
        True,
        0,
    ),
    "view": (
        lambda _, a, operands, value, where: ir.View(value, operands[0], a.expression("offset"), location=where),
        True,
        1,
    ),
    "dispatch": (lambda b, a, operands, _, where: b._dispatch(a, operands, where), False, None),
    "copy": (lambda _, __, operands, ___, where: ir.Copy(*operands, location=where), False, 2),
    "fill": (lambda _, a, operands, __, where: ir.Fill(operands[0], a.integer("pattern"), location=where), False, 1),
    "get_global": (
        lambda b, a, _, value, where: ir.GetGlobal(
            value, a.reference("global", b.globals), a.integer("byte_offset"), location=where
        ),
        True,
        0,
    ),
    "random_seeds": (
        lambda _, a, __, value, where: ir.RandomSeeds(value, a.integer("philox_offset"), location=where),
        True,
        0,
    ),
    "matmul": (lambda b, a, operands, _, where: b._matmul(a, operands, where), False, None),
    "return": (lambda _, __, operands, ___, where: ir.Return(tuple(operands), location=where), False, None),
}
