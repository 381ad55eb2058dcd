"""The sample's encoder in the emulator: real weights, one sentence of 16 tokens, against torch in float32."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import compile_in_process, export, write  # noqa: E402
from test_minilm_encoder import encoder_module  # noqa: E402, F401 (a fixture)

from coilpack import runtime  # noqa: E402

IDS = [101, 1037, 4937, 7719, 2648, 1012, 1037, 18401, 2003, 3564, 1999, 1996, 3871, 102, 0, 0]
MASK = [1] * 14 + [0] * 2


@pytest.mark.parametrize(("dtype", "least"), [("float16", 0.999), ("float32", 0.9999)])
def test_the_emulator_embeds_as_torch_does(encoder_module, tmp_path, dtype, least):  # noqa: F811
    tokens = (torch.tensor([IDS]), torch.tensor([MASK]))
    programs = {"main": export(encoder_module.load(getattr(torch, dtype)), tokens)}
    path = write(compile_in_process(programs), tmp_path / "minilm.coil")
    with runtime.open(path, device="emulator") as program:
        found = program(*(x.numpy() for x in tokens)).numpy()
    with torch.no_grad():
        expected = encoder_module.load(torch.float32)(*tokens).numpy()
    assert found.shape == expected.shape == (1, 384)
    assert float(np.sum(found * expected)) >= least
