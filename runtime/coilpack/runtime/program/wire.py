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
)
"""The members of the union `OperationBody`, in its order from 1 on."""

FIELDS: Final[dict[str, dict[str, str]]] = {
    "TensorType": {"element_type": "u8", "shape": "ref", "strides": "ref"},
    "Storage": {"name": "text", "nbytes": "u64"},
    "Symbol": {"name": "text", "input": "u32", "dim": "u32", "minimum": "i64", "maximum": "i64"},
    "Argument": {"name": "text", "type": "ref"},
    "Signature": {"name": "text", "expressions": "ref", "symbols": "ref", "inputs": "ref", "outputs": "ref"},
    "Kernel": {"export_name": "text", "parameters": "ref"},
    "Parameter": {"storage": "u32", "byte_offset": "u64", "type": "ref"},
    "Alloc": {"space": "u8", "offset": "u32", "nbytes": "u32", "type": "ref"},
    "View": {"source": "u32", "offset": "u32", "type": "ref"},
    "Dispatch": {"kernel": "u32", "grid": "ref", "operands": "ref"},
    "Copy": {"source": "u32", "target": "u32"},
    "Fill": {"target": "u32", "pattern": "u64"},
    "Return": {"values": "ref"},
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
    "Program": {"format_version": "u32", "producer": "text", "storages": "ref", "signatures": "ref", "targets": "ref"},
}
"""The fields of each table by slot, and how the decoder reads them: a number of that width, an offset to something
(`ref`), or a string. A test compares them with the schema."""


def default_names(arguments: int, results: int) -> list[str]:
    """The names of values that a file does not name."""
    return [f"arg{index}" for index in range(arguments)] + [str(index) for index in range(results)]
