"""Whole architectures at a tiny size, in the emulator, against torch in float64; `--slow` runs all of them."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")
pytest.importorskip("transformers", reason="needs the extra `samples`: transformers is not installed")

from architectures import ARCHITECTURES, build  # noqa: E402
from in_process import compile_in_process, export, write  # noqa: E402

from coilpack import runtime  # noqa: E402
from generate import Generator  # noqa: E402 (of samples/decoder, which architectures makes importable)

ALWAYS = ("resnet18",)  # beside the sample's decoder
ROWS = [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in ARCHITECTURES]


@pytest.mark.parametrize("name", ROWS)
def test_the_architecture_computes_what_torch_computes(name, tmp_path) -> None:
    architecture = build(name, "tiny")
    programs = {function: export(*built) for function, built in architecture.functions.items()}
    path = write(compile_in_process(programs), tmp_path / "model.coil")
    with runtime.open(path, device="emulator") as program:
        for call in architecture.calls:
            got = program(*call.inputs, function=call.function).numpy().astype(np.float64)
            (expected,) = call.expected
            assert got.shape == expected.shape
            assert np.linalg.norm(got - expected) <= architecture.tolerance * np.linalg.norm(expected)
        if architecture.tokens is not None:
            tokens = Generator(program).generate(architecture.prompts.tolist(), architecture.tokens.shape[1])
            np.testing.assert_array_equal(tokens, architecture.tokens)


def _continue_greedily(model, prompt: list[int], count: int) -> list[int]:
    """By torch in float32, over the whole sequence each time: without a cache."""
    tokens = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(count):
            following = model(tokens, use_cache=False).logits[:, -1:].argmax(-1)
            tokens = torch.cat([tokens, following], dim=1)
    return tokens[0, len(prompt) :].tolist()


def test_the_sample_decoder_continues_prompts_of_any_length_as_torch_does(tmp_path) -> None:
    import model  # of samples/decoder

    prompts = [list(b"Continue"), list(b"A prompt of thirty-two bytes now")]
    assert [len(prompt) for prompt in prompts] == [8, model.PROMPT]
    programs = {function: export(*getattr(model, function)()) for function in ("prefill", "decode")}
    path = write(compile_in_process(programs), tmp_path / "decoder.coil")
    decoder = model.decoder().model
    expected = [_continue_greedily(decoder, prompt, 4) for prompt in prompts]
    assert len({token for tokens in expected for token in tokens}) > 3, "tokens that are all the same show little"
    with runtime.open(path, device="emulator") as program:
        generator = Generator(program)
        assert generator.generate(prompts, 4).tolist() == expected
        # Again, with fewer and other prompts: what the cache holds from before is not seen.
        assert generator.generate(prompts[:1], 2).tolist() == [expected[0][:2]]
