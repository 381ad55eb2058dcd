"""The verifier of the program IR: what later code may rely on, whoever made the program.

`verify_program` proves that a program is well formed: names are unique and found, values are defined once and before
use, every memory range that is known statically lies in its allocation, and each dispatch hands its kernel what the
kernel declares. Sizes that depend on symbols are known only at a call, so their bounds are the runtime's to check.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.program import ir, wire
from coilpack.runtime.program.expr import Expr, Symbol, linear
from coilpack.runtime.program.types import INT64_MAX, INT64_MIN, MAX_RANK, TypeChecker, TypeProblemError
from coilpack.runtime.program.verify_dispatch import grid_problem
from coilpack.runtime.program.verify_function import FunctionVerifier, OperationProblemError

MAX_PARAMETERS = 4096  # of a kernel: the driver takes 32,764 bytes of parameters (CUDA C++ programming guide)
MAX_POINTER_ALIGNMENT = ir.ARENA_ALIGNMENT  # bytes; no allocation is surely more aligned
MAX_TARGETS = 256

_TARGET_NAME = re.compile(r"sm_[1-9][0-9]{1,3}[af]?")
_SYMBOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class InvalidProgramError(InvalidFileError):
    """A program breaks a rule of the IR; `subject` is the IR object that does, so that a parser can point at it."""

    def __init__(self, file: str, where: str, problem: str, subject: object) -> None:
        super().__init__(file, where, problem)
        self.subject = subject


def verify_program(program: ir.Program, *, file: str = "<program>") -> None:
    """Checks every rule of the IR.

    Args:
        program: the program; it is only read.
        file: what messages call it.

    Raises:
        InvalidProgramError: (an `InvalidFileError`) a rule is broken; the message names the function and the operation.
    """
    _ProgramVerifier(file).program(program)


class _ProgramVerifier:
    """Checks one program from the outside in."""

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, where: str, problem: str, subject: object) -> NoReturn:
        raise InvalidProgramError(self.file, where, problem, subject)

    def program(self, program: ir.Program) -> None:
        self._text(program.producer, "producer", program)
        self._unique((s.name for s in program.signatures), "signatures", "function", program.signatures)
        self._unique((s.name for s in program.storages), "storages", "storage", program.storages)
        self._unique((g.name for g in program.globals), "globals", "global", program.globals)
        self._unique((t.name for t in program.targets), "targets", "target", program.targets)
        if len(program.targets) > MAX_TARGETS:
            self.fail("targets", f"there are {len(program.targets)}; the limit is {MAX_TARGETS}", program)
        for storage in program.storages:
            if not 0 <= storage.nbytes <= INT64_MAX:
                problem = f"its size is {storage.nbytes} bytes; it must be 0 to {INT64_MAX}"
                self.fail(f"storage {storage.name!r}", problem, storage)
        storages = {storage.name: storage for storage in program.storages}
        for global_ in program.globals:
            self._global(global_, storages)
        total = sum(global_.nbytes for global_ in program.globals)
        if total > INT64_MAX:
            self.fail("globals", f"they have {total} bytes in all; the limit is {INT64_MAX}", program.globals[-1])
        for signature in program.signatures:
            self._signature(signature)
        images = [(image.entry, target) for target in program.targets for image in target.images]
        self._unique([entry for entry, _ in images], "targets", "image entry", tuple([target for _, target in images]))
        for target in program.targets:
            self._target(target, program)

    def _global(self, global_: ir.Global, storages: dict[str, ir.Storage]) -> None:
        where = f"global {global_.name!r}"
        if not 0 <= global_.nbytes <= INT64_MAX:
            self.fail(where, f"its size is {global_.nbytes} bytes; it must be 0 to {INT64_MAX}", global_)
        initial = global_.initial
        if initial is None:
            return
        if storages.get(initial.name) != initial:
            self.fail(where, f"storage {initial.name!r} is not one of the program's", global_)
        if initial.nbytes != global_.nbytes:
            sizes = f"it has {global_.nbytes} bytes, its initial storage {initial.name!r} has {initial.nbytes}"
            self.fail(where, sizes, global_)

    def _text(self, text: str, where: str, subject: object, *, empty: bool = False) -> None:
        if not text and not empty:
            self.fail(where, "it is empty", subject)
        if "\0" in text:
            self.fail(where, f"{text!r} holds a NUL", subject)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                self.fail(where, f"{text!r} holds half of a surrogate pair, which UTF-8 cannot", subject)

    def _unique(self, names: Iterable[str], where: str, kind: str, subjects: tuple[object, ...]) -> None:
        seen: set[str] = set()
        for index, (name, subject) in enumerate(zip(names, subjects, strict=True)):
            self._text(name, f"{where}[{index}]", subject)
            if name in seen:
                self.fail(where, f"{kind} {name!r} is there twice; names must be unique", subject)
            seen.add(name)

    def _signature(self, signature: ir.Signature) -> None:
        where = f"signature {signature.name!r}"
        names = frozenset(symbol.name for symbol in signature.symbols)
        self._unique((s.name for s in signature.symbols), where, "symbol", signature.symbols)
        checker = TypeChecker(names)
        for kind, arguments in (("inputs", signature.inputs), ("outputs", signature.outputs)):
            for index, argument in enumerate(arguments):
                self._text(argument.name, f"{where}: {kind}[{index}].name", argument, empty=True)
                try:
                    checker.check(argument.type)
                    if argument.value is not None:
                        checker.value(argument.value)
                except TypeProblemError as error:
                    self.fail(f"{where}: {kind}[{index}]", str(error), argument)
                if argument.value is not None and argument.type != ir.INTEGER_TYPE:
                    self.fail(f"{where}: {kind}[{index}]", "the type of an integer must be tensor<i64>", argument)
        for symbol in signature.symbols:
            self._symbol(signature, symbol, f"{where}: symbol {symbol.name!r}")
        self._integers(signature, where)
        for index, guard in enumerate(signature.guards):
            try:
                checker.value(guard.lhs)
                checker.value(guard.rhs)
            except TypeProblemError as error:
                self.fail(f"{where}: guards[{index}]", str(error), guard)

    def _integers(self, signature: ir.Signature, where: str) -> None:
        """Each integer input defines a symbol of its own, which it is."""
        defined = {symbol.input: symbol.name for symbol in signature.symbols if symbol.dim is None}
        for index, argument in enumerate(signature.inputs):
            if argument.value is not None and index not in defined:
                self.fail(f"{where}: inputs[{index}]", "it is an integer, but no symbol has its value", argument)

    def _symbol(self, signature: ir.Signature, symbol: ir.SizeSymbol, where: str) -> None:
        if not _SYMBOL_NAME.fullmatch(symbol.name):
            self.fail(where, "the name must be a letter or underscore, then letters, digits and underscores", symbol)
        if not 0 <= symbol.input < len(signature.inputs):
            count = len(signature.inputs)
            self.fail(where, f"it is defined by input {symbol.input}, but there are {count} inputs", symbol)
        argument = signature.inputs[symbol.input]
        least = 0 if symbol.dim is not None else INT64_MIN
        if symbol.dim is None:
            if argument.value != Symbol(symbol.name):
                self.fail(where, f"input {symbol.input} is not an integer with that symbol as its value", symbol)
        else:
            self._dimension(symbol, symbol.dim, argument, where)
        if not least <= symbol.minimum <= symbol.maximum <= INT64_MAX:
            bounds = f"[{symbol.minimum}, {symbol.maximum}]"
            self.fail(where, f"its bounds are {bounds}; they must be ordered and from {least} to {INT64_MAX}", symbol)

    def _dimension(self, symbol: ir.SizeSymbol, dim: int, argument: ir.Argument, where: str) -> None:
        """The dimension that defines a symbol must give it back by one division."""
        shape = argument.type.shape
        if not 0 <= dim < min(len(shape), MAX_RANK):
            self.fail(where, f"it is dimension {dim} of an input that has {len(shape)} dimensions", symbol)
        factors = linear(shape[dim], symbol.name)
        if factors is None or factors[0] <= 0:
            place = f"dimension {dim} of input {symbol.input}"
            self.fail(where, f"{place} is not a * {symbol.name} + b with constants a > 0 and b", symbol)

    def _target(self, target: ir.Target, program: ir.Program) -> None:
        where = f"target {target.name}"
        if not _TARGET_NAME.fullmatch(target.name):
            self.fail(f"target {target.name!r}", "the name must be as in PTX, like sm_80 or sm_90a", target)
        kinds = [image.kind for image in target.images]
        if not kinds or len(set(kinds)) < len(kinds):
            listed = ", ".join(kind.name.lower() for kind in kinds) or "none"
            self.fail(where, f"it needs at least one image and each kind at most once; its images: {listed}", target)
        self._unique((k.export_name for k in target.kernels), f"{where}: kernels", "kernel", target.kernels)
        seen: set[int] = set()  # kernels that were read from a file share equal lists of parameters
        for kernel in target.kernels:
            if id(kernel.parameters) not in seen:
                self._kernel(kernel, f"{where}: kernel {kernel.export_name!r}")
                seen.add(id(kernel.parameters))
            for field, text in (("source", kernel.source), ("configuration", kernel.configuration)):
                if text:
                    self._text(text, f"{where}: kernel {kernel.export_name!r}: {field}", kernel)
            if kernel.grid is not None:
                self._launch_rule(kernel, kernel.grid, f"{where}: kernel {kernel.export_name!r}: launch rule")
        self._unique((f.name for f in target.functions), f"{where}: functions", "function", target.functions)
        bodies = {function.name for function in target.functions}
        missing = [s.name for s in program.signatures if s.name not in bodies]
        if missing:
            self.fail(where, f"it has no function {missing[0]!r}; every target has a body for each signature", target)
        signatures = {signature.name: signature for signature in program.signatures}
        kernels = {kernel.export_name: kernel for kernel in target.kernels}
        storages = {storage.name: storage for storage in program.storages}
        globals_ = {global_.name: global_ for global_ in program.globals}
        for function in target.functions:
            self._function(function, where, signatures, FunctionVerifier(function, kernels, storages, globals_))

    def _kernel(self, kernel: ir.Kernel, where: str) -> None:
        if len(kernel.parameters) > MAX_PARAMETERS:
            self.fail(where, f"it has {len(kernel.parameters)} parameters; the limit is {MAX_PARAMETERS}", kernel)
        for index, parameter in enumerate(kernel.parameters):
            if isinstance(parameter, ir.PointerParameter):
                alignment = parameter.alignment
                if not 1 <= alignment <= MAX_POINTER_ALIGNMENT or alignment & (alignment - 1):
                    problem = f"its alignment is {alignment}; it must be a power of two up to {MAX_POINTER_ALIGNMENT}"
                    self.fail(f"{where}: parameter {index}", problem, kernel)
                if not parameter.access:
                    self.fail(f"{where}: parameter {index}", "its access is neither read nor write", kernel)
            elif parameter.dtype in (DType.complex64, DType.complex128):
                problem = f"a scalar of type {parameter.dtype.name}; kernels take integers and floats"
                self.fail(f"{where}: parameter {index}", problem, kernel)

    def _launch_rule(self, kernel: ir.Kernel, grid: tuple[Expr, ...], where: str) -> None:
        """Its symbols stand for parameters that are integers; sizes that are known are within the limits."""
        names = wire.launch_symbols(len(kernel.parameters))
        integers = [
            name
            for name, parameter in zip(names, kernel.parameters, strict=True)
            if isinstance(parameter, ir.ScalarParameter) and not parameter.dtype.is_float
        ]
        try:
            problem = grid_problem(grid, TypeChecker(frozenset(integers)))
        except TypeProblemError as error:
            self.fail(where, str(error), kernel)
        if problem:
            self.fail(where, problem, kernel)

    def _function(
        self, function: ir.Function, where: str, signatures: dict[str, ir.Signature], verifier: FunctionVerifier
    ) -> None:
        where = f"{where}: function {function.name!r}"
        if function.name not in signatures:
            self.fail(where, "the program has no such signature", function)
        if function.signature != signatures[function.name]:
            self.fail(where, "its signature differs from the program's of that name", function)
        try:
            verifier.run()
        except OperationProblemError as error:
            self.fail(f"{where}: {error.where}" if error.where else where, str(error), error.subject or function)
