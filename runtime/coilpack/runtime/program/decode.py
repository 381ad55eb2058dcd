"""Reads programs from their wire form.

The FlatBuffer verifier answers for everything that the schema says; here is checked what the schema cannot say: indices
and codes. `verify_program` then checks what the program means.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from coilpack.runtime.collector import no_collections
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.program import ir, wire
from coilpack.runtime.program.decode_types import TypeDecoder, each, element_type, member, pick
from coilpack.runtime.program.expr import Expr
from coilpack.runtime.program.reader import ProblemError, Reader, fail
from coilpack.runtime.program.verify import verify_program
from coilpack.runtime.verifier import Schema, verify


def decode_program(data: bytes | bytearray | memoryview, *, file: str = "program.fb") -> ir.Program:
    """Reads and checks a program.

    Args:
        data: the FlatBuffer.
        file: its name in messages.

    Returns:
        A program that `verify_program` has passed.

    Raises:
        InvalidFileError: the data is not a valid program, or its format version is newer than this reader.
    """
    content = bytes(data)
    _check_version(content, file)
    verify(content, Schema.load("program_def"), file=file)
    with no_collections():
        try:
            program = _ProgramDecoder(Reader(content)).program()
        except ProblemError as error:
            where = "".join(reversed(error.path)).removeprefix(".")
            raise InvalidFileError(file, where, error.problem) from None
        verify_program(program, file=file)
    return program


def _check_version(data: bytes, file: str) -> None:
    """Refuses other versions before the verifier complains about what only they may hold."""
    if data[4:8] != wire.IDENTIFIER:
        return  # the verifier's to report
    try:
        root: int = struct.unpack_from("<I", data)[0]
        vtable: int = root - struct.unpack_from("<i", data, root)[0]
        offset: int = struct.unpack_from("<H", data, vtable + 4)[0] if vtable >= 0 else 0
        found: int = struct.unpack_from("<I", data, root + offset)[0] if offset else 0
    except struct.error:
        return  # out of bounds: the verifier's to report
    if found > wire.FORMAT_VERSION:
        problem = f"the format version is {found}; this reader knows versions up to {wire.FORMAT_VERSION}"
        raise InvalidFileError(file, "format_version", problem, "Install a newer coilpack, or compile the model again")


class _ProgramDecoder:
    """Decodes everything around the functions' bodies."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.storages: tuple[ir.Storage, ...] = ()
        self.globals: tuple[ir.Global, ...] = ()
        self.signatures: tuple[ir.Signature, ...] = ()
        self.kernels: tuple[ir.Kernel, ...] = ()
        self._parameters: dict[bytes, tuple[ir.KernelParameter, ...]] = {}

    def program(self) -> ir.Program:
        rows = self.reader.rows
        version, producer, storages, signatures, targets, globals_ = self.reader.row(self.reader.root(), "Program")
        if version != wire.FORMAT_VERSION:
            fail(f"it is {version}; this reader knows {wire.FORMAT_VERSION}", ".format_version")
        self.storages = each("storages", rows(storages, "Storage"), ir.Storage)
        self.globals = each("globals", rows(globals_, "Global"), self._global)
        self.signatures = each("signatures", rows(signatures, "Signature"), self._signature)
        decoded = each("targets", rows(targets, "Target"), self._target)
        return ir.Program(producer, self.signatures, self.storages, decoded, self.globals)

    def _global(self, name: str, nbytes: int, has_initial: int, initial: int) -> ir.Global:
        return ir.Global(name, nbytes, pick(self.storages, initial, "storage", "initial") if has_initial else None)

    def _signature(
        self, name: str, expressions: int, symbols: int, inputs: int, outputs: int, guards: int, random: int
    ) -> ir.Signature:
        rows = self.reader.rows
        sizes = each("symbols", rows(symbols, "Symbol"), _symbol)
        types = TypeDecoder(self.reader, expressions, [symbol.name for symbol in sizes])

        def argument(name: str, type_: int, is_integer: int, value: int) -> ir.Argument:
            return ir.Argument(name, types.type(type_), types.expression(value, "value") if is_integer else None)

        def guard(lhs: int, rhs: int, kind: int) -> ir.Guard:
            relation = member(ir.GuardKind, kind, "kind")
            return ir.Guard(relation, types.expression(lhs, "lhs"), types.expression(rhs, "rhs"))

        taken = each("inputs", rows(inputs, "Argument"), argument)
        given = each("outputs", rows(outputs, "Argument"), argument)
        relations = each("guards", self.reader.structs(guards, wire.GUARD), guard)
        return ir.Signature(name, taken, given, sizes, relations, bool(random))

    def _target(self, name: str, images: int, kernels: int, functions: int) -> ir.Target:
        rows = self.reader.rows
        made = each("images", rows(images, "Image"), lambda kind, entry: ir.Image(_image_kind(kind), entry))
        self.kernels = each("kernels", rows(kernels, "Kernel"), self._kernel)
        return ir.Target(name, made, self.kernels, each("functions", rows(functions, "Function"), self._function))

    def _kernel(
        self, export_name: str, parameters: int, cooperative: int, launch_rule: int, source: str, configuration: str
    ) -> ir.Kernel:
        start, count = self.reader.vector(parameters)
        layout = wire.KERNEL_PARAMETER
        self.reader.charge(layout.size * count)
        content = self.reader.data[start : start + layout.size * count]
        if content not in self._parameters:  # most kernels have the parameters of another
            self._parameters[content] = each("parameters", layout.iter_unpack(content), _kernel_parameter)
        grid = self._launch_rule(launch_rule, count) if launch_rule else None
        return ir.Kernel(export_name, self._parameters[content], bool(cooperative), grid, source, configuration)

    def _launch_rule(self, table: int, parameters: int) -> tuple[Expr, Expr, Expr]:
        try:
            expressions, grid = self.reader.row(table, "LaunchRule")
            types = TypeDecoder(self.reader, expressions, wire.launch_symbols(parameters))
            return _grid(self.reader, grid, types)
        except ProblemError as error:
            error.path.append(".launch_rule")
            raise

    def _function(
        self, signature: int, expressions: int, operations: int, arena_nbytes: int, value_names: int
    ) -> ir.Function:
        outline = pick(self.signatures, signature, "signature", "signature")
        types = TypeDecoder(self.reader, expressions, [symbol.name for symbol in outline.symbols])
        names = self.reader.texts(value_names) if value_names else None
        body = _BodyDecoder(self, types, outline, names)
        decoded = body.operations(operations)
        if names is not None and len(names) != len(body.values):
            fail(f"there are {len(names)} names for {len(body.values)} values", ".value_names")
        arguments = tuple(body.values[: len(outline.inputs)])
        return ir.Function(outline, arguments, decoded, types.expression(arena_nbytes, "arena_nbytes"))


