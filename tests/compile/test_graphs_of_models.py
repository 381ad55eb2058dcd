"""Compiled models as graphs: each replay gives the bits of the kernels launched one by one."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import compile_in_process, export, write  # noqa: E402
from small_models import MODELS  # noqa: E402

from coilpack import runtime  # noqa: E402


@pytest.mark.parametrize("name", ["encoder_layer", "split_reduction", "attention_bool_mask_fp16"])
def test_replays_give_the_bits_of_direct_launches(name, device, tmp_path):
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    path = write(compile_in_process({"main": export(module, inputs)}), tmp_path / "model.coil")
    generator = np.random.default_rng(0)
    with runtime.open(path, device=device.name, graphs=False) as program, program.new_context(graphs=True) as context:
        for _ in range(3):  # the first call of the context launches one by one, too
            values = [
                generator.standard_normal(x.shape).astype(x.numpy().dtype) if torch.is_floating_point(x) else x.numpy()
                for x in inputs
            ]
            for direct, replayed in zip(_bits(program(*values)), _bits(context(*values)), strict=True):
                np.testing.assert_array_equal(direct, replayed)
        (executor,) = context._executors.values()
        assert executor.has_graph


def _bits(results) -> list[np.ndarray]:
    arrays = results if isinstance(results, tuple) else (results,)
    return [np.atleast_1d(array.numpy()).view(np.uint8) for array in arrays]
