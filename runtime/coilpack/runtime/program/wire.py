"""Facts of the wire form that the encoder and the decoder share and the schema does not hold."""

from __future__ import annotations

import struct
from typing import Final

from coilpack.runtime.program import ir

IDENTIFIER: Final = b"CLP1"
FORMAT_VERSION: Final = 1
"""What is written; a reader refuses greater ones."""

# Layouts of the structs, with their padding.
EXPR: Final = struct.Struct("<qIIB7x")
KERNEL_PARAMETER: Final = struct.Struct("<BBBBI")
OPERAND: Final = struct.Struct("<QB7x")
GUARD: Final = struct.Struct("<IIB3x")
DOUBLE: Final = struct.Struct("<d")
UINT64: Final = struct.Struct("<Q")

# Codes of the enums that have no counterpart in the IR.
EXPR_CONSTANT: Final = 1
EXPR_SYMBOL: Final = 2
PARAMETER_POINTER: Final = 1
PARAMETER_SCALAR: Final = 2
OPERAND_VALUE: Final = 1
OPERAND_EXPRESSION: Final = 2
OPERAND_FLOAT: Final = 3
OPERAND_NULL: Final = 4

OPERATION_BODIES: Final[tuple[type[ir.Operation], ...]] = (
    ir.Parameter,
    ir.Alloc,
    ir.View,
    ir.Dispatch,
    ir.Copy,
    ir.Fill,
    ir.Return,
    ir.GetGlobal,
    ir.RandomSeeds,
    ir.Matmul,
)
"""The members of the union `OperationBody`, in its order from 1 on."""

FIELDS: Final[dict[str, dict[str, str]]] = {
    "TensorType": {"element_type": "u8", "shape": "ref", "strides": "ref"},
    "Storage": {"name": "text", "nbytes": "u64"},
    "Global": {"name": "text", "nbytes": "u64", "has_initial": "u8", "initial": "u32"},
    "Symbol": {"name": "text", "input": "u32", "dim": "u32", "minimum": "i64", "maximum": "i64", "is_value": "u8"},
    "Argument": {"name": "text", "type": "ref", "is_integer": "u8", "value": "u32"},
    "Signature": {
        "name": "text",
        "expressions": "ref",
        "symbols": "ref",
        "inputs": "ref",
        "outputs": "ref",
        "guards": "ref",
        "random": "u8",
    },
    "LaunchRule": {"expressions": "ref", "grid": "ref"},
    "Kernel": {
        "export_name": "text",
        "parameters": "ref",
        "cooperative": "u8",
        "launch_rule": "ref",
        "source": "text",
        "configuration": "text",
    },
    "Parameter": {"storage": "u32", "byte_offset": "u64", "type": "ref"},
    "Alloc": {"space": "u8", "offset": "u32", "nbytes": "u32", "type": "ref"},
    "View": {"source": "u32", "offset": "u32", "type": "ref"},
    "Alternative": {"kernel": "u32", "grid": "ref"},
    "Dispatch": {"kernel": "u32", "grid": "ref", "operands": "ref", "alternatives": "ref"},
    "Copy": {"source": "u32", "target": "u32"},
    "Fill": {"target": "u32", "pattern": "u64"},
    "Return": {"values": "ref"},
    "GetGlobal": {"global": "u32", "byte_offset": "u64", "type": "ref"},
    "RandomSeeds": {"type": "ref", "philox_offset": "u64"},
    "Matmul": {
        "target": "u32",
        "lhs": "u32",
        "rhs": "u32",
        "has_addend": "u8",
        "addend": "u32",
        "alpha": "f64",
        "beta": "f64",
        "tf32": "u8",
    },
    "Operation": {"body_type": "u8", "body": "ref", "location": "text"},
    "Function": {
        "signature": "u32",
        "expressions": "ref",
        "operations": "ref",
        "arena_nbytes": "u32",
        "value_names": "ref",
    },
    "Image": {"kind": "u8", "entry": "text"},
    "Target": {"name": "text", "images": "ref", "kernels": "ref", "functions": "ref"},
    "Program": {
        "format_version": "u32",
        "producer": "text",
        "storages": "ref",
        "signatures": "ref",
        "targets": "ref",
        "globals": "ref",
    },
}
"""The fields of each table by slot, and how the decoder reads them: a number of that width, an offset to something
(`ref`), or a string. A test compares them with the schema."""

LAUNCH_SYMBOL: Final = "p"
"""What the symbols of a launch rule start with; the index of the parameter follows."""


def launch_symbols(kernel_parameters: int) -> list[str]:
    """The symbols that a launch rule may have: one for each parameter, in order."""
    return [f"{LAUNCH_SYMBOL}{index}" for index in range(kernel_parameters)]


def default_names(arguments: int, results: int) -> list[str]:
    """The names of values that a file does not name."""
    return [f"arg{index}" for index in range(arguments)] + [str(index) for index in range(results)]
