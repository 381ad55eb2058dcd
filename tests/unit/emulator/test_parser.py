"""PTX text to the model, and what is said of text that is none."""

from __future__ import annotations

import pytest

from coilpack.runtime.devices.emulator.device import Emulator
from coilpack.runtime.devices.emulator.parser import parse_ptx
from coilpack.runtime.devices.emulator.ptx import (
    Address,
    Guard,
    Immediate,
    Instruction,
    Label,
    Register,
    Symbol,
    Vector,
)
from coilpack.runtime.errors import InvalidFileError, NotFoundError, TargetMismatchError, UnsupportedError

HEADER = ".version 8.7\n.target sm_80\n.address_size 64\n"


def entry(body: str, parameters: str = "", module: str = ""):
    return parse_ptx(f"{HEADER}{module}\n.visible .entry k({parameters})\n{{\n{body}\n}}\n").entries["k"]


def instructions(body: str) -> list[Instruction]:
    return [s for s in entry(body).body if isinstance(s, Instruction)]


def test_header_and_variables():
    module = parse_ptx(
        HEADER
        + """
        // a comment /* of one line
        .file 1 "/somewhere/x.py"
        .extern .shared .align 16 .b8 pool[];
        .visible .global .align 8 .b8 table[2][3] = {{1, 2, 3}, {4, 5, 0x6}};
        .const .f32 scale = 0f3F800000;
        .extern .func (.param .b32 out) vprintf (.param .b64 a, .param .b64 b);
        /* and one
           of several */
        """
    )
    assert (module.version, module.target) == ("8.7", "sm_80")
    pool, table, scale = module.variables
    assert (pool.space, pool.count, pool.alignment, pool.external) == ("shared", 0, 16, True)
    assert [item.value for item in table.initial] == [1, 2, 3, 4, 5, 6]
    assert table.count == 6
    assert scale.initial == (Immediate(1.0, 32),)
    assert scale.alignment == 4


def test_parameters_and_bounds():
    text = ".param .u64 .ptr .global .align 1 p0, .param .f32 p1, .param .align 4 .b8 p2[12]"
    module = parse_ptx(f"{HEADER}.entry k({text})\n.reqntid 64, 2\n.minnctapersm 1\n{{ ret; }}")
    k = module.entries["k"]
    assert [(p.name, p.type, p.count, p.alignment) for p in k.parameters] == [
        ("p0", "u64", 1, 8),
        ("p1", "f32", 1, 4),
        ("p2", "b8", 12, 4),
    ]
    assert (k.max_threads, k.required_threads) == (128, (64, 2, 1))


def test_operands():
    first, second, third, fourth = instructions(
        """
        @!%p1 ld.global.L1::evict_last.L2::cache_hint.v2.b32 { %r1, %r9 }, [ %rd1 + -8 ], %rd2;
        mov.b32 %r2, 0fBF800000;
        add.f64 %fd1, %fd1, -2.5e-1;
        st.shared.b32 [pool+0x10], %r1;
        """
    )
    assert first.guard == Guard(Register("%p1"), negated=True)
    assert first.name == "ld.global.L1::evict_last.L2::cache_hint.v2.b32"
    assert first.operands[0] == Vector((Register("%r1"), Register("%r9")))
    assert first.operands[1] == Address(Register("%rd1"), -8)
    assert second.operands[1] == Immediate(-1.0, 32)
    assert third.operands[2] == Immediate(-0.25, 64)
    assert fourth.operands[0] == Address(Symbol("pool"), 16)


def test_registers_are_numbered():
    assert entry(".reg .b32 %r<3>; .reg .pred %p, %q; ret;").registers == {
        "%r0": "b32",
        "%r1": "b32",
        "%r2": "b32",
        "%p": "pred",
        "%q": "pred",
    }


def test_blocks_have_names_of_their_own():
    k = entry("{ .reg .b32 %t; L: mov.u32 %t, 1; bra L; } { .reg .b64 %t; mov.u64 %t, 1; } mov.u32 %t, 2;")
    assert k.registers == {"%t#1": "b32", "%t#2": "b64"}
    names = [s.operands[0].name for s in k.body if isinstance(s, Instruction) and s.opcode == "mov"]
    assert names == ["%t#1", "%t#2", "%t"]
    assert Label("L#1") in k.body


