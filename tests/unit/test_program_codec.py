"""The wire form: round trips, what is refused, and that the decoder knows the schema's fields."""

import struct
from importlib import resources

import pytest
from hypothesis import given
from program_samples import large_program, small_program
from program_strategies import programs, some_programs

from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.program import ir, wire
from coilpack.runtime.program.codec import decode_program, encode_program
from coilpack.runtime.program.expr import ExprKind
from coilpack.runtime.program.text import print_program
from coilpack.runtime.reflection import BaseType, Reflection
from coilpack.schemas.generated import program_def_generated as fb

_BASE_TYPES = {
    "u8": {BaseType.UBYTE, BaseType.UNION_TYPE, BaseType.BOOL},
    "u32": {BaseType.UINT},
    "u64": {BaseType.ULONG},
}
_BASE_TYPES |= {"i64": {BaseType.LONG}, "f64": {BaseType.DOUBLE}, "text": {BaseType.STRING}}
_BASE_TYPES["ref"] = {BaseType.VECTOR, BaseType.OBJECT, BaseType.UNION}


def test_decoder_fields_are_the_schema_s() -> None:
    binary = resources.files("coilpack.schemas.generated").joinpath("program_def.bfbs").read_bytes()
    tables = [item for item in Reflection(binary).objects if not item.is_struct]
    assert {item.name.rpartition(".")[2] for item in tables} == set(wire.FIELDS)
    for item in tables:
        fields = wire.FIELDS[item.name.rpartition(".")[2]]
        assert [field.name for field in item.fields] == list(fields), item.name
        assert [field.slot for field in item.fields] == list(range(len(fields))), item.name
        for field, kind in zip(item.fields, fields.values(), strict=True):
            assert field.type.base_type in _BASE_TYPES[kind], f"{item.name}.{field.name}"


def test_structs_and_codes_are_the_schema_s() -> None:
    binary = resources.files("coilpack.schemas.generated").joinpath("program_def.bfbs").read_bytes()
    structs = {item.name.rpartition(".")[2]: item for item in Reflection(binary).objects if item.is_struct}
    assert structs["Expr"].byte_size == wire.EXPR.size
    assert structs["Operand"].byte_size == wire.OPERAND.size
    assert structs["KernelParameter"].byte_size == wire.KERNEL_PARAMETER.size
    assert {d.name: d.code for d in DType} == {k: v for k, v in vars(fb.ElementType).items() if k in DType.__members__}
    assert fb.ElementType.complex128 == len(DType)
    for index, body in enumerate(wire.OPERATION_BODIES, 1):
        assert getattr(fb.OperationBody, body.__name__) == index
    assert {kind.name for kind in ExprKind} == {"ADD", "MUL", "FLOORDIV", "MOD", "MIN", "MAX"}
    assert (fb.ExprKind.Constant, fb.ExprKind.Symbol) == (wire.EXPR_CONSTANT, wire.EXPR_SYMBOL)
    assert [getattr(fb.ExprKind, n) for n in ("Add", "Mul", "FloorDiv", "Mod", "Min", "Max")] == [
        kind.value for kind in ExprKind
    ]
    assert [fb.OperandKind.Value, fb.OperandKind.Expression, fb.OperandKind.Float, fb.OperandKind.Null] == [1, 2, 3, 4]


@pytest.mark.parametrize("make", [small_program, lambda: large_program(20, 40)], ids=["small", "large"])
def test_round_trip(make) -> None:
    program = make()
    data = encode_program(program)
    again = decode_program(data)
    assert print_program(again) == print_program(program)
    assert encode_program(again) == data


@given(programs())
@some_programs
def test_round_trip_of_random_programs(program: ir.Program) -> None:
    data = encode_program(program)
    again = decode_program(data)
    assert print_program(again) == print_program(program)
    assert encode_program(again) == data


def test_same_bytes_for_equal_programs() -> None:
    assert encode_program(small_program()) == encode_program(small_program())


def test_numbered_names_are_not_stored() -> None:
    data = encode_program(small_program())
    assert b"scratch\0" in data
    assert b"arg0\0" not in data


def test_newer_version_is_refused_by_name() -> None:
    data = bytearray(encode_program(small_program()))
    at = _version_at(data)
    struct.pack_into("<I", data, at, 2)
    with pytest.raises(InvalidFileError, match=r"p\.fb: format_version: the format version is 2; .* up to 1\. Install"):
        decode_program(data, file="p.fb")


def test_newer_version_is_refused_before_what_only_it_has() -> None:
    data = bytearray(encode_program(small_program()))
    struct.pack_into("<I", data, _version_at(data), 7)
    root = struct.unpack_from("<I", data)[0]
    struct.pack_into("<I", data, root + 8, 0xFFFFFF)  # what the verifier would stumble over
    with pytest.raises(InvalidFileError, match="the format version is 7"):
        decode_program(data)