def _symbol(name: str, input_: int, dim: int, minimum: int, maximum: int, is_value: int) -> ir.SizeSymbol:
    if is_value and dim:
        fail(f"it is {dim}; it must be 0, as the symbol is the value of an integer", ".dim")
    return ir.SizeSymbol(name, input_, None if is_value else dim, minimum, maximum)


def _grid(reader: Reader, at: int, types: TypeDecoder) -> tuple[Expr, Expr, Expr]:
    indices = reader.words(at)
    if len(indices) != 3:
        fail(f"it has {len(indices)} sizes; it must have 3", ".grid")
    x, y, z = (types.expression(index, "grid") for index in indices)
    return x, y, z


def _image_kind(code: int) -> ir.ImageKind:
    return member(ir.ImageKind, code, "kind")


def _kernel_parameter(kind: int, code: int, access: int, reserved: int, alignment: int) -> ir.KernelParameter:
    dtype = element_type(code)
    if reserved:
        fail(f"it is {reserved}; it must be 0", ".reserved")
    if kind == wire.PARAMETER_POINTER:
        if not 1 <= access <= 3:
            fail(f"it is {access}; it must be 1 (read), 2 (write) or 3 (both)", ".access")
        return ir.PointerParameter(dtype, ir.Access(access), alignment)
    if kind != wire.PARAMETER_SCALAR:
        fail(f"its code is {kind}; known are 1 and 2", ".kind")
    if access or alignment:
        fail(f"a scalar has access {access} and alignment {alignment}; both must be 0")
    return ir.ScalarParameter(dtype)


