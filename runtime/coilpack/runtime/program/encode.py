"""Writes programs in their wire form. The same program gives the same bytes, on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import flatbuffers

from coilpack.runtime.program import ir, wire
from coilpack.runtime.program.expr import Binary, Expr, Symbol
from coilpack.runtime.program.verify import verify_program
from coilpack.schemas.generated import program_def_generated as fb

_INITIAL_BYTES = 1 << 16


def encode_program(program: ir.Program) -> bytes:
    """The program's FlatBuffer, identifier `CLP1`.

    Raises:
        InvalidFileError: the program breaks a rule of the IR.
    """
    verify_program(program)
    return _Encoder().program(program)


class _Expressions:
    """A list of expressions in which equal ones are there once; operands stand before what uses them."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = {name: index for index, name in enumerate(symbols)}
        self._index: dict[tuple[int, int, int, int], int] = {}

    def add(self, expr: Expr) -> int:
        if isinstance(expr, Binary):
            row = (0, self.add(expr.lhs), self.add(expr.rhs), expr.kind.value)
        elif isinstance(expr, Symbol):
            row = (self._symbols[expr.name], 0, 0, wire.EXPR_SYMBOL)
        else:
            row = (expr, 0, 0, wire.EXPR_CONSTANT)
        return self._index.setdefault(row, len(self._index))

    def rows(self) -> list[tuple[int, int, int, int]]:
        return list(self._index)