def test_version_zero_is_refused() -> None:
    data = bytearray(encode_program(small_program()))
    struct.pack_into("<I", data, _version_at(data), 0)
    with pytest.raises(InvalidFileError, match="format_version: it is 0; this reader knows 1"):
        decode_program(data)


def _version_at(data: bytearray) -> int:
    root = struct.unpack_from("<I", data)[0]
    vtable = root - struct.unpack_from("<i", data, root)[0]
    return root + struct.unpack_from("<H", data, vtable + 4)[0]


def test_invalid_program_is_not_written() -> None:
    program = small_program()
    broken = ir.Program("", program.signatures, program.storages, program.targets)
    with pytest.raises(InvalidFileError, match="producer: it is empty"):
        encode_program(broken)


def _object(program: ir.Program):
    return fb.ProgramT.InitFromPackedBuf(encode_program(program), 0)


def _pack(program) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(program.Pack(builder), file_identifier=b"CLP1")
    return bytes(builder.Output())


def _set(path: str, value):
    def change(program) -> None:
        *parents, last = path.split(".")
        thing = program
        for part in parents:
            thing = thing[int(part)] if part.isdigit() else getattr(thing, part)
        if last.isdigit():
            thing[int(last)] = value
        else:
            setattr(thing, last, value)

    return change


_F = "targets.0.functions.0"
_CASES = {
    "signature index": (_set(f"{_F}.signature", 9), r"functions\[0\]\.signature: signature 9 .* there are 3"),
    "kernel index": (
        _set(f"{_F}.operations.5.body.kernel", 7),
        r"targets\[0\]\.functions\[0\]\.operations\[5\]\.kernel: kernel 7 does not exist; there are 5",
    ),
    "alternative's kernel": (
        _set(f"{_F}.operations.5.body.alternatives.1.kernel", 5),
        r"operations\[5\]\.alternatives\[1\]\.kernel: kernel 5 does not exist; there are 5",
    ),
    "alternative's grid": (
        _set(f"{_F}.operations.5.body.alternatives.0.grid", [0, 0, 99]),
        r"operations\[5\]\.alternatives\[0\]\.grid: expression 99 does not exist",
    ),
    "alternative's grid length": (
        _set(f"{_F}.operations.5.body.alternatives.0.grid", []),
        r"operations\[5\]\.alternatives\[0\]\.grid: it has 0 sizes; it must have 3",
    ),
    "alternative of other parameters": (
        _set(f"{_F}.operations.5.body.alternatives.0.kernel", 1),
        "alternative 0: kernel 'größe_dispatch_0' has other parameters than",
    ),
    "value index": (
        _set(f"{_F}.operations.6.body.source", 40),
        r"operations\[6\]\.source: value 40 is not defined yet; there are 5",
    ),
    "use before definition": (
        _set(f"{_F}.operations.7.body.source", 5),
        r"operations\[7\]\.source: value 5 is not defined yet; there are 5",
    ),
    "storage index": (_set(f"{_F}.operations.0.body.storage", 2), r"\.storage: storage 2 does not exist"),
    "expression index": (_set(f"{_F}.operations.2.body.nbytes", 99), r"\.nbytes: expression 99 does not exist"),
    "grid length": (_set(f"{_F}.operations.5.body.grid", [0, 0]), r"\.grid: it has 2 sizes; it must have 3"),
    "operand kind": (_set(f"{_F}.operations.5.body.operands.0.kind", 5), r"kind is 5; known are 1 to 4"),
    "space": (_set(f"{_F}.operations.2.body.space", 0), r"\.space: its code is 0; known are 1, 2"),
    "element type": (
        _set("signatures.0.inputs.0.type.elementType", 18),
        r"signatures\[0\]\.inputs\[0\]\.type\.element_type: its code is 18",
    ),
    "operands not before": (
        _set("targets.0.functions.1.expressions.4.lhs", 4),
        r"functions\[1\]\.expressions\[4\]\.lhs: expression 4 does not exist; there are 4",
    ),
    "expression kind": (_set(f"{_F}.expressions.0.kind", 0), r"expressions\[0\]\.kind: its code is 0"),
    "parameter kind": (_set("targets.0.kernels.0.parameters.0.kind", 3), r"parameters\[0\]\.kind: its code is 3"),
    "reserved": (_set("targets.0.kernels.0.parameters.1.reserved", 1), r"parameters\[1\]\.reserved: it is 1"),
    "access": (_set("targets.0.kernels.0.parameters.1.access", 4), r"parameters\[1\]\.access: it is 4"),
    "scalar alignment": (_set("targets.0.kernels.0.parameters.3.alignment", 4), r"parameters\[3\]: a scalar has"),
    "symbol of a value with a dimension": (
        _set("signatures.2.symbols.1.dim", 1),
        r"signatures\[2\]\.symbols\[1\]\.dim: it is 1; it must be 0",
    ),
    "guard kind": (_set("signatures.2.guards.0.kind", 4), r"guards\[0\]\.kind: its code is 4; known are 1, 2, 3"),
    "guard operand": (_set("signatures.2.guards.1.rhs", 99), r"guards\[1\]\.rhs: expression 99 does not exist"),
    "integer's value": (_set("signatures.2.outputs.0.value", 99), r"outputs\[0\]\.value: expression 99 does not"),
    "initial storage": (_set("globals.1.initial", 2), r"globals\[1\]\.initial: storage 2 does not exist; there are 2"),
    "launch rule's length": (
        _set("targets.0.kernels.2.launchRule.grid", [0]),
        r"kernels\[2\]\.launch_rule\.grid: it has 1 sizes; it must have 3",
    ),
    "launch rule's symbol": (
        _set("targets.0.kernels.2.launchRule.expressions.0.value", 3),
        r"kernels\[2\]\.launch_rule\.expressions\[0\]\.value: symbol 3 does not exist; there are 3",
    ),
    "global index": (
        _set("targets.0.functions.2.operations.0.body.global_", 2),
        r"operations\[0\]\.global: global 2 does not exist; there are 2",
    ),
    "product's operand": (
        _set("targets.0.functions.2.operations.6.body.rhs", 9),
        r"operations\[6\]\.rhs: value 9 is not defined yet; there are 6",
    ),
    "product's addend": (
        _set("targets.0.functions.2.operations.8.body.addend", 9),
        r"operations\[8\]\.addend: value 9 is not defined yet; there are 7",
    ),
    "image kind": (_set("targets.0.images.0.kind", 3), r"images\[0\]\.kind: its code is 3"),
    "too few names": (_set(f"{_F}.valueNames", ["a", "b"]), r"\.value_names: name 2 does not exist; there are 2"),
    "too many names": (
        _set(f"{_F}.valueNames", list("abcdefgh")),
        r"functions\[0\]\.value_names: there are 8 names for 6 values",
    ),
}


