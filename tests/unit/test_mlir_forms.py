"""Operations in their own forms are what iree-opt makes of them in generic form."""

import shutil
import subprocess
from pathlib import Path

import pytest
from mlir_comparison import canonical

from coilpack.compiler.mlir.parser import parse_module

_FILES = sorted(Path(__file__).parent.parent.glob("compile/mlir/*.mlir")) + sorted(
    Path(__file__).parent.glob("data/mlir/*.mlir")
)
_IREE_OPT = shutil.which("iree-opt")


@pytest.mark.skipif(_IREE_OPT is None, reason="iree-opt is not installed: `pip install iree-base-compiler==3.13.0`")
@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_a_file_is_its_generic_form(file):
    made = subprocess.run(
        [_IREE_OPT, "--mlir-print-op-generic", file], capture_output=True, text=True, check=True, timeout=60
    )
    own = parse_module(file.read_text("utf-8"), file=file.name)
    assert canonical(own) == canonical(parse_module(made.stdout, file=f"{file.name} in generic form"))
