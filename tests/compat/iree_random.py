"""Random functions over the kernels, weights and state of `iree_program.py`: views, launches, copies and fills."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import iree_program

from coilpack.runtime.dtypes import DType
from coilpack.runtime.program import ir
from coilpack.runtime.program.verify import verify_program

ELEMENTS = 64  # of the argument, and of what is allocated
_SWAPPED = 32  # elements that the kernel `swap` exchanges
_GRAIN = 4  # elements: offsets are multiples, as the kernels need none and views may begin anywhere
_PATTERNS = (0, 0x3F800000, 0x40404040, 0x3F3F3F3F)  # of fills; the last two repeat a byte


def random_program(seeds: range) -> ir.Program:
    """A verified program with a function `f<seed>` for each seed."""
    base = iree_program.program()
    functions = tuple(_Maker(base, seed).function() for seed in seeds)
    target = replace(base.targets[0], functions=functions)
    program = replace(base, signatures=tuple(f.signature for f in functions), targets=(target,))
    verify_program(program)
    return program


@dataclass(frozen=True)
class _Memory:
    """Memory that operations may use, from its first element on; where it is `kept`, results may lie in it."""

    value: ir.Value
    elements: int
    writable: bool
    kept: bool = True


@dataclass
class _Part:
    """A part of a memory as an operand."""

    memory: _Memory
    offset: int
    elements: int

    def overlaps(self, other: _Part) -> bool:
        """Whether both share elements."""
        return self.memory is other.memory and abs(self.offset - other.offset) < self.elements


@dataclass
class _Maker:
    """Makes one function."""

    base: ir.Program
    seed: int
    operations: list[ir.Operation] = field(default_factory=list)
    memories: list[_Memory] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.kernels = {kernel.export_name: kernel for kernel in self.base.targets[0].kernels}

    def function(self) -> ir.Function:
        """The function: its memories, then what it does with them, then results out of them."""
        argument = self._value("x", ELEMENTS)
        self.memories.append(_Memory(argument, ELEMENTS, writable=False))
        for storage in self.base.storages:
            self._memory(ir.Parameter, storage.nbytes // 4, False, storage=storage)
        state = [self._memory(ir.GetGlobal, g.nbytes // 4, True, global_=g) for g in self.base.globals]
        outputs, arena_nbytes = self._allocate()
        for _ in range(self.random.randint(3, 14)):
            self.random.choice((self._mix, self._mix, self._swap, self._copy, self._fill))()
        results = [memory.value for memory in (*outputs, *state)]
        viewed = [memory for memory in self.memories if memory.kept and self.random.random() < 0.5]
        results += [self._view(_Part(memory, self.random.choice((0, 4, 16)), 8)) for memory in viewed]
        self.operations.append(ir.Return(tuple(results)))
        inputs = (ir.Argument("x", argument.type),)
        signature = ir.Signature(f"f{self.seed}", inputs, tuple(ir.Argument("", r.type) for r in results))
        return ir.Function(signature, (argument,), tuple(self.operations), arena_nbytes)

    def _value(self, hint: str, elements: int) -> ir.Value:
        self.made += 1
        return ir.Value(f"{hint}{self.made}", ir.TensorType.contiguous(DType.f32, (elements,)))

    def _memory(self, kind: type, elements: int, writable: bool, kept: bool = True, **fields: object) -> _Memory:
        memory = _Memory(self._value("m", elements), elements, writable, kept)
        self.operations.append(kind(result=memory.value, **fields))
        self.memories.append(memory)
        return memory

    def _allocate(self) -> tuple[list[_Memory], int]:
        """Filled memory, some of it for results; the results, and the bytes of the arena."""
        outputs, arena_nbytes = [], 0
        for _ in range(self.random.randint(1, 4)):
            is_output = self.random.random() < 0.5
            space = ir.AllocSpace.OUTPUT if is_output else ir.AllocSpace.ARENA
            offset = 0 if is_output else arena_nbytes
            memory = self._memory(ir.Alloc, ELEMENTS, True, is_output, space=space, nbytes=4 * ELEMENTS, offset=offset)
            self.operations.append(ir.Fill(target=memory.value, pattern=self.random.choice(_PATTERNS)))
            if is_output:
                outputs.append(memory)
            else:
                arena_nbytes += ir.aligned(4 * ELEMENTS)
        return outputs, arena_nbytes

    def _part(self, elements: int, writable: bool) -> _Part:
        fitting = [m for m in self.memories if m.elements >= elements and (m.writable or not writable)]
        memory = self.random.choice(fitting)
        return _Part(memory, self.random.randrange(0, memory.elements - elements + 1, _GRAIN), elements)

    def _view(self, part: _Part) -> ir.Value:
        if part.offset == 0 and part.elements == part.memory.elements:
            return part.memory.value
        view = self._value("v", part.elements)
        self.operations.append(ir.View(result=view, source=part.memory.value, offset=part.offset))
        return view

    def _mix(self) -> None:
        """One memory onto another, or onto itself in place."""
        elements = self.random.choice((4, 8, 32, 40))
        source, target = self._part(elements, False), self._part(elements, True)
        if source.overlaps(target) and source.offset != target.offset:
            return  # what it reads would depend on the order of threads
        scalars = self.random.randint(-5, 5), self.random.choice((0.5, 2.0, -1.0))
        operands = (elements, self._view(source), scalars[0], self._view(target), scalars[1])
        self.operations.append(ir.Dispatch(kernel=self.kernels["mix"], grid=(2, 1, 1), operands=operands))

    def _swap(self) -> None:
        one, other = self._part(_SWAPPED, True), self._part(_SWAPPED, True)
        if not one.overlaps(other):
            operands = (self._view(one), self._view(other))
            self.operations.append(ir.Dispatch(kernel=self.kernels["swap"], grid=(1, 1, 1), operands=operands))

    def _copy(self) -> None:
        elements = self.random.choice((4, 16, 32))
        source, target = self._part(elements, False), self._part(elements, True)
        if not source.overlaps(target):
            self.operations.append(ir.Copy(source=self._view(source), target=self._view(target)))

    def _fill(self) -> None:
        target = self._view(self._part(self.random.choice((4, 8)), True))
        self.operations.append(ir.Fill(target=target, pattern=self.random.choice(_PATTERNS)))