@pytest.mark.parametrize("case", _CASES)
def test_refused(case: str) -> None:
    change, message = _CASES[case]
    program = _object(small_program())
    change(program)
    with pytest.raises(InvalidFileError, match=message):
        decode_program(_pack(program))


def test_shared_operands_are_refused() -> None:
    """A vector that many dispatches share would make a small file a large program."""
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    text = builder.CreateString("x")
    rows = 3000
    builder.StartVector(16, rows, 8)
    for _ in range(rows):
        fb.CreateOperand(builder, 0, 4)
    operands = builder.EndVector()
    builder.StartVector(4, 3, 4)
    for _ in range(3):
        builder.PrependUint32(0)
    grid = builder.EndVector()
    fb.DispatchStart(builder)
    fb.DispatchAddGrid(builder, grid)
    fb.DispatchAddOperands(builder, operands)
    body = fb.DispatchEnd(builder)
    operations = []
    for _ in range(1000):
        fb.OperationStart(builder)
        fb.OperationAddBodyType(builder, 4)
        fb.OperationAddBody(builder, body)
        operations.append(fb.OperationEnd(builder))

    def vector(items: list[int]) -> int:
        builder.StartVector(4, len(items), 4)
        for item in items:
            builder.PrependUOffsetTRelative(item)
        return builder.EndVector()

    operations_at = vector(operations)
    builder.StartVector(24, 1, 8)
    fb.CreateExpr(builder, 1, 0, 0, 1)
    expressions = builder.EndVector()
    fb.FunctionStart(builder)
    fb.FunctionAddExpressions(builder, expressions)
    fb.FunctionAddOperations(builder, operations_at)
    functions = vector([fb.FunctionEnd(builder)])
    fb.SignatureStart(builder)
    fb.SignatureAddName(builder, text)
    signatures = vector([fb.SignatureEnd(builder)])
    fb.KernelStart(builder)
    fb.KernelAddExportName(builder, text)
    kernels = vector([fb.KernelEnd(builder)])
    fb.TargetStart(builder)
    fb.TargetAddName(builder, text)
    fb.TargetAddKernels(builder, kernels)
    fb.TargetAddFunctions(builder, functions)
    targets = vector([fb.TargetEnd(builder)])
    fb.ProgramStart(builder)
    fb.ProgramAddFormatVersion(builder, 1)
    fb.ProgramAddProducer(builder, text)
    fb.ProgramAddSignatures(builder, signatures)
    fb.ProgramAddTargets(builder, targets)
    builder.Finish(fb.ProgramEnd(builder), file_identifier=b"CLP1")
    with pytest.raises(InvalidFileError, match="uses vectors or tables other than types twice"):
        decode_program(bytes(builder.Output()))


def test_growing_expression_is_refused() -> None:
    """Sixty doublings of one expression are a tree of 2**60 nodes."""
    program = _object(small_program())
    function = program.targets[0].functions[1]
    for _ in range(60):
        last = len(function.expressions) - 1
        function.expressions.append(fb.ExprT(0, last, last, 3))
    with pytest.raises(InvalidFileError, match="the limits are 1024 operands and 64 levels"):
        decode_program(_pack(program))