class _BodyDecoder:
    """Decodes the operations of one function, in order.

    Operations refer to things by index. Handlers look them up without a check: `_missing` says which index of an
    operation leads nowhere, once one has.
    """

    def __init__(
        self, program: _ProgramDecoder, types: TypeDecoder, signature: ir.Signature, names: list[str] | None
    ) -> None:
        self.reader = program.reader
        self.storages, self.globals, self.kernels = program.storages, program.globals, program.kernels
        self.types = types
        self.expressions = types.expressions
        self.names = names
        self.arguments = len(signature.inputs)
        self.values: list[ir.Value] = []
        for argument in signature.inputs:
            self.values.append(ir.Value(self._name(), argument.type))

    def _name(self) -> str:
        """The name of the next value."""
        index = len(self.values)
        if self.names is None:
            return f"arg{index}" if index < self.arguments else str(index - self.arguments)
        return pick(self.names, index, "name", "value_names")

    def _define(self, type_: int) -> ir.Value:
        value = ir.Value(self._name(), self.types.types.get(type_) or self.types.type(type_))
        self.values.append(value)
        return value

    def operations(self, at: int) -> tuple[ir.Operation, ...]:
        kinds, bodies, locations = self.reader.columns(at, "Operation")
        where, which = np.array(bodies, np.int64), np.array(kinds, np.int64)
        rows = {
            code: self.reader.tables(where[which == code], kind.__name__)
            for code, kind in enumerate(wire.OPERATION_BODIES, 1)
        }

        def make(kind: int, location: str) -> ir.Operation:
            fields = next(rows[kind])
            try:
                return _BODIES[kind - 1](self, fields, location)
            except IndexError:
                self._missing(kind, fields)

        return each("operations", zip(kinds, locations, strict=True), make)

    def _missing(self, kind: int, fields: tuple[int, ...]) -> NoReturn:
        """Fails for the first index of an operation that leads nowhere."""
        for field, number in zip(wire.FIELDS[wire.OPERATION_BODIES[kind - 1].__name__], fields, strict=True):
            if field == "storage":
                pick(self.storages, number, "storage", field)
            elif field == "global":
                pick(self.globals, number, "global", field)
            elif field == "kernel":
                pick(self.kernels, number, "kernel", field)
            elif field in ("offset", "nbytes"):
                self.types.expression(number, field)
            elif field in ("source", "target", "lhs", "rhs", "addend"):
                self._value(number, field)
            elif field in ("grid", "values"):
                start, count = self.reader.vector(number)
                find = self.types.expression if field == "grid" else self._value
                for (index,) in struct.iter_unpack("<I", self.reader.data[start : start + 4 * count]):
                    find(index, field)
            elif field == "operands":
                self._missing_operand(number)
        raise AssertionError("every index of the operation leads to something")

    def _missing_operand(self, operands: int) -> None:
        start, count = self.reader.vector(operands)
        for index, kind in wire.OPERAND.iter_unpack(self.reader.data[start : start + wire.OPERAND.size * count]):
            if kind == wire.OPERAND_VALUE:
                self._value(index, "operands")
            elif kind == wire.OPERAND_EXPRESSION:
                self.types.expression(index, "operands")

    def _value(self, index: int, field: str) -> ir.Value:
        if index >= len(self.values):
            fail(f"value {index} is not defined yet; there are {len(self.values)}", f".{field}")
        return self.values[index]

    def _parameter(self, fields: tuple[int, ...], location: str) -> ir.Operation:
        storage, byte_offset, type_ = fields
        source = self.storages[storage]
        return ir.Parameter(self._define(type_), source, byte_offset, location=location)

    def _alloc(self, fields: tuple[int, ...], location: str) -> ir.Operation:
        code, offset, nbytes, type_ = fields
        space = member(ir.AllocSpace, code, "space")
        start, size = self.expressions[offset], self.expressions[nbytes]
        return ir.Alloc(self._define(type_), space, size, start, location=location)

    def _view(self, fields: tuple[int, ...], location: str) -> ir.Operation:
        source, offset, type_ = fields
        value, start = self.values[source], self.expressions[offset]
        return ir.View(self._define(type_), value, start, location=location)

    def _dispatch(self, fields: tuple[int, ...], location: str) -> ir.Operation:
        kernel, grid, operands, alternatives = fields
        sizes = self.reader.words(grid)
        if len(sizes) != 3:
            fail(f"it has {len(sizes)} sizes; it must have 3", ".grid")
        x, y, z = sizes
        expressions, values = self.expressions, self.values
        decoded: list[ir.Operand] = []
        for payload, kind in self.reader.structs(operands, wire.OPERAND):
            if kind == wire.OPERAND_VALUE:
                decoded.append(values[payload])
            elif kind == wire.OPERAND_EXPRESSION:
                decoded.append(expressions[payload])
            else:
                decoded.append(_immediate(payload, kind))
        shape = expressions[x], expressions[y], expressions[z]
        candidates = self._alternatives(alternatives) if alternatives else ()
        return ir.Dispatch(self.kernels[kernel], shape, tuple(decoded), candidates, location=location)

    def _alternatives(self, at: int) -> tuple[ir.Alternative, ...]:
        def make(kernel: int, grid: int) -> ir.Alternative:
            return ir.Alternative(pick(self.kernels, kernel, "kernel", "kernel"), _grid(self.reader, grid, self.types))

        return each("alternatives", self.reader.rows(at, "Alternative"), make)

    def _copy(self, fields: tuple[int, ...], location: str) -> ir.Operation:
        source, target = fields
        return ir.Copy(self.values[source], self.values[target], location=location)

    def _fill(self, fields: tuple[int, ...], location: str) -> ir.Operation:
        target, pattern = fields
        return ir.Fill(self.values[target], pattern, location=location)

    def _get_global(self, fields: tuple[int, ...], location: str) -> ir.Operation:
        global_, byte_offset, type_ = fields
        source = self.globals[global_]
        return ir.GetGlobal(self._define(type_), source, byte_offset, location=location)

    def _random_seeds(self, fields: tuple[int, ...], location: str) -> ir.Operation:
        type_, philox_offset = fields
        return ir.RandomSeeds(self._define(type_), philox_offset, location=location)

    def _matmul(self, fields: tuple[Any, ...], location: str) -> ir.Operation:
        target, lhs, rhs, has_addend, addend, alpha, beta, tf32 = fields
        values = self.values
        third = values[addend] if has_addend else None
        product = values[target], values[lhs], values[rhs], third
        return ir.Matmul(*product, alpha, beta, bool(tf32), location=location)

    def _return(self, fields: tuple[int, ...], location: str) -> ir.Operation:
        values = tuple([self.values[index] for index in self.reader.words(fields[0])])
        return ir.Return(values, location=location)


def _immediate(payload: int, kind: int) -> float | None:
    if kind == wire.OPERAND_FLOAT:
        number: float = wire.DOUBLE.unpack(wire.UINT64.pack(payload))[0]
        return number
    if kind != wire.OPERAND_NULL:
        fail(f"the code of an operand's kind is {kind}; known are 1 to 4", ".operands")
    return None


# By the union's codes from 1 on, which the FlatBuffer verifier has checked.
_BODIES: tuple[Callable[[_BodyDecoder, tuple[int, ...], str], ir.Operation], ...] = (
    _BodyDecoder._parameter,
    _BodyDecoder._alloc,
    _BodyDecoder._view,
    _BodyDecoder._dispatch,
    _BodyDecoder._copy,
    _BodyDecoder._fill,
    _BodyDecoder._return,
    _BodyDecoder._get_global,
    _BodyDecoder._random_seeds,
    _BodyDecoder._matmul,
)
