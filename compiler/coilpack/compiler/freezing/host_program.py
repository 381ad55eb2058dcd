"""The host program of a generated module, read from the source of its `call` into a host graph.

Every statement that Inductor writes there has a row in a table. What has none is an error that names the line and the
statement; nothing is skipped, and nothing of the module is run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sympy
import torch

from coilpack.compiler.capture.host_graph import HostGraph, dispatch, random_seeds
from coilpack.compiler.capture.launch_binding import bind_launch
from coilpack.compiler.capture.library_calls import SOURCE_PRODUCTS, library_product, source_product_arguments
from coilpack.compiler.capture.size_expressions import expression
from coilpack.compiler.capture.sympy_source import as_sympy, printed_sizes
from coilpack.compiler.freezing.kernel_bundle import CompiledConfiguration
from coilpack.compiler.freezing.kernel_text import ChosenKernel, GeneratedKernel, generated_kernel
from coilpack.compiler.freezing.module_source import call_body, called, element_type, number, positional
from coilpack.compiler.standalone.generated_module import read_kernels
from coilpack.runtime.errors import InputError, UnsupportedError
from coilpack.runtime.program.expr import Expr

_FILE = "the generated module"
_DEVICE_GUARD = "torch.cuda._DeviceGuard"
_SEED_RANGE = (-(2**63), 2**63 - 1)  # all of int64: what Inductor draws seeds from


def read_host_program(
    module_source: str,
    chosen: Mapping[str, CompiledConfiguration],
    placeholder_values: Sequence[Any],
    constants: Mapping[str, torch.Tensor],
    file: str = _FILE,
) -> HostGraph[ChosenKernel]:
    """Reads what a generated module does when it is called.

    Args:
        module_source: the text of the module.
        chosen: for each kernel that it launches, by the module's name, the configuration that runs.
        placeholder_values: what each argument of the call was compiled for, in order: a fake tensor, a `SymInt` or
            number, or None. Sizes that the module reads from its arguments become these values' sizes, under
            their names.
        constants: tensors that Inductor added, by the module's name for them.
        file: what messages call the module.

    Returns:
        The graph, with the kernels that it launches and all of `constants`.

    Raises:
        InputError: there are more or fewer arguments than the module takes, or a kernel has no configuration.
        InvalidFileError: the text is no module that Inductor generated.
        UnsupportedError: it holds a statement that no package carries out; names the line and the statement.
    """
    texts = read_kernels(module_source, file).assigned
    generated = {name: generated_kernel(text, file) for name, text in texts.items()}
    body = call_body(module_source, file)
    reader = _Reader(file, generated, chosen)
    reader.run(reader.arguments(body, placeholder_values, constants))
    if not reader.returned:
        raise UnsupportedError(f"{file}: its `call` returns nothing")
    return HostGraph(reader.graph, reader.launched, dict(constants))


class _Stream:
    """Stands for a stream; the runtime has its own."""


@dataclass
class _Reader:
    """Reads statements into a graph.

    Attributes:
        names: what each name of the module stands for at this point: a node, None, a number, a size of sympy's, the
            sizes or strides of an argument, or a stream.
        sizes: those of them that are sizes.
        dtypes: element types of tensors.
    """

    file: str
    generated: Mapping[str, GeneratedKernel]
    chosen: Mapping[str, CompiledConfiguration]
    graph: torch.fx.Graph = field(default_factory=torch.fx.Graph)
    launched: dict[str, ChosenKernel] = field(default_factory=dict)
    returned: bool = False
    names: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)
    dtypes: dict[torch.fx.Node, torch.dtype] = field(default_factory=dict)
    _device: int | None = None

    def __post_init__(self) -> None:
        self._evaluator = printed_sizes(self.sizes)

    # --- statements ---

    def arguments(
        self, body: Sequence[ast.stmt], values: Sequence[Any], constants: Mapping[str, torch.Tensor]
    ) -> Sequence[ast.stmt]:
        """Takes the arguments off the call, adds the constants, and gives the rest of the body."""
        match body:
            case [ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Name(id="args")), *rest]:
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case _:
                names, rest = [], [*body]
        if len(names) != len(values):
            raise InputError(f"{self.file}: its `call` takes {len(names)} arguments, and {len(values)} were given")
        for name, value in zip(names, values, strict=True):
            node = self.graph.placeholder(name)
            if isinstance(value, torch.Tensor):
                self._define_tensor(name, node, value)
            else:
                self._define(name, as_sympy(value) if isinstance(value, int | torch.SymInt) else value)
        for name, tensor in constants.items():
            self._define_tensor(name, self.graph.create_node("get_attr", name, name=name), tensor)
        return rest

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Reads statements in order."""
        for statement in statements:
            match statement:
                case ast.With(items=[ast.withitem(context_expr=guard, optional_vars=None)], body=body) if (
                    called(guard) == _DEVICE_GUARD
                ):
                    self._located(self._check_device, guard)
                    self.run(body)
                case _:
                    self._located(self._statement, statement)

    def _located(self, read: Callable[[Any], None], node: ast.stmt | ast.expr) -> None:
        try:
            read(node)
        except UnsupportedError as error:
            raise UnsupportedError(
                f"{self.file}:{node.lineno}: `{ast.unparse(node)}` cannot become part of a package: {error}"
            ) from error

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case _ if self.returned:
                raise UnsupportedError("it stands after the program has returned")
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._define(name, self._value(value, name))
            case ast.Delete(targets=targets) if all(isinstance(target, ast.Name) for target in targets):
                for target in targets:
                    self._forget(ast.unparse(target))
            case ast.Expr(value=ast.Call() as call):
                _row(_STATEMENTS, call)(self, call)
            case ast.Return(value=ast.Tuple(elts=values)):
                self.graph.output(tuple(map(self._operand, values)))
                self.returned = True
            case _:
                raise UnsupportedError("it is none of the statements that are known")

    def _define(self, name: str, value: Any) -> None:
        self.names[name] = value
        self.sizes.pop(name, None)
        if isinstance(value, sympy.Basic):
            self.sizes[name] = value

    def _define_tensor(self, name: str, node: torch.fx.Node, tensor: torch.Tensor) -> None:
        node.meta["val"] = tensor
        self.dtypes[node] = tensor.dtype
        self._define(name, node)

    def _forget(self, name: str) -> None:
        if name not in self.names:
            raise UnsupportedError(f"there is no {name}")
        del self.names[name]
        self.sizes.pop(name, None)

    # --- values ---

    def _value(self, node: ast.expr, name: str | None = None) -> Any:
        """What an expression stands for; `name` is for a tensor that it makes."""
        match node:
            case ast.Name(id=known) if known in self.names:
                return self.names[known]
            case ast.Constant(value=None | bool() as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand) if (negated := number(operand)) is not None:
                return -negated
            case ast.Subscript(value=ast.Name(id=known), slice=ast.Constant(value=int() as dim)) if isinstance(
                shape := self.names.get(known), tuple
            ) and dim < len(shape):
                return shape[dim]
            case ast.Call() if (make := _find(_VALUES, node)) is not None:
                return make(self, node, name)
        literal = number(node)
        return self._evaluator.evaluate(node) if literal is None else literal

    def _operand(self, node: ast.expr) -> Any:
        """What a launch takes or a program returns: a node, None, a number, or a size as an expression of the IR."""
        value = self._value(node)
        if isinstance(value, torch.fx.Node | float | bool) or value is None:
            return value
        return self._size(value)

    def _size(self, value: Any) -> Expr:
        if isinstance(value, int | sympy.Basic) and not isinstance(value, bool):
            return expression(value)
        raise UnsupportedError(f"{value!r} is no size")

    def _tensor(self, node: ast.expr) -> torch.fx.Node:
        value = self._value(node)
        if not isinstance(value, torch.fx.Node):
            raise UnsupportedError(f"`{ast.unparse(node)}` is no tensor")
        return value

    def _shape(self, node: ast.expr) -> tuple[Expr, ...]:
        if not isinstance(node, ast.Tuple | ast.List):
            raise UnsupportedError(f"`{ast.unparse(node)}` is no tuple of sizes")
        return tuple(self._size(self._value(item)) for item in node.elts)

    def _check_device(self, call: ast.expr) -> None:
        match call:
            case ast.Call(args=[ast.Constant(value=int() as index)], keywords=[]) if self._device in (None, index):
                self._device = index
            case _:
                raise UnsupportedError("a program runs on one device")

    # --- calls that give a value ---

    def _empty(self, call: ast.Call, name: str | None) -> torch.fx.Node:
        shape, strides, dtype = positional(call, 3)
        element = element_type(dtype)
        sizes: Any = (self._shape(shape), self._shape(strides))
        node = self.graph.create_node("call_function", torch.empty_strided, sizes, {"dtype": element}, name)
        self.dtypes[node] = element
        return node

    def _view(self, call: ast.Call, name: str | None) -> torch.fx.Node:
        source, shape, strides, offset = positional(call, 4)
        viewed = self._tensor(source)
        place: Any = (viewed, self._shape(shape), self._shape(strides), self._size(self._value(offset)))
        node = self.graph.create_node("call_function", torch.as_strided, place, name=name)
        self.dtypes[node] = self.dtypes[viewed]
        return node

    def _stream(self, call: ast.Call, name: str | None) -> _Stream:  # noqa: ARG002
        self._check_device(call)
        return _Stream()

    def _aligned(self, call: ast.Call, name: str | None) -> torch.fx.Node:
        """A copy of an argument where its address is not aligned; the runtime checks addresses, so there is none."""
        (argument,) = positional(call, 1)
        node = self._tensor(argument)
        if node.op != "placeholder" or node.target != name:
            raise UnsupportedError("it is no argument that takes the place of itself")
        return node

    def _measured(self, call: ast.Call, name: str | None) -> tuple[Any, ...]:  # noqa: ARG002
        """The sizes or strides of an argument, as it was compiled for."""
        positional(call, 0)
        assert isinstance(call.func, ast.Attribute)
        value = self._tensor(call.func.value).meta.get("val")
        if value is None:
            raise UnsupportedError("it is no argument")
        return tuple(map(as_sympy, value.shape if call.func.attr == "size" else value.stride()))

    # --- calls that do something ---

    def _nothing(self, call: ast.Call) -> None:
        """What the runtime checks or does by itself."""

    def _set_device(self, call: ast.Call) -> None:
        self._check_device(call)

    def _zero(self, call: ast.Call) -> None:
        positional(call, 0)
        assert isinstance(call.func, ast.Attribute)
        self.graph.call_function(torch.ops.aten.zero_.default, (self._tensor(call.func.value),))

    def _seeds(self, call: ast.Call) -> None:
        """Draws seeds, which take the place of the buffer that was allocated for them."""
        low, high, shape = positional(call, 3, ("out",))
        drawn = tuple(self._size(self._value(bound)) for bound in (low, high))
        allocated = self._tensor(call.keywords[0].value)
        sizes = self._shape(shape)
        fresh = allocated.target is torch.empty_strided and not allocated.users
        if drawn != _SEED_RANGE or len(sizes) != 1 or not fresh or self.dtypes[allocated] is not torch.int64:
            raise UnsupportedError("it draws something else than seeds")
        with self.graph.inserting_after(allocated):
            node = self.graph.call_function(random_seeds, sizes)  # type: ignore[arg-type]
        self.dtypes[node] = torch.int64
        for name, value in [*self.names.items()]:
            if value is allocated:
                self._define(name, node)
        self.graph.erase_node(allocated)

    def _product(self, call: ast.Call) -> None:
        options = {keyword.arg: keyword.value for keyword in call.keywords}
        target = options.pop("out", None)
        inputs = tuple(map(self._tensor, call.args))
        if target is None or not inputs or not options.keys() <= {"alpha", "beta"}:
            raise UnsupportedError("it takes tensors, `out`, and numbers as `alpha` and `beta`")
        factors = {str(name): self._operand(value) for name, value in options.items()}
        if not all(isinstance(factor, int | float) for factor in factors.values()):
            raise UnsupportedError("its factors depend on sizes")
        tf32 = bool(torch.backends.cuda.matmul.allow_tf32)
        arguments = source_product_arguments(str(called(call)), inputs, factors, self.dtypes[inputs[-1]], tf32)
        self.graph.call_function(library_product, (self._tensor(target), *arguments))

    def _launch(self, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Attribute)
        name = ast.unparse(call.func.value)
        match call.keywords:
            case [ast.keyword(arg="stream", value=stream)] if isinstance(self._value(stream), _Stream):
                pass
            case _:
                raise UnsupportedError("it is launched in another way than on the stream of the program")
        kernel = self._kernel(name)
        operands, grid = bind_launch(kernel, tuple(map(self._operand, call.args)))
        launch: Any = (name, grid, operands, ())  # expressions are data like any other to torch
        self.graph.call_function(dispatch, launch)

    def _kernel(self, name: str) -> ChosenKernel:
        if name not in self.launched:
            if name not in self.generated:
                raise UnsupportedError(f"the module has no source of {name!r}")
            if name not in self.chosen:
                raise InputError(f"{self.file}: no configuration was chosen for kernel {name!r}, which it launches")
            self.launched[name] = ChosenKernel(self.generated[name], self.chosen[name])
        return self.launched[name]