class _Encoder:
    """One FlatBuffer in the making. Children are written before parents, so every method returns an offset."""

    def __init__(self) -> None:
        self.builder: Any = flatbuffers.Builder(_INITIAL_BYTES)
        self._strings: dict[str, int] = {}
        self._types: dict[tuple[object, ...], int] = {}

    # --- parts ---

    def text(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = self.builder.CreateString(text)
        return self._strings[text]

    def offsets(self, items: Iterable[int]) -> int:
        offsets = list(items)
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def words(self, words: Sequence[int]) -> int:
        self.builder.StartVector(4, len(words), 4)
        for word in reversed(words):
            self.builder.PrependUint32(word)
        return int(self.builder.EndVector())

    def structs(self, rows: Sequence[tuple[int, ...]], size: int, alignment: int, create: Callable[..., int]) -> int:
        self.builder.StartVector(size, len(rows), alignment)
        for row in reversed(rows):
            create(self.builder, *row)
        return int(self.builder.EndVector())

    def start_expressions(self, symbols: Sequence[str]) -> _Expressions:
        """Starts a list; types that hold indices into the one before are not shared with it."""
        self._types.clear()
        return _Expressions(symbols)

    def expressions(self, expressions: _Expressions) -> int:
        return self.structs(expressions.rows(), wire.EXPR.size, 8, fb.CreateExpr)

    def type(self, tensor: ir.TensorType, expressions: _Expressions) -> int:
        shape = tuple(expressions.add(size) for size in tensor.shape)
        strides = None if tensor.is_contiguous else tuple(expressions.add(stride) for stride in tensor.strides)
        key = (tensor.dtype, shape, strides)
        if key not in self._types:
            shape_at = self.words(shape)
            strides_at = self.words(strides) if strides is not None else 0
            fb.TensorTypeStart(self.builder)
            fb.TensorTypeAddElementType(self.builder, tensor.dtype.code)
            fb.TensorTypeAddShape(self.builder, shape_at)
            if strides is not None:
                fb.TensorTypeAddStrides(self.builder, strides_at)
            self._types[key] = fb.TensorTypeEnd(self.builder)
        return self._types[key]

    # --- the program ---

    def program(self, program: ir.Program) -> bytes:
        b = self.builder
        storages = self.offsets([self._storage(storage) for storage in program.storages])
        indices = {storage.name: index for index, storage in enumerate(program.storages)}
        globals_ = [self._global(global_, indices) for global_ in program.globals]
        globals_at = self.offsets(globals_) if globals_ else 0
        signatures = self.offsets([self._signature(signature) for signature in program.signatures])
        targets = self.offsets([self._target(target, program) for target in program.targets])
        producer = self.text(program.producer)
        fb.ProgramStart(b)
        fb.ProgramAddFormatVersion(b, wire.FORMAT_VERSION)
        fb.ProgramAddProducer(b, producer)
        fb.ProgramAddStorages(b, storages)
        fb.ProgramAddSignatures(b, signatures)
        fb.ProgramAddTargets(b, targets)
        fb.ProgramAddGlobals(b, globals_at)
        b.Finish(fb.ProgramEnd(b), file_identifier=wire.IDENTIFIER)
        return bytes(b.Output())

    def _storage(self, storage: ir.Storage) -> int:
        name = self.text(storage.name)
        fb.StorageStart(self.builder)
        fb.StorageAddName(self.builder, name)
        fb.StorageAddNbytes(self.builder, storage.nbytes)
        return int(fb.StorageEnd(self.builder))

    def _global(self, global_: ir.Global, storages: Mapping[str, int]) -> int:
        name = self.text(global_.name)
        fb.GlobalStart(self.builder)
        fb.GlobalAddName(self.builder, name)
        fb.GlobalAddNbytes(self.builder, global_.nbytes)
        if global_.initial is not None:
            fb.GlobalAddHasInitial(self.builder, True)
            fb.GlobalAddInitial(self.builder, storages[global_.initial.name])
        return int(fb.GlobalEnd(self.builder))

    def _signature(self, signature: ir.Signature) -> int:
        b = self.builder
        expressions = self.start_expressions([symbol.name for symbol in signature.symbols])
        symbols = self.offsets([self._symbol(symbol) for symbol in signature.symbols])
        inputs = self.offsets([self._argument(argument, expressions) for argument in signature.inputs])
        outputs = self.offsets([self._argument(argument, expressions) for argument in signature.outputs])
        relations = [(expressions.add(g.lhs), expressions.add(g.rhs), g.kind.value) for g in signature.guards]
        guards = self.structs(relations, wire.GUARD.size, 4, fb.CreateGuard) if relations else 0
        rows, name = self.expressions(expressions), self.text(signature.name)
        fb.SignatureStart(b)
        fb.SignatureAddName(b, name)
        fb.SignatureAddExpressions(b, rows)
        fb.SignatureAddSymbols(b, symbols)
        fb.SignatureAddInputs(b, inputs)
        fb.SignatureAddOutputs(b, outputs)
        fb.SignatureAddGuards(b, guards)
        fb.SignatureAddRandom(b, signature.random)
        return int(fb.SignatureEnd(b))

    def _symbol(self, symbol: ir.SizeSymbol) -> int:
        b = self.builder
        name = self.text(symbol.name)
        fb.SymbolStart(b)
        fb.SymbolAddName(b, name)
        fb.SymbolAddInput(b, symbol.input)
        fb.SymbolAddDim(b, symbol.dim or 0)
        fb.SymbolAddMinimum(b, symbol.minimum)
        fb.SymbolAddMaximum(b, symbol.maximum)
        fb.SymbolAddIsValue(b, symbol.dim is None)
        return int(fb.SymbolEnd(b))

    def _argument(self, argument: ir.Argument, expressions: _Expressions) -> int:
        name, type_ = self.text(argument.name), self.type(argument.type, expressions)
        fb.ArgumentStart(self.builder)
        fb.ArgumentAddName(self.builder, name)
        fb.ArgumentAddType(self.builder, type_)
        if argument.value is not None:
            fb.ArgumentAddIsInteger(self.builder, True)
            fb.ArgumentAddValue(self.builder, expressions.add(argument.value))
        return int(fb.ArgumentEnd(self.builder))

    def _target(self, target: ir.Target, program: ir.Program) -> int:
        b = self.builder
        images = self.offsets([self._image(image) for image in target.images])
        kernels = self.offsets([self._kernel(kernel) for kernel in target.kernels])
        functions = self.offsets(
            [_FunctionEncoder(self, function, target, program).encode() for function in target.functions]
        )
        name = self.text(target.name)
        fb.TargetStart(b)
        fb.TargetAddName(b, name)
        fb.TargetAddImages(b, images)
        fb.TargetAddKernels(b, kernels)
        fb.TargetAddFunctions(b, functions)
        return int(fb.TargetEnd(b))

    def _image(self, image: ir.Image) -> int:
        entry = self.text(image.entry)
        fb.ImageStart(self.builder)
        fb.ImageAddKind(self.builder, image.kind.value)
        fb.ImageAddEntry(self.builder, entry)
        return int(fb.ImageEnd(self.builder))

    def _kernel(self, kernel: ir.Kernel) -> int:
        rows = [_kernel_parameter(parameter) for parameter in kernel.parameters]
        parameters = self.structs(rows, wire.KERNEL_PARAMETER.size, 4, fb.CreateKernelParameter)
        export_name = self.text(kernel.export_name)
        rule = self._launch_rule(kernel) if kernel.grid is not None else 0
        source, configuration = (self.text(text) if text else 0 for text in (kernel.source, kernel.configuration))
        fb.KernelStart(self.builder)
        fb.KernelAddExportName(self.builder, export_name)
        fb.KernelAddParameters(self.builder, parameters)
        fb.KernelAddCooperative(self.builder, kernel.cooperative)
        fb.KernelAddLaunchRule(self.builder, rule)
        fb.KernelAddSource(self.builder, source)
        fb.KernelAddConfiguration(self.builder, configuration)
        return int(fb.KernelEnd(self.builder))

    def _launch_rule(self, kernel: ir.Kernel) -> int:
        expressions = self.start_expressions(wire.launch_symbols(len(kernel.parameters)))
        grid = self.words([expressions.add(size) for size in kernel.grid or ()])
        rows = self.expressions(expressions)
        fb.LaunchRuleStart(self.builder)
        fb.LaunchRuleAddExpressions(self.builder, rows)
        fb.LaunchRuleAddGrid(self.builder, grid)
        return int(fb.LaunchRuleEnd(self.builder))


def _kernel_parameter(parameter: ir.KernelParameter) -> tuple[int, int, int, int, int]:
    if isinstance(parameter, ir.PointerParameter):
        return wire.PARAMETER_POINTER, parameter.dtype.code, parameter.access.value, 0, parameter.alignment
    return wire.PARAMETER_SCALAR, parameter.dtype.code, 0, 0, 0


class _FunctionEncoder:
    """Encodes one function's body."""

    def __init__(self, encoder: _Encoder, function: ir.Function, target: ir.Target, program: ir.Program) -> None:
        self.encoder, self.builder = encoder, encoder.builder
        self.function = function
        self.expressions = encoder.start_expressions([symbol.name for symbol in function.signature.symbols])
        self.signature = [signature.name for signature in program.signatures].index(function.name)
        self.storages = {storage.name: index for index, storage in enumerate(program.storages)}
        self.globals = {global_.name: index for index, global_ in enumerate(program.globals)}
        self.kernels = {kernel.export_name: index for index, kernel in enumerate(target.kernels)}
        values = [*function.arguments, *(value for op in function.operations for value in ir.results(op))]
        self.values = {value: index for index, value in enumerate(values)}
        self.names = [value.name for value in values]

    def encode(self) -> int:
        b, function = self.builder, self.function
        operations = self.encoder.offsets([self._operation(operation) for operation in function.operations])
        arena_nbytes = self.expressions.add(function.arena_nbytes)
        arguments = len(function.arguments)
        named = self.names != wire.default_names(arguments, len(self.names) - arguments)
        names = self.encoder.offsets([self.encoder.text(name) for name in self.names]) if named else 0
        rows = self.encoder.expressions(self.expressions)
        fb.FunctionStart(b)
        fb.FunctionAddSignature(b, self.signature)
        fb.FunctionAddExpressions(b, rows)
        fb.FunctionAddOperations(b, operations)
        fb.FunctionAddArenaNbytes(b, arena_nbytes)
        if named:
            fb.FunctionAddValueNames(b, names)
        return int(fb.FunctionEnd(b))

    def _operation(self, operation: ir.Operation) -> int:
        b = self.builder
        kind = wire.OPERATION_BODIES.index(type(operation)) + 1
        body = _BODIES[type(operation)](self, operation)
        location = self.encoder.text(operation.location) if operation.location else 0
        fb.OperationStart(b)
        fb.OperationAddBodyType(b, kind)
        fb.OperationAddBody(b, body)
        if location:
            fb.OperationAddLocation(b, location)
        return int(fb.OperationEnd(b))

    def _type(self, value: ir.Value) -> int:
        return self.encoder.type(value.type, self.expressions)

    def _parameter(self, operation: ir.Parameter) -> int:
        type_ = self._type(operation.result)
        fb.ParameterStart(self.builder)
        fb.ParameterAddStorage(self.builder, self.storages[operation.storage.name])
        fb.ParameterAddByteOffset(self.builder, operation.byte_offset)
        fb.ParameterAddType(self.builder, type_)
        return int(fb.ParameterEnd(self.builder))

    def _alloc(self, operation: ir.Alloc) -> int:
        type_ = self._type(operation.result)
        fb.AllocStart(self.builder)
        fb.AllocAddSpace(self.builder, operation.space.value)
        fb.AllocAddOffset(self.builder, self.expressions.add(operation.offset))
        fb.AllocAddNbytes(self.builder, self.expressions.add(operation.nbytes))
        fb.AllocAddType(self.builder, type_)
        return int(fb.AllocEnd(self.builder))

    def _view(self, operation: ir.View) -> int:
        type_ = self._type(operation.result)
        fb.ViewStart(self.builder)
        fb.ViewAddSource(self.builder, self.values[operation.source])
        fb.ViewAddOffset(self.builder, self.expressions.add(operation.offset))
        fb.ViewAddType(self.builder, type_)
        return int(fb.ViewEnd(self.builder))

    def _dispatch(self, operation: ir.Dispatch) -> int:
        grid = self.encoder.words([self.expressions.add(size) for size in operation.grid])
        rows = [self._operand(operand) for operand in operation.operands]
        operands = self.encoder.structs(rows, wire.OPERAND.size, 8, fb.CreateOperand)
        candidates = [self._alternative(alternative) for alternative in operation.alternatives]
        alternatives = self.encoder.offsets(candidates) if candidates else 0
        fb.DispatchStart(self.builder)
        fb.DispatchAddKernel(self.builder, self.kernels[operation.kernel.export_name])
        fb.DispatchAddGrid(self.builder, grid)
        fb.DispatchAddOperands(self.builder, operands)
        fb.DispatchAddAlternatives(self.builder, alternatives)
        return int(fb.DispatchEnd(self.builder))

    def _alternative(self, alternative: ir.Alternative) -> int:
        grid = self.encoder.words([self.expressions.add(size) for size in alternative.grid])
        fb.AlternativeStart(self.builder)
        fb.AlternativeAddKernel(self.builder, self.kernels[alternative.kernel.export_name])
        fb.AlternativeAddGrid(self.builder, grid)
        return int(fb.AlternativeEnd(self.builder))

    def _operand(self, operand: ir.Operand) -> tuple[int, int]:
        if operand is None:
            return 0, wire.OPERAND_NULL
        if isinstance(operand, ir.Value):
            return self.values[operand], wire.OPERAND_VALUE
        if isinstance(operand, float):
            return wire.UINT64.unpack(wire.DOUBLE.pack(operand))[0], wire.OPERAND_FLOAT
        return self.expressions.add(operand), wire.OPERAND_EXPRESSION

    def _copy(self, operation: ir.Copy) -> int:
        fb.CopyStart(self.builder)
        fb.CopyAddSource(self.builder, self.values[operation.source])
        fb.CopyAddTarget(self.builder, self.values[operation.target])
        return int(fb.CopyEnd(self.builder))

    def _fill(self, operation: ir.Fill) -> int:
        fb.FillStart(self.builder)
        fb.FillAddTarget(self.builder, self.values[operation.target])
        fb.FillAddPattern(self.builder, operation.pattern)
        return int(fb.FillEnd(self.builder))

    def _get_global(self, operation: ir.GetGlobal) -> int:
        type_ = self._type(operation.result)
        fb.GetGlobalStart(self.builder)
        fb.GetGlobalAddGlobal(self.builder, self.globals[operation.global_.name])
        fb.GetGlobalAddByteOffset(self.builder, operation.byte_offset)
        fb.GetGlobalAddType(self.builder, type_)
        return int(fb.GetGlobalEnd(self.builder))

    def _random_seeds(self, operation: ir.RandomSeeds) -> int:
        type_ = self._type(operation.result)
        fb.RandomSeedsStart(self.builder)
        fb.RandomSeedsAddType(self.builder, type_)
        fb.RandomSeedsAddPhiloxOffset(self.builder, operation.philox_offset)
        return int(fb.RandomSeedsEnd(self.builder))

    def _matmul(self, operation: ir.Matmul) -> int:
        b = self.builder
        fb.MatmulStart(b)
        fb.MatmulAddTarget(b, self.values[operation.target])
        fb.MatmulAddLhs(b, self.values[operation.lhs])
        fb.MatmulAddRhs(b, self.values[operation.rhs])
        if operation.addend is not None:
            fb.MatmulAddHasAddend(b, True)
            fb.MatmulAddAddend(b, self.values[operation.addend])
        fb.MatmulAddAlpha(b, operation.alpha)
        fb.MatmulAddBeta(b, operation.beta)
        fb.MatmulAddTf32(b, operation.tf32)
        return int(fb.MatmulEnd(b))

    def _return(self, operation: ir.Return) -> int:
        values = self.encoder.words([self.values[value] for value in operation.values])
        fb.ReturnStart(self.builder)
        fb.ReturnAddValues(self.builder, values)
        return int(fb.ReturnEnd(self.builder))


_BODIES: dict[type[ir.Operation], Callable[[_FunctionEncoder, Any], int]] = {
    ir.Parameter: _FunctionEncoder._parameter,
    ir.Alloc: _FunctionEncoder._alloc,
    ir.View: _FunctionEncoder._view,
    ir.Dispatch: _FunctionEncoder._dispatch,
    ir.Copy: _FunctionEncoder._copy,
    ir.Fill: _FunctionEncoder._fill,
    ir.Return: _FunctionEncoder._return,
    ir.GetGlobal: _FunctionEncoder._get_global,
    ir.RandomSeeds: _FunctionEncoder._random_seeds,
    ir.Matmul: _FunctionEncoder._matmul,
}
