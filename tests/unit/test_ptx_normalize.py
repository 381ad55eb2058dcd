"""Normalizing PTX: golden texts that Triton wrote, and modules that must be refused."""

from pathlib import Path

import pytest

from coilpack.compiler.kernels.normalize import normalize_ptx
from coilpack.compiler.kernels.signature import Parameter
from coilpack.runtime.errors import CoilpackError, InputError, UnsupportedError

DATA = Path(__file__).parent / "data" / "ptx"

ARGUMENTS = {
    "add": (
        Parameter("x", "*fp32", 16),
        Parameter("y", "*fp32", 16),
        Parameter("out", "*fp32", 16),
        Parameter("n", "i32"),
    ),
    "scalars": (
        Parameter("out", "*fp32", 16),
        Parameter("small", "i32"),
        Parameter("large", "i64"),
        Parameter("scale", "fp32"),
        Parameter("half", "fp16"),
        Parameter("flag", "i1"),
    ),
    "descriptor": (
        Parameter("x", "*fp16", 16),
        Parameter("out", "*fp16", 16),
        Parameter("rows", "i32"),
        Parameter("columns", "i32", 16),
    ),
}


def triton_ptx(name: str) -> str:
    return (DATA / f"{name}.triton.ptx").read_text()


@pytest.mark.parametrize(("name", "target"), [("add", "sm_80"), ("scalars", "sm_90a")])
def test_golden(name, target):
    found = normalize_ptx(triton_ptx(name), f"{name}_dispatch_0", ARGUMENTS[name])
    assert found.text == (DATA / f"{name}.normalized.ptx").read_text()
    assert (found.kernel_name, found.version, found.target) == (f"{name}_dispatch_0", (8, 7), target)
    assert found.parameters == ARGUMENTS[name]


def test_nothing_of_the_build_machine_remains():
    raw = triton_ptx("add")
    assert "/build/model" in raw
    assert ".debug_info" in raw
    text = normalize_ptx(raw, "k", ARGUMENTS["add"]).text
    for trace in ("build", "kernels.py", ".loc", ".file", ".section", "//", "add_kernel", "$L__tmp"):
        assert trace not in text


def test_normalizing_twice_changes_nothing():
    once = normalize_ptx(triton_ptx("add"), "k", ARGUMENTS["add"])
    assert normalize_ptx(once.text, "k", ARGUMENTS["add"]) == once


def test_a_kernel_named_like_an_opcode_or_like_an_older_parameter():
    for name in ("add", "ld", "add_kernel_param_1"):
        text = normalize_ptx(triton_ptx("add"), name, ARGUMENTS["add"]).text
        assert f".entry {name}(" in text
        assert text.count("add.s64") == triton_ptx("add").count("add.s64")
        assert text.count(f"[{name}_param_1]") == triton_ptx("add").count("[add_kernel_param_1]") == 1


def test_scratch_that_is_read_is_refused_by_name_and_size():
    with pytest.raises(UnsupportedError, match=r"kernel 'tma' needs 128 bytes of global scratch"):
        normalize_ptx(triton_ptx("descriptor"), "tma", ARGUMENTS["descriptor"], scratch_bytes=128)
    with pytest.raises(UnsupportedError, match=r"kernel 'tma' needs some bytes of global scratch"):
        normalize_ptx(triton_ptx("descriptor"), "tma", ARGUMENTS["descriptor"])


@pytest.mark.parametrize(
    "arguments",
    [ARGUMENTS["add"][:-1], ARGUMENTS["add"] + (Parameter("extra", "i64"),) * 1, ARGUMENTS["add"] * 2],
    ids=["one less", "one more", "many more"],
)
def test_a_count_that_differs_from_the_signature(arguments):
    with pytest.raises(CoilpackError, match=r"6 parameters where its signature has|5 parameters where"):
        normalize_ptx(triton_ptx("add"), "k", arguments)


def test_a_width_that_differs_from_the_signature_names_the_argument():
    wrong = (*ARGUMENTS["add"][:3], Parameter("n", "i64"))
    with pytest.raises(CoilpackError, match=r"parameter 3 \(n: i64\) takes 8 bytes by the signature and 4 in the PTX"):
        normalize_ptx(triton_ptx("add"), "k", wrong)


@pytest.mark.parametrize("name", ["", "1x", "a-b", "_", "ä", "WARP_SZ", "a b"])
def test_names_that_ptx_does_not_allow(name):
    with pytest.raises(InputError, match="not a kernel name that PTX allows"):
        normalize_ptx(triton_ptx("add"), name, ARGUMENTS["add"])


def test_a_name_that_the_module_uses_already():
    raw = triton_ptx("add").replace(".visible", ".extern .shared .align 16 .b8 global_smem[];\n.visible", 1)
    with pytest.raises(InputError, match="another symbol of that name"):
        normalize_ptx(raw, "global_smem", ARGUMENTS["add"])


def test_modules_without_exactly_one_entry():
    raw = triton_ptx("add")
    with pytest.raises(CoilpackError, match="0 entries"):
        normalize_ptx(raw.replace(".entry", ".func"), "k", ARGUMENTS["add"])
    with pytest.raises(CoilpackError, match="2 entries"):
        normalize_ptx(raw + raw, "k", ARGUMENTS["add"])


def test_comment_marks_within_strings_stay():
    raw = triton_ptx("add").replace("\tret;", '\t.pragma "nounroll // /* kept";\n\tret;')
    assert '.pragma "nounroll // /* kept";' in normalize_ptx(raw, "k", ARGUMENTS["add"]).text


def test_a_kernel_without_parameters():
    ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f()\n{\nret;\n}\n"
    assert ".entry g()" in normalize_ptx(ptx, "g", ()).text
