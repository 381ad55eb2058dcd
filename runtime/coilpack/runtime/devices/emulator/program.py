"""From a parsed entry to `Code`: control flow, what registers depend on, memory of variables, operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from coilpack.runtime.devices.emulator.builder import SPECIALS, Builder
from coilpack.runtime.devices.emulator.code import FULL, Block, Code, Dims, Leave, Operation
from coilpack.runtime.devices.emulator.grouping import MultiplyAdds
from coilpack.runtime.devices.emulator.instructions import CONVERGENT, NO_RESULT, PURE, TABLE, refusal
from coilpack.runtime.devices.emulator.masks import guarded
from coilpack.runtime.devices.emulator.ptx import (
    TYPE_BYTES,
    Address,
    Arguments,
    Entry,
    Instruction,
    Label,
    Negated,
    Operand,
    Pair,
    PtxModule,
    Register,
    Symbol,
    Variable,
    Vector,
)

_NOTHING: Dims = (False, False)
_JUMPS = {"bra": "jump", "ret": "exit", "exit": "exit"}


def compile_entry(module: PtxModule, entry: Entry, addresses: Mapping[str, int]) -> Code:
    """Compiles a kernel.

    Args:
        module: the text it is in.
        entry: the kernel.
        addresses: where the module's global and constant variables are.

    Raises:
        UnsupportedError: it has an instruction that is not implemented; the message says which and where.
    """
    code = Code(entry.name)
    used = {symbol for statement in entry.body if isinstance(statement, Instruction) for symbol in _symbols(statement)}
    variables = [v for v in (*module.variables, *entry.variables) if v.name in used]
    symbols = dict(addresses) | _place(code, variables)
    instructions = [s for s in entry.body if isinstance(s, Instruction)]
    read = frozenset(register for i in instructions for register in _reads(i))
    builder = Builder(code, entry.registers, _dims(instructions), read, symbols, parameter_layout(entry.parameters))
    targets = _labels(entry.body)
    for statements in _blocks(entry.body):
        code.blocks.append(_block(builder, statements, targets))
    code.repeats_on_memory = _repeats_on_memory(code)
    return code


def parameter_layout(parameters: Sequence[Variable]) -> dict[str, tuple[int, int]]:
    """(offset, size) in bytes of each parameter in the parameter block, in order."""
    layout: dict[str, tuple[int, int]] = {}
    end = 0
    for parameter in parameters:
        offset = -(-end // parameter.alignment) * parameter.alignment
        size = TYPE_BYTES[parameter.type] * parameter.count
        layout[parameter.name] = (offset, size)
        end = offset + size
    return layout


def _place(code: Code, variables: Sequence[Variable]) -> dict[str, int]:
    """Offsets of shared and local variables; shared arrays without a size all begin behind the others."""
    symbols: dict[str, int] = {}
    dynamic = [v for v in variables if v.space == "shared" and not v.count]
    for variable in variables:
        size = TYPE_BYTES[variable.type] * variable.count
        if variable.space == "shared" and variable.count:
            symbols[variable.name] = -(-code.shared_bytes // variable.alignment) * variable.alignment
            code.shared_bytes = symbols[variable.name] + size
        elif variable.space == "local":
            symbols[variable.name] = -(-code.local_bytes // variable.alignment) * variable.alignment
            code.local_bytes = symbols[variable.name] + size
    if dynamic:
        alignment = max(v.alignment for v in dynamic)
        code.shared_bytes = -(-code.shared_bytes // alignment) * alignment
        symbols |= {v.name: code.shared_bytes for v in dynamic}
    return symbols


# --- what values depend on ---


def _leaves(operand: Operand) -> Iterator[Register | Symbol]:
    match operand:
        case Register() | Symbol():
            yield operand
        case Negated(register):
            yield register
        case Address(base, _):
            yield from _leaves(base)
        case Pair(first, second):
            yield first
            yield second
        case Vector(items) | Arguments(items):
            for item in items:
                yield from _leaves(item)


def _symbols(instruction: Instruction) -> Iterator[str]:
    for operand in instruction.operands:
        yield from (leaf.name for leaf in _leaves(operand) if isinstance(leaf, Symbol))


def _split(instruction: Instruction) -> tuple[list[str], list[str]]:
    """Registers that an instruction writes, and those that it reads (guard included)."""
    operands = instruction.operands
    results = 0 if instruction.opcode in NO_RESULT or not operands else 1
    writes = [leaf.name for operand in operands[:results] for leaf in _leaves(operand) if isinstance(leaf, Register)]
    reads = [leaf.name for operand in operands[results:] for leaf in _leaves(operand) if isinstance(leaf, Register)]
    if instruction.guard:
        reads.append(instruction.guard.register.name)
    return writes, reads


def _reads(instruction: Instruction) -> list[str]:
    return _split(instruction)[1]


def _dims(instructions: Sequence[Instruction]) -> dict[str, Dims]:
    """What each register's value depends on, for those that are not `FULL`.

    A register written once, under no predicate, by a function of its sources alone, has the sources' dependences: such
    a value may be computed for all threads whenever one of them computes it.
    """
    writes = Counter(register for i in instructions for register in _split(i)[0])
    dims: dict[str, Dims] = {}
    candidates = []
    for instruction in instructions:
        results, sources = _split(instruction)
        simple = instruction.guard is None and is_pure(instruction) and all(writes[r] == 1 for r in results)
        for register in results:
            dims[register] = _NOTHING if simple else FULL
        if simple and results:
            candidates.append((results, sources))
    changed = True
    while changed:
        changed = False
        for results, sources in candidates:
            cta, thread = _NOTHING
            for source in sources:
                one = dims.get(source) or SPECIALS.get(source, FULL)
                cta, thread = cta or one[0], thread or one[1]
            for register in results:
                if dims[register] != (cta, thread):
                    dims[register] = (cta, thread)
                    changed = True
    return dims


def is_pure(instruction: Instruction) -> bool:
    """Whether its result is a function of its registers alone."""
    if instruction.opcode in ("addc", "subc", "madc") or "cc" in instruction.modifiers:
        return False  # the carry flag is between them
    return instruction.opcode in PURE or instruction.name.startswith("ld.param")


# --- control flow ---


def _labels(body: Sequence[Instruction | Label]) -> dict[str, int]:
    targets: dict[str, int] = {}
    for number, block in enumerate(_blocks(body)):
        targets |= {statement.name: number for statement in block if isinstance(statement, Label)}
    return targets


def _blocks(body: Sequence[Instruction | Label]) -> Iterator[list[Instruction | Label]]:
    """Basic blocks: labels begin one, and so do warp instructions, for which divergent threads must meet first."""
    block: list[Instruction | Label] = []
    for statement in body:
        begins = isinstance(statement, Label) or is_convergent(statement)
        if begins and any(isinstance(s, Instruction) for s in block):
            yield block
            block = []
        block.append(statement)
        if isinstance(statement, Instruction) and (statement.opcode in _JUMPS or is_barrier(statement)):
            yield block
            block = []
    if block:
        yield block


def is_convergent(instruction: Instruction) -> bool:
    """Whether the threads of a warp execute it together."""
    return (instruction.opcode in CONVERGENT and "sync" in instruction.modifiers) or is_warp_barrier(instruction)


def is_warp_barrier(instruction: Instruction) -> bool:
    """`bar.warp.sync`."""
    return instruction.opcode == "bar" and "warp" in instruction.modifiers


def is_barrier(instruction: Instruction) -> bool:
    """A barrier of a CTA."""
    return instruction.opcode in ("bar", "barrier") and not is_warp_barrier(instruction) and not refusal(instruction)


def _block(builder: Builder, statements: Sequence[Instruction | Label], targets: Mapping[str, int]) -> Block:
    block, group = Block(), MultiplyAdds(builder)
    for instruction in statements:
        if isinstance(instruction, Label):
            continue
        builder.instruction = instruction
        block.instructions.append(instruction)
        if is_convergent(instruction):
            block.convergence = _members(builder, instruction)
        if instruction.opcode in _JUMPS:
            block.leave = _jump(builder, instruction, targets)
        elif is_barrier(instruction):
            block.leave = _barrier(builder, instruction)
        else:
            operation = _operation(builder, instruction)
            if operation is None or group.add(instruction, operation):
                continue
            block.operations += group.take()
            if not group.add(instruction, operation):
                block.operations.append(operation)
    block.operations += group.take()
    return block


def _operation(builder: Builder, instruction: Instruction) -> Operation | None:
    reason = refusal(instruction)
    if reason:
        raise builder.unsupported(reason)
    operation = TABLE[instruction.opcode](builder, instruction)
    if operation is None or instruction.guard is None:
        return operation
    return guarded(operation, builder.read(instruction.guard.register, "pred"), negated=instruction.guard.negated)


def _members(builder: Builder, instruction: Instruction) -> int:
    if instruction.opcode in ("shfl", "vote", "match", "redux", "bar"):
        return builder.read(instruction.operands[-1], "u32")
    return builder.constant(0xFFFFFFFF, "u32")


def _guard(builder: Builder, instruction: Instruction) -> tuple[int | None, bool]:
    guard = instruction.guard
    return (builder.read(guard.register, "pred"), guard.negated) if guard else (None, False)


def _jump(builder: Builder, instruction: Instruction, targets: Mapping[str, int]) -> Leave:
    slot, negated = _guard(builder, instruction)
    target = -1
    if instruction.opcode == "bra":
        label = instruction.operands[0]
        if not isinstance(label, Symbol) or label.name not in targets:
            raise builder.unsupported("the label to branch to is not in this kernel")
        target = targets[label.name]
    return Leave(_JUMPS[instruction.opcode], instruction, slot, negated, target)


def _barrier(builder: Builder, instruction: Instruction) -> Leave:
    slot, negated = _guard(builder, instruction)
    numbers = [builder.read(operand, "u32") for operand in instruction.operands]
    if not numbers or "red" in instruction.modifiers:
        raise builder.unsupported("this form of barrier is not implemented")
    waits = "arrive" not in instruction.modifiers
    threads = numbers[1] if len(numbers) > 1 else None
    return Leave("barrier", instruction, slot, negated, -1, numbers[0], threads, waits)


def _repeats_on_memory(code: Code) -> bool:
    """Whether a loop reads with an atomic, volatile or ordered access, as spin waits do."""
    suspicious = [any(_may_wait(i) for i in block.instructions) for block in code.blocks]
    for number, block in enumerate(code.blocks):
        leave = block.leave
        if leave and leave.kind == "jump" and leave.target <= number and any(suspicious[leave.target : number + 1]):
            return True
    return False


def _may_wait(instruction: Instruction) -> bool:
    if instruction.opcode == "ld":
        return not {"volatile", "relaxed", "acquire"}.isdisjoint(instruction.modifiers)
    return instruction.opcode == "atom" and "shared" not in instruction.modifiers
