"""Launches as operations of the host: grids, 32-bit constants, and buffers that a kernel changes in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from coilpack.compiler.arithmetic import add
from coilpack.compiler.iree.abi import Constant
from coilpack.compiler.iree.executables import HostKernel
from coilpack.compiler.iree.memory import Memory, Operand, Place
from coilpack.compiler.iree.sizes import Sizes
from coilpack.compiler.iree.text import Block
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.plan import encode_scalar
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import Expr
from coilpack.runtime.program.verify_dispatch import MAX_GRID
from coilpack.runtime.program.verify_function import SCALAR_RANGE
from coilpack.runtime.sizes import format_expr

_WORD_BYTES = 4


class Pointer(NamedTuple):
    """What a launch passes for a pointer: `nbytes` bytes from `place` on."""

    place: Place
    nbytes: Expr


LaunchOperand = Pointer | Expr | float | None


@dataclass(frozen=True, slots=True)
class Launcher:
    """Launches kernels.

    A kernel that reads and writes one buffer through two pointers reads what was there before the launch.

    Args:
        block: where operations go.
        sizes: of the function.
        memory: of the function.

    Attributes:
        launched: the kernels that were launched over buffers whose content others may have, too.
    """

    block: Block
    sizes: Sizes
    memory: Memory
    launched: set[str] = field(default_factory=set, init=False)

    def launch(self, kernel: HostKernel, grid: Sequence[Expr], operands: Sequence[LaunchOperand]) -> None:
        """Launches `kernel` on a grid of workgroups, with one operand for each of its parameters.

        Raises:
            UnsupportedError: it writes to overlapping parts of a buffer through two pointers, or an operand cannot be
                passed.
        """
        pointers = [_pointer(kernel, operands[index]) for index in kernel.abi.bindings]
        written = [pointer for pointer, read_only in zip(pointers, kernel.abi.read_only, strict=True) if not read_only]
        if not written:
            return  # nothing would come of it
        together = _written_together(kernel, written)
        workgroups = self.sizes.grid(grid, MAX_GRID, kernel.symbol)
        if self._is_evaluated(pointers) or self._is_repeated(kernel, written):
            workgroups = [self.sizes.hide(workgroups[0]), *workgroups[1:]]
        constants = [self._word(kernel, constant, operands[constant.parameter]) for constant in kernel.abi.constants]
        passed, changed = self._operands(kernel, pointers, together)
        types = ["i32"] * len(constants) + ["".join(self.memory.operand_type(operand)) for operand in passed]
        tied = [f"{passed[i].value}{self.memory.operand_type(passed[i])[1]}" for i in changed]
        values = self.block.define_all(
            [pointers[i].place.buffer.name for i in changed],
            f"flow.dispatch {kernel.reference}[{', '.join(workgroups)}]"
            f"({', '.join([*constants, *(operand.value for operand in passed)])}) : ({', '.join(types)}) -> "
            + (tied[0] if len(tied) == 1 else f"({', '.join(tied)})"),
        )
        for value, i in zip(values, changed, strict=True):
            self.memory.write(pointers[i].place, passed[i]._replace(value=value), known=False, unique=True)

    def _is_evaluated(self, pointers: Sequence[Pointer]) -> bool:
        """Whether iree-compile would execute the launch itself: on the CPU, where it crashes for want of a kernel."""
        return all(pointer.place.buffer.known for pointer in pointers)

    def _is_repeated(self, kernel: HostKernel, written: Sequence[Pointer]) -> bool:
        """Whether iree-compile might take the launch for an earlier one, whose results it would then use for both."""
        if all(pointer.place.buffer.unique for pointer in written):
            return False
        repeated = kernel.symbol in self.launched
        self.launched.add(kernel.symbol)
        return repeated

    def _operands(
        self, kernel: HostKernel, pointers: Sequence[Pointer], together: set[object]
    ) -> tuple[list[Operand], list[int]]:
        """The tensors that a launch takes, and which of them it changes."""
        passed = []
        for pointer, read_only in zip(pointers, kernel.abi.read_only, strict=True):
            self.memory.check(*pointer, f"an operand of {kernel.symbol}")
            exactly = not read_only and pointer.place.buffer in together
            passed.append(self.memory.exactly(*pointer) if exactly else self.memory.read(*pointer))
        changed = [i for i, read_only in enumerate(kernel.abi.read_only) if not read_only]
        # Two that are one tensor to iree-compile would be changed in one place.
        distinct: list[Operand] = []
        for i in sorted(changed, key=lambda i: not pointers[i].place.buffer.unique):
            buffer = pointers[i].place.buffer
            if not buffer.unique and any(_may_be_one(passed[i], other) for other in distinct):
                passed[i] = self.memory.apart(passed[i], buffer.undefined)
            else:
                distinct.append(passed[i])
        return passed, changed

    def _word(self, kernel: HostKernel, constant: Constant, operand: LaunchOperand) -> str:
        """One 32-bit constant of a scalar."""
        parameter = kernel.parameters[constant.parameter]
        assert isinstance(parameter, ir.ScalarParameter), "only scalars become constants"
        assert not isinstance(operand, Pointer | None), "the verifier lets no address be a scalar"
        if isinstance(operand, int | float):
            start = _WORD_BYTES * constant.word
            data = encode_scalar(parameter.dtype, operand)[start : start + _WORD_BYTES]
            word = int.from_bytes(data.ljust(_WORD_BYTES, b"\0"), "little", signed=True)
            return self.block.constant(word, "i32")
        return self._symbolic_word(kernel, constant, parameter.dtype, operand)

    def _symbolic_word(self, kernel: HostKernel, constant: Constant, dtype: DType, size: Expr) -> str:
        value = self.sizes.value(size)
        if dtype is DType.f32:
            whole = self.block.define("whole", f"arith.index_cast {value} : index to i64")
            number = self.block.define("number", f"arith.sitofp {whole} : i64 to f32")
            return self.block.define("k", f"arith.bitcast {number} : f32 to i32")
        if dtype not in SCALAR_RANGE:
            raise UnsupportedError(
                f"kernel {kernel.symbol!r} takes the size {format_expr(size)} as {dtype.name}; a host program for "
                "IREE passes sizes as integers or f32 only: emit a package"
            )
        low, high = SCALAR_RANGE[dtype]
        if dtype is not DType.i64:
            what = f"parameter {constant.parameter} of {kernel.symbol}"
            self.sizes.check_range(size, low, min(high, SCALAR_RANGE[DType.i64][1]), what)
        if constant.word:
            value = self.block.define("high", f"arith.shrui {value}, {self.sizes.value(8 * _WORD_BYTES)} : index")
        return self.block.define("k", f"arith.index_cast {value} : index to i32")


def _may_be_one(one: Operand, other: Operand) -> bool:
    """Whether two tensors can be of one size."""
    return not (isinstance(one.nbytes, int) and isinstance(other.nbytes, int)) or one.nbytes == other.nbytes


def _pointer(kernel: HostKernel, operand: LaunchOperand) -> Pointer:
    if not isinstance(operand, Pointer):
        raise UnsupportedError(
            f"kernel {kernel.symbol!r} gets a null pointer that its code uses, which IREE cannot pass: emit a package"
        )
    return operand


def _written_together(kernel: HostKernel, written: Sequence[Pointer]) -> set[object]:
    """The buffers that are written through several pointers, to parts that are known not to overlap."""
    shared: set[object] = set()
    for one, other in combinations(written, 2):
        buffer = one.place.buffer
        if buffer is not other.place.buffer:
            continue
        first, second = sorted((one, other), key=lambda p: p.place.offset if isinstance(p.place.offset, int) else -1)
        end, begin = add(first.place.offset, first.nbytes), second.place.offset
        if end != begin and not (isinstance(end, int) and isinstance(begin, int) and end <= begin):
            raise UnsupportedError(
                f"kernel {kernel.symbol!r} writes to parts of one buffer, {buffer.name!r}, through two pointers, and "
                "they may overlap; IREE's tensors are values and cannot express that: emit a package"
            )
        shared.add(buffer)
    return shared