def test_debug_information_is_skipped():
    k = entry('.loc 1 20 30\nmov.u32 %r1, 1; .loc 1 2 3, function_name $L, inlined_at 1 2 3\nret; .pragma "nounroll";')
    assert len(k.body) == 2
    module = parse_ptx(
        HEADER + ".entry k() { ret; }\n.section .debug_abbrev\n{\n.b8 1\n.b8 17\n}\n.section .debug_str { .b8 0 }"
    )
    assert list(module.entries) == ["k"]


@pytest.mark.parametrize(
    ("body", "where", "problem"),
    [
        ("add.s32 %r1 %r2;", "line 7, column 13", "'%r2' is not PTX: `add.s32 %r1 %r2;`"),
        ("  mov.u32 %r1, ?;", "line 7, column 16", "`mov.u32 %r1, ?;`"),
        ("ret", "line 8, column 1", "`}`"),
    ],
)
def test_errors_say_where(body, where, problem):
    with pytest.raises(InvalidFileError) as caught:
        parse_ptx(f"{HEADER}\n.visible .entry k()\n{{\n{body}\n}}\n", file="x.ptx")
    assert str(caught.value).startswith(f"x.ptx: {where}: ")
    assert problem in str(caught.value)


def test_two_entries_of_one_name():
    with pytest.raises(InvalidFileError, match="the entry 'k' is defined twice"):
        parse_ptx(f"{HEADER}.entry k() {{ ret; }} .entry k() {{ ret; }}")


def test_blocks_nested_without_end():
    with pytest.raises(InvalidFileError, match="nested more than 64 deep"):
        entry("{" * 3000 + "ret;" + "}" * 3000)


def load(body: str, registers: str = ".reg .pred %p; .reg .b32 %r<9>; .reg .b64 %d<9>;"):
    start = f"{HEADER}.extern .shared .align 16 .b8 pool[];\n.visible .entry k(.param .u64 p0)\n"
    text = f"{start}{{\n{registers}\n{body}\nret;\n}}"
    return Emulator(capacity=1 << 32).load_module(memoryview(text.encode()), "x.ptx")


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("wgmma.fence.sync.aligned;", "warp-group matrix multiplication"),
        ("mbarrier.init.shared.b64 [pool], 1;", "barrier object"),
        ("setmaxnreg.inc.sync.aligned.u32 240;", "register reallocation"),
        ("cp.async.bulk.commit_group;", "bulk asynchronous copy"),
        ("barrier.cluster.arrive;", "cluster of CTAs"),
        ("elect.sync %r1|%p, -1;", "election"),
        ("griddepcontrol.wait;", "another grid"),
    ],
)
def test_newer_instructions_are_refused_by_name(instruction, reason):
    name = instruction.split()[0].rstrip(";")
    with pytest.raises(UnsupportedError) as caught:
        load(instruction)
    message = str(caught.value)
    assert message.startswith(f"kernel k, line 8, column 1: `{instruction}`: {name} (")
    assert reason in message
    assert message.endswith("compile for sm_80")


@pytest.mark.parametrize(
    ("instruction", "problem"),
    [
        ("frobnicate.u32 %r1, %r2;", "the instruction frobnicate is not known"),
        ("mov.u32 %r1, %nowhere;", "the register %nowhere is not declared"),
        ("bra NOWHERE;", "the label to branch to is not in this kernel"),
        ("ld.global.u64 %d1, [nowhere];", "the variable nowhere is not declared"),
        ("ld.param.u64 %d1, [p0+4];", "reads 8 bytes at offset 4 of a parameter of 8 bytes"),
        ("add.u64 %r1, %d1, %d2;", "cannot be read as .u64"),
        ("call.uni foo, (p0);", "a call of the function foo is not implemented"),
    ],
)
def test_unknown_things_are_refused_where_they_stand(instruction, problem):
    with pytest.raises(UnsupportedError) as caught:
        load(instruction)
    assert str(caught.value).startswith(f"kernel k, line 8, column 1: `{instruction}`: ")
    assert problem in str(caught.value)


def test_modules():
    module = load("mov.u32 %r1, 1;")
    assert module.kernel("k").parameter_layout == ((0, 8),)
    with pytest.raises(NotFoundError, match=r"x.ptx has no kernel named 'kk'; nearest: 'k'"):
        module.kernel("kk")
    with pytest.raises(TargetMismatchError, match="it is a cubin, and the emulator executes PTX"):
        Emulator(capacity=1 << 32).load_module(memoryview(b"\x7fELF" + bytes(60)), "x.cubin")
