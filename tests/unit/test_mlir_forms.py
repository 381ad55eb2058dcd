"""Operations in their own forms are what iree-opt makes of them in generic form."""

import shutil
import subprocess
from pathlib import Path

import pytest
from mlir_comparison import canonical

from coilpack.compiler.mlir.parser import parse_module
from coilpack.compiler.mlir.text.operations import FORMS

_DATA = Path(__file__).parent / "data" / "mlir"
_FORMS = _DATA / "forms.mlir"
_CORPUS = sorted(Path(__file__).parent.parent.glob("compile/mlir/*.mlir"))
_IREE_OPT = shutil.which("iree-opt")


def _parsed(file):
    return parse_module(file.read_text("utf-8"), file=file.name)


def test_the_forms_are_those_that_iree_printed():
    assert canonical(_parsed(_FORMS)) == canonical(_parsed(_DATA / "forms.generic.mlir"))


def test_there_is_a_corpus():
    assert len(_CORPUS) > 10


@pytest.mark.skipif(_IREE_OPT is None, reason="iree-opt is not installed: `pip install iree-base-compiler==3.13.0`")
@pytest.mark.parametrize("file", [*_CORPUS, _FORMS], ids=lambda file: file.stem)
def test_a_file_is_its_generic_form(file):
    command = [_IREE_OPT, "--mlir-print-op-generic", "--allow-unregistered-dialect", file]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert canonical(_parsed(file)) == canonical(parse_module(made.stdout, file=f"{file.name} in generic form"))


def test_every_form_of_the_grammar_is_among_the_forms():
    """Each rule for operations of a kind is used by the file above, so none is left without a comparison."""
    text = _FORMS.read_text("utf-8")
    unused = {
        kind
        for kind in set(FORMS.values())
        if not any(f"{name} " in text or f"{name}(" in text for name, of in FORMS.items() if of == kind)
    }
    assert unused == set()
