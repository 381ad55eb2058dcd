"""What instruction tables build operations with: typed slots for operands, and wrappers for masks and guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from coilpack.runtime.devices.emulator.code import DTYPES, FULL, Array, Code, Dims, Mask, Operation, RegisterInfo
from coilpack.runtime.devices.emulator.ptx import Immediate, Instruction, Negated, Operand, Register, Symbol
from coilpack.runtime.errors import UnsupportedError

if TYPE_CHECKING:
    from coilpack.runtime.devices.emulator.frame import Frame

CARRY = "%CC.CF"  # the flag that .cc instructions write and addc, subc and madc read
# Special registers and what they depend on.
SPECIALS: dict[str, Dims] = {
    **{f"%tid.{axis}": (False, True) for axis in "xyz"},
    **{f"%ctaid.{axis}": (True, False) for axis in "xyz"},
    **{f"%ntid.{axis}": (False, False) for axis in "xyz"},
    **{f"%nctaid.{axis}": (False, False) for axis in "xyz"},
    **dict.fromkeys(("%laneid", "%warpid"), (False, True)),
    **{f"%lanemask_{which}": (False, True) for which in ("eq", "lt", "le", "gt", "ge")},
    **dict.fromkeys(
        ("%nwarpid", "%gridid", "%dynamic_smem_size", "%total_smem_size", "%smid", "%nsmid"), (False, False)
    ),
    **dict.fromkeys(("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo"), (False, False)),
}


class Builder:
    """Builds one kernel's operations.

    Args:
        code: where slots and constants go.
        types: type of each declared register.
        dims: what each register's value depends on.
        read: names of the registers that some instruction reads.
        symbols: value of each variable's address that is known before a launch (shared, local, global).
        parameters: (offset, bytes) of each parameter.
    """

    def __init__(
        self,
        code: Code,
        types: Mapping[str, str],
        dims: Mapping[str, Dims],
        read: frozenset[str],
        symbols: Mapping[str, int],
        parameters: Mapping[str, tuple[int, int]],
    ) -> None:
        self.code = code
        self.dims, self.is_read = dims, read
        self.symbols, self.parameters = symbols, parameters
        self.instruction: Instruction
        self.types = {**types, CARRY: "pred"}
        self._registers: dict[str, int] = {}
        self._slots: dict[tuple[str, str], int] = {}
        self._constants: dict[tuple[bytes, str], int] = {}

    # --- slots ---

    def _new_slot(self) -> int:
        self.code.slot_count += 1
        return self.code.slot_count - 1

    def bits(self, name: str) -> int:
        """Width of a register in bits; 1 for a predicate."""
        type_ = self.types.get(name)
        if type_ is None:
            raise self.unsupported(f"the register {name.partition('#')[0]} is not declared")
        if type_ == "b128":
            raise self.unsupported("registers of 128 bits are not implemented")
        return (
            1
            if type_ == "pred"
            else int("".join(c for c in type_.partition("x")[0] if c.isdigit())) * (2 if type_.endswith("x2") else 1)
        )

    def _register(self, name: str) -> int:
        if name not in self._registers:
            info = RegisterInfo(self.bits(name), self.dims.get(name, FULL))
            if info.bits == 32 and info.dims == FULL:
                info.row = self.code.row_count
                self.code.row_count += 1
            self._registers[name] = len(self.code.registers)
            self.code.registers.append(info)
        return self._registers[name]

    def row(self, name: str) -> int:
        """The register's row in the array of those with a value for each thread; -1 if it is not there."""
        return -1 if name in SPECIALS and name not in self.types else self.code.registers[self._register(name)].row

    def _register_slot(self, name: str, kind: str) -> int:
        key = (name, kind)
        if key not in self._slots:
            register = self._register(name)
            self._slots[key] = self._new_slot()
            self.code.slots[self._slots[key]] = (register, kind)
        return self._slots[key]

    def constant(self, value: Any, kind: str) -> int:
        """The slot of a constant, given as a number or as an array of its packed values."""
        array = np.asarray(value, DTYPES[kind]).reshape(1, 1, -1) if "x" in kind else np.array([[value]], DTYPES[kind])
        key = (array.tobytes(), kind)
        if key not in self._constants:
            self._constants[key] = self._new_slot()
            self.code.constants[self._constants[key]] = array
        return self._constants[key]

    def read(self, operand: Operand, kind: str) -> int:
        """The slot of a source operand as `kind`; the low bits of a wider register."""
        if isinstance(operand, Register):
            if operand.name in SPECIALS and operand.name not in self.types:
                return self._special(operand.name, kind)
            return self._register_slot(operand.name, self._fit(operand.name, kind))
        if isinstance(operand, Immediate):
            return self.constant(_immediate(operand, kind), kind)
        if isinstance(operand, Symbol) and operand.name in self.symbols:
            return self.constant(self.symbols[operand.name] + operand.offset, kind)
        raise self.unsupported(f"the operand {operand} does not fit")

    def _fit(self, name: str, kind: str) -> str:
        have, want = self.bits(name), 1 if kind == "pred" else kind_bits(kind)
        if have < want or (have == 1) != (want == 1):
            raise self.unsupported(f"the register {name.partition('#')[0]} of {have} bits cannot be read as .{kind}")
        return kind

    def _special(self, name: str, kind: str) -> int:
        key = (name, kind)
        if key not in self._slots:
            self._slots[key] = self._new_slot()
            self.code.specials[self._slots[key]] = f"{name} {kind}"
        return self._slots[key]

    def write(self, operand: Operand, kind: str) -> int:
        """The slot of a destination for values of `kind`, widened to the register where that is wider."""
        if not isinstance(operand, Register) or operand.name == "_":
            raise self.unsupported(f"the destination {operand} is not a register")
        bits = self.bits(operand.name)
        if bits > kind_bits(kind) and kind[0] in "bus" and "x" not in kind:
            kind = f"{'s' if kind[0] == 's' else 'u'}{bits}"
        return self._register_slot(operand.name, self._fit(operand.name, kind))

    def is_full(self, operand: Operand) -> bool:
        """Whether a register has a value for each thread, so that writes to it heed the mask."""
        return not isinstance(operand, Register) or self.dims.get(operand.name, FULL) == FULL

    def predicate(self, operand: Operand) -> tuple[int, bool]:
        """Slot of a predicate operand, and whether it is negated."""
        if isinstance(operand, Negated):
            return self.read(operand.register, "pred"), True
        if isinstance(operand, Immediate):
            return self.constant(bool(operand.value), "pred"), False
        return self.read(operand, "pred"), False

    # --- operations ---

    def elementwise(self, target: Operand, kind: str, function: Callable[..., Any], sources: list[int]) -> Operation:
        """`target = function(*sources)` in each thread."""
        slot, full = self.write(target, kind), self.is_full(target)
        packed = "x" in kind

        def run(frame: Frame, mask: Mask) -> None:
            slots = frame.slots
            assign(slots[slot], function(*[slots[s] for s in sources]), mask if full else None, packed)

        return run

    def ufunc(self, target: Operand, kind: str, function: np.ufunc, sources: list[int]) -> Operation:
        """As `elementwise`, for a numpy function that may write its result in place."""
        slot, full, packed = self.write(target, kind), self.is_full(target), "x" in kind
        if len(sources) == 2:
            a, b = sources

            def run(frame: Frame, mask: Mask) -> None:
                slots = frame.slots
                if mask is None or not full:
                    function(slots[a], slots[b], out=slots[slot], casting="unsafe")
                else:
                    assign(slots[slot], function(slots[a], slots[b]), mask, packed)

            return run
        return self.elementwise(target, kind, function, sources)

    def unsupported(self, problem: str) -> UnsupportedError:
        """An error that names the instruction and where it stands."""
        i = self.instruction
        return UnsupportedError(f"kernel {self.code.name}, line {i.line}, column {i.column}: `{i.text}`: {problem}")


