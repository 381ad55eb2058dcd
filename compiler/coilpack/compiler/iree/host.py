"""The host program of a target in IREE's dialects: what `iree-compile` reads.

Functions take and return tensors. Inside, memory is flat tensors of bytes (`memory`), launches are `flow.dispatch` of
external kernels (`launches`), sizes are `arith` on `index`, and what a call must keep to is `cf.assert`. Weights are
immutable globals that refer to parameters by name; what lives across calls is mutable globals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from coilpack.compiler.arithmetic import add, multiply
from coilpack.compiler.iree import copies
from coilpack.compiler.iree.executables import HostKernel, executable_lines
from coilpack.compiler.iree.launches import Launcher, LaunchOperand, Pointer
from coilpack.compiler.iree.memory import Buffer, Memory, Operand, Place, extent_nbytes, is_row_major
from coilpack.compiler.iree.sizes import Sizes
from coilpack.compiler.iree.text import Block, boundary, nbytes_of, string, symbol, tensor, unique
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr
from coilpack.runtime.sizes import format_expr

SCOPE: Final = "model"  # of parameters: iree-run-module --parameters=model=FILE
_INDENT: Final = "  "


def host_module(target: ir.Target, kernels: Mapping[str, HostKernel]) -> HostModule:
    """The host program.

    Args:
        target: of a verified program.
        kernels: each kernel of the target by its export name.

    Raises:
        UnsupportedError: a function needs what IREE's dialects or runtime do not have.
    """
    module = HostModule(target.name, dict(kernels), {function.name for function in target.functions})
    for function in target.functions:
        module.functions.append(_Writer(module, function).write())
    return module


@dataclass
class HostModule:
    """A module in the making.

    Attributes:
        target: the architecture of its kernels.
        kernels: by export name; those of the program, then copies that its functions need.
        names: of what the module holds so far.
        globals: the lines of each storage and global, by it.
        functions: the lines of each.
    """

    target: str
    kernels: dict[str, HostKernel]
    names: set[str]
    globals: dict[ir.Storage | ir.Global, tuple[str, str]] = field(default_factory=dict)
    functions: list[list[str]] = field(default_factory=list)

    def global_symbol(self, origin: ir.Storage | ir.Global) -> str:
        """What the module calls a storage or global; it holds that from then on."""
        if origin not in self.globals:
            mutable = isinstance(origin, ir.Global)
            name = symbol(unique(f"{'state' if mutable else 'weight'}.{origin.name}", self.names))
            initial = origin.initial if isinstance(origin, ir.Global) else origin
            type_ = f"tensor<{origin.nbytes}xi8>"
            content = f"#flow.parameter.named<{string(SCOPE)}::{string(initial.name)}>" if initial else "dense<0>"
            line = f"util.global private {'mutable ' if mutable else ''}{name} = {content} : {type_}"
            self.globals[origin] = name, line
        return self.globals[origin][0]

    def copy_kernel(self, unit: int) -> HostKernel:
        """The kernel of strided copies for units of that many bytes."""
        key = f"copy.{unit}"
        if key not in self.kernels:
            name = unique(key, self.names)
            self.kernels[key] = copies.copy_kernel(unit, name, f"kernels/{name}.ptx")
        return self.kernels[key]

    def text(self) -> str:
        """The module as `iree-compile` reads it."""
        parts = [executable_lines(kernel) for kernel in self.kernels.values()]
        parts += [[line for _, line in self.globals.values()], *self.functions]
        lines = [
            f'#target = #hal.executable.target<"cuda", "cuda-nvptx-fb", {{target_arch = {string(self.target)}}}>',
            '#device = #hal.device.target<"cuda", [#target]> : !hal.device',
            "module @program attributes {hal.device.targets = [#device]} {",
            *(f"{_INDENT}{line}" for part in parts for line in part),
            "}",
        ]
        return "\n".join(lines) + "\n"


class _Writer:
    """Writes one function."""

    def __init__(self, module: HostModule, function: ir.Function) -> None:
        self.module = module
        self.function = function
        self.block = Block()
        self.sizes = Sizes(function.name, self.block)
        self.memory = Memory(self.block, self.sizes)
        self.launcher = Launcher(self.block, self.sizes, self.memory)
        self.places: dict[ir.Value, Place] = {}
        self.buffers: dict[ir.Storage | ir.Global, Buffer] = {}
        self.returned: list[str] = []

    def write(self) -> list[str]:
        """The function's lines."""
        signature = self.function.signature
        if signature.random:
            raise self.unsupported("it draws random numbers")
        arguments = [self.block.name(argument.name or f"input{i}") for i, argument in enumerate(signature.inputs)]
        self.read_sizes(arguments)
        for argument, name, value in zip(signature.inputs, arguments, self.function.arguments, strict=True):
            if argument.value is None:
                self.places[value] = Place(self.take(argument, name), 0)
        for operation in self.function.operations:
            _HANDLERS[type(operation)](self, operation)
        typed = [f"{name}: {_boundary(item)}" for name, item in zip(arguments, signature.inputs, strict=True)]
        results = ", ".join(_boundary(item) for item in signature.outputs)
        head = f"func.func {symbol(signature.name)}({', '.join(typed)}) -> ({results}) {{"
        return [head, *(f"{_INDENT}{line}" for line in self.block.lines), "}"]

    def unsupported(self, what: str, operation: ir.Operation | None = None) -> UnsupportedError:
        location = f" (from {operation.location})" if operation and operation.location else ""
        return UnsupportedError(
            f"function {self.function.name!r}{location}: {what}, which a module for IREE cannot: emit a package"
        )

    # --- arguments and results ---

    def read_sizes(self, names: Sequence[str]) -> None:
        """Reads symbols off the arguments; checks ranges, shapes and guards."""
        signature = self.function.signature
        found: dict[tuple[int, int | None], str] = {}
        for index, argument in enumerate(signature.inputs):
            if argument.value is not None:
                found[index, None] = self.block.define(names[index], f"arith.index_cast {names[index]} : i64 to index")
            for dim, size in enumerate(argument.type.shape):
                if not isinstance(size, int):
                    operation = f"tensor.dim {names[index]}, {self.sizes.value(dim)} : {boundary(argument.type)[0]}"
                    found[index, dim] = self.block.define(f"{names[index]}_dim", operation)
        for read in signature.symbols:
            argument = signature.inputs[read.input]
            definition = argument.type.shape[read.dim] if read.dim is not None else argument.value
            assert definition is not None, "an input without a dimension is an integer"
            place = _place(argument, read.input, read.dim)
            self.sizes.define(read, definition, found[read.input, read.dim], place)
        for (index, number), name in found.items():
            if number is not None:
                argument = signature.inputs[index]
                expected = argument.type.shape[number]
                text = f"{_place(argument, index, number)} must be {format_expr(expected)}"
                self.sizes.check_equal(expected, name, text)
        for guard in signature.guards:
            self.sizes.check_guard(guard)

    def take(self, argument: ir.Argument, name: str) -> Buffer:
        """The memory of an argument, in the strides that the function expects."""
        type_ = argument.type
        inside, nbytes = boundary(type_)[0], nbytes_of(type_)
        operation = f"flow.tensor.bitcast {name} : {self.shaped(type_, inside)} -> {self.memory.typed(nbytes)}"
        given = Buffer(name, nbytes, self.block.define(f"{name}_bytes", operation), argument, unique=True)
        if is_row_major(type_):
            return given
        if any(stride == 0 and size != 1 for size, stride in zip(type_.shape, type_.strides, strict=True)):
            raise self.unsupported(f"it takes {argument.name!r}, whose elements share memory")
        taken = self.memory.allocate(name, extent_nbytes(type_))
        rows = ir.TensorType.contiguous(type_.dtype, type_.shape).strides
        self.copy(type_, Place(given, 0), rows, Place(taken, 0), type_.strides)
        taken.origin = argument
        return taken

    def give(self, value: ir.Value) -> str:
        """A result, row-major."""
        place, type_ = self.places[value], value.type
        source, strides = type_, type_.strides
        if is_row_major(type_):
            source = ir.TensorType.contiguous(type_.dtype, (multiply(*type_.shape),))
            strides = source.strides
        if not is_row_major(type_) or self.stays(place.buffer):
            rows = ir.TensorType.contiguous(source.dtype, source.shape)
            given = Place(self.memory.allocate(f"{value.name}_rows", nbytes_of(type_)), 0)
            self.copy(source, place, strides, given, rows.strides)
            place = given
        self.memory.check(place, nbytes_of(type_), f"%{value.name}")
        flat = self.memory.exactly(place, nbytes_of(type_))
        result = self.shaped(type_, boundary(type_)[0])
        return self.block.define(
            "result", f"flow.tensor.bitcast {flat.value} : {self.memory.typed(flat.nbytes)} -> {result}"
        )

    def stays(self, buffer: Buffer) -> bool:
        """Whether a global has the content of a buffer when the function ends.

        What callers get is then a copy, as from this project's runtime; and iree-compile, which places memory of
        globals otherwise than that of results, sometimes fails on a value that is both.
        """
        kept = {other.value for other in self.buffers.values() if isinstance(other.origin, ir.Global)}
        return buffer.value in kept

    def shaped(self, type_: ir.TensorType, text: str) -> str:
        """The tensor type `text` with its dynamic sizes."""
        dims = [self.sizes.value(size) for size in type_.shape if not isinstance(size, int)]
        return f"{text}{{{', '.join(dims)}}}" if dims else text

    def copy(
        self,
        type_: ir.TensorType,
        source: Place,
        source_strides: Sequence[Expr],
        target: Place,
        strides: Sequence[Expr],
    ) -> None:
        """Copies an array from one layout into another."""
        reach = extent_nbytes(ir.TensorType(type_.dtype, type_.shape, tuple(source_strides)))
        extent = extent_nbytes(ir.TensorType(type_.dtype, type_.shape, tuple(strides)))
        grid, operands = copies.copy_launch(
            type_, Pointer(source, reach), source_strides, Pointer(target, extent), strides
        )
        self.launcher.launch(self.module.copy_kernel(copies.copy_unit(type_.dtype)), grid, operands)

    # --- operations ---

    def parameter(self, operation: ir.Parameter) -> None:
        storage = operation.storage
        self.places[operation.result] = Place(self.load(storage), operation.byte_offset)

    def get_global(self, operation: ir.GetGlobal) -> None:
        self.places[operation.result] = Place(self.load(operation.global_), operation.byte_offset)

    def load(self, origin: ir.Storage | ir.Global) -> Buffer:
        """The memory of a storage or global."""
        if origin not in self.buffers:
            nbytes = origin.nbytes
            if isinstance(origin, ir.Storage) and not nbytes:  # no file has parameters without bytes
                return self.memory.allocate(origin.name, nbytes)
            how = "" if isinstance(origin, ir.Global) else "immutable "
            name = self.module.global_symbol(origin)
            value = self.block.define(origin.name, f"util.global.load {how}{name} : {self.memory.type(nbytes)}")
            self.buffers[origin] = Buffer(
                origin.name, nbytes, value, origin, known=isinstance(origin, ir.Storage), unique=True
            )
        return self.buffers[origin]

    def alloc(self, operation: ir.Alloc) -> None:
        self.places[operation.result] = Place(self.memory.allocate(operation.result.name, operation.nbytes), 0)

    def view(self, operation: ir.View) -> None:
        buffer, offset = self.places[operation.source]
        moved = multiply(operation.offset, operation.result.type.dtype.itemsize)
        self.places[operation.result] = Place(buffer, add(offset, moved))

    def dispatch(self, operation: ir.Dispatch) -> None:
        kernel = self.module.kernels[operation.kernel.export_name]
        operands: list[LaunchOperand] = []
        for operand, parameter in zip(operation.operands, kernel.parameters, strict=True):
            if isinstance(operand, ir.Value):
                writes = isinstance(parameter, ir.PointerParameter) and ir.Access.WRITE in parameter.access
                place = self.written(operand, operation) if writes else self.places[operand]
                operands.append(Pointer(place, extent_nbytes(operand.type)))
            else:
                operands.append(operand)
        self.launcher.launch(kernel, operation.grid, operands)

    def written(self, value: ir.Value, operation: ir.Operation) -> Place:
        """Where a value lies that an operation writes to."""
        place = self.places[value]
        if isinstance(place.buffer.origin, ir.Argument):
            raise self.unsupported(f"it changes its argument {place.buffer.origin.name!r}", operation)
        return place

    def copy_bytes(self, operation: ir.Copy) -> None:
        target, nbytes = self.written(operation.target, operation), nbytes_of(operation.source.type)
        self.memory.check(target, nbytes, f"%{operation.target.name}")
        self.memory.check(self.places[operation.source], nbytes, f"%{operation.source.name}")
        source = self.places[operation.source]
        if any(isinstance(place.buffer.origin, ir.Global) for place in (source, target)):
            # By a kernel: a global must share its value with nothing, or iree-compile may change it too early.
            row = ir.TensorType.contiguous(DType.ui8, (nbytes,))
            self.copy(row, source, row.strides, target, row.strides)
            return
        self.memory.write(target, self.memory.exactly(source, nbytes), source.buffer.known, unique=False)

    def fill(self, operation: ir.Fill) -> None:
        type_, place = operation.target.type, self.written(operation.target, operation)
        nbytes = nbytes_of(type_)
        self.memory.check(place, nbytes, f"%{operation.target.name}")
        element = operation.pattern.to_bytes(type_.dtype.itemsize, "little")
        pattern = _shortened(element)
        # By a kernel where it is longer than what a device fills with by itself, and for globals as in `copy_bytes`.
        if len(pattern) > 4 or isinstance(place.buffer.origin, ir.Global):
            self.fill_by_copy(type_, place, element)
            return
        bits = 8 * len(pattern)
        value = self.block.constant(int.from_bytes(pattern, "little", signed=True), f"i{bits}")
        count = multiply(*type_.shape, type_.dtype.itemsize // len(pattern))
        filled = tensor([count], f"i{bits}") + self.memory.dims(count)
        name = operation.target.name
        splat = self.block.define(name, f"flow.tensor.splat {value} : {filled}")
        if bits > 8:
            splat = self.block.define(name, f"flow.tensor.bitcast {splat} : {filled} -> {self.memory.typed(nbytes)}")
        self.memory.write(place, Operand(splat, nbytes), known=True, unique=False)

    def fill_by_copy(self, type_: ir.TensorType, place: Place, pattern: bytes) -> None:
        """Fills by a copy of one element to every place."""
        octets = ", ".join(str(octet - 256 if octet > 127 else octet) for octet in pattern)
        constant = self.block.define("element", f"arith.constant dense<[{octets}]> : tensor<{len(pattern)}xi8>")
        element = Place(Buffer("element", len(pattern), constant, known=True), 0)
        self.copy(type_, element, [0] * len(type_.shape), place, type_.strides)

    def refuse(self, operation: ir.Operation) -> None:
        raise self.unsupported(_REFUSED[type(operation)], operation)

    def return_(self, operation: ir.Return) -> None:
        values = iter(operation.values)
        names = [self.integer(o.value) if o.value is not None else self.give(next(values)) for o in self.outputs]
        for origin, buffer in self.buffers.items():
            if buffer.changed:
                name = self.module.global_symbol(origin)
                self.block.add(f"util.global.store {buffer.value}, {name} : {self.memory.type(buffer.nbytes)}")
        types = ", ".join(_result_type(output) for output in self.outputs)
        self.block.add(f"return {', '.join(names)} : {types}" if names else "return")

    @property
    def outputs(self) -> tuple[ir.Argument, ...]:
        return self.function.signature.outputs

    def integer(self, expr: Expr) -> str:
        return self.block.define("result", f"arith.index_cast {self.sizes.value(expr)} : index to i64")


def _shortened(pattern: bytes) -> bytes:
    """The shortest bytes, a power of two of them, that make `pattern` when they are repeated."""
    half = len(pattern) // 2
    return _shortened(pattern[:half]) if half and pattern[:half] == pattern[half:] else pattern


def _boundary(argument: ir.Argument) -> str:
    """An argument's or result's type and attributes."""
    return "i64" if argument.value is not None else "".join(boundary(argument.type))


def _result_type(argument: ir.Argument) -> str:
    return "i64" if argument.value is not None else boundary(argument.type)[0]


def _place(argument: ir.Argument, index: int, dim: int | None) -> str:
    name = f"argument {index}" + (f" ({argument.name})" if argument.name else "")
    return name if dim is None else f"{name}: dimension {dim}"


_REFUSED: Final[Mapping[type[ir.Operation], str]] = {
    ir.RandomSeeds: "it draws random numbers",
    ir.Matmul: "it leaves a product of matrices to NVIDIA's library (compile with --matmul triton)",
}

_HANDLERS: Final[Mapping[type[ir.Operation], Callable[[_Writer, Any], None]]] = {
    ir.Parameter: _Writer.parameter,
    ir.GetGlobal: _Writer.get_global,
    ir.Alloc: _Writer.alloc,
    ir.View: _Writer.view,
    ir.Dispatch: _Writer.dispatch,
    ir.Copy: _Writer.copy_bytes,
    ir.Fill: _Writer.fill,
    ir.RandomSeeds: _Writer.refuse,
    ir.Matmul: _Writer.refuse,
    ir.Return: _Writer.return_,
}
