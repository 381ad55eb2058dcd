"""Instructions that are refused by name, and what to do about it."""

from __future__ import annotations

from collections.abc import Collection

from coilpack.runtime.devices.emulator.ptx import Instruction

_OLDER = "it needs an architecture newer than the emulator's; compile for sm_80"
_NEWER_OPCODES = {
    "wgmma": "warp-group matrix multiplication",
    "mbarrier": "a barrier object in shared memory",
    "setmaxnreg": "register reallocation",
    "tcgen05": "tensor memory",
    "clusterlaunchcontrol": "cluster launch control",
    "mapa": "memory of another CTA of a cluster",
    "getctarank": "memory of another CTA of a cluster",
    "elect": "election of a thread",
    "tensormap": "a tensor map",
    "multimem": "multicast memory",
    "griddepcontrol": "dependence on another grid",
}
_NEWER_MODIFIERS = {
    "bulk": "a bulk asynchronous copy",
    "cluster": "a cluster of CTAs",
    "shared::cluster": "memory of another CTA of a cluster",
    "mbarrier": "a barrier object in shared memory",
    "multicast": "multicast",
    "tensor": "a tensor memory copy",
}


def refusal_of(instruction: Instruction, known: Collection[str]) -> str:
    """Why an instruction is not executed; empty where it is."""
    opcode = instruction.opcode
    if opcode in _NEWER_OPCODES:
        return f"{instruction.name} ({_NEWER_OPCODES[opcode]}) is not emulated: {_OLDER}"
    for modifier in instruction.modifiers:
        if modifier in _NEWER_MODIFIERS:
            return f"{instruction.name} ({_NEWER_MODIFIERS[modifier]}) is not emulated: {_OLDER}"
    if opcode not in known:
        return f"the instruction {opcode} is not known to the emulator"
    return ""