def kind_bits(kind: str) -> int:
    """Bits of a kind's values, all of them where it is packed."""
    if kind == "pred":
        return 1
    lanes = {"2": 2, "4": 4}[kind[-1]] if "x" in kind else 1
    return DTYPES[kind].itemsize * 8 * lanes


def _immediate(operand: Immediate, kind: str) -> Any:
    if kind == "pred":
        return bool(operand.value)
    dtype = DTYPES[kind]
    if operand.bits and (dtype.kind != "f" or "x" in kind):  # a float's bits as an integer
        # A decimal number is of the instruction's width.
        bits = np.array(operand.value, f"f{min(operand.bits, kind_bits(kind)) // 8}").tobytes()
        value: Any = int.from_bytes(bits, "little")
    else:
        value = operand.value
    if dtype.kind == "f" and "x" not in kind:
        if operand.bits:
            return value
        return np.array(int(value) % (1 << kind_bits(kind)), f"u{dtype.itemsize}").view(dtype)[()]
    raw = (int(value) % (1 << kind_bits(kind))).to_bytes(kind_bits(kind) // 8, "little")
    values = np.frombuffer(raw, dtype)
    return values if "x" in kind else values[0]


def assign(target: Array, values: Any, mask: Mask, packed: bool = False) -> None:
    """`target = values` in the threads of `mask`."""
    if mask is None:
        target[...] = values
    elif packed:
        np.copyto(target, values, where=mask[..., None], casting="unsafe")
    else:  # several times as fast as copyto
        values = np.asarray(values).astype(target.dtype, copy=False)
        np.putmask(target, mask, values if values.shape == target.shape else np.broadcast_to(values, target.shape))