Row = TypeVar("Row")


def _find(table: Mapping[str, Row], call: ast.Call) -> Row | None:
    """The row of a call: by its dotted name, or as a method of a name."""
    row = table.get(ast.unparse(call.func))
    if row is None and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        row = table.get(f".{call.func.attr}")
    return row


def _row(table: Mapping[str, Row], call: ast.Call) -> Row:
    row = _find(table, call)
    if row is None:
        raise UnsupportedError(
            f"there is no Triton kernel for `{ast.unparse(call.func)}`: Inductor calls a library for it, or works on "
            "the host. Express it with operations that Inductor fuses, or keep it outside the exported model"
        )
    return row


# By the dotted name of what is called; with a dot in front, a method of a name.
_VALUES: Mapping[str, Callable[[_Reader, ast.Call, str | None], Any]] = {
    "empty_strided_cuda": _Reader._empty,
    "reinterpret_tensor": _Reader._view,
    "get_raw_stream": _Reader._stream,
    "copy_if_misaligned": _Reader._aligned,
    ".size": _Reader._measured,
    ".stride": _Reader._measured,
}
_STATEMENTS: Mapping[str, Callable[[_Reader, ast.Call], None]] = {
    "args.clear": _Reader._nothing,
    "assert_size_stride": _Reader._nothing,
    "assert_alignment": _Reader._nothing,
    "torch.cuda.set_device": _Reader._set_device,
    "aten.randint.low_out": _Reader._seeds,
    **dict.fromkeys(SOURCE_PRODUCTS, _Reader._product),
    ".run": _Reader._launch,
    ".zero_": _Reader._zero,
}
