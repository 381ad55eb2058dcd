"""Random models against torch.compile on the device: the same numbers from the same seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from coilpack import runtime

pytestmark = pytest.mark.gpu


# In a process of its own: compiling in this one for other tests leaves torch without its own CUDA devices.
_EXPECTED = """
import sys
import numpy as np
import torch

class Noisy(torch.nn.Module):
    def forward(self, x):
        noise = torch.rand(x.shape, device=x.device)
        dropped = torch.nn.functional.dropout(x, 0.3, training=True)
        return noise, dropped, torch.randn_like(x) + x, torch.randint(0, 100, x.shape, device=x.device)

torch.manual_seed(0)
x = torch.randn(37, 100)
torch.export.save(torch.export.export(Noisy(), (x,)), sys.argv[1] + "/noisy.pt2")
found = {"x": x.numpy()}
compiled = torch.compile(Noisy())
with torch.no_grad():
    for seed in map(int, sys.argv[2:]):
        torch.manual_seed(seed)
        for index, result in enumerate(compiled(x.cuda())):
            found[f"{seed} {index}"] = result.cpu().numpy()
np.savez(sys.argv[1] + "/expected.npz", **found)
"""
_SEEDS = (0, 11, 2**40 + 1, -5)


def test_a_seed_gives_the_numbers_that_torch_compile_gives_after_manual_seed(device, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda is None:
        pytest.skip("this torch has no CUDA")
    from coilpack.compiler.driver import CompileOptions, compile_package

    subprocess.run([sys.executable, "-c", _EXPECTED, tmp_path, *map(str, _SEEDS)], check=True)
    options = CompileOptions(targets=(str(device.compute_capability),), image="ptx")
    compile_package({"main": tmp_path / "noisy.pt2"}, tmp_path / "noisy.coil", options)
    expected = np.load(tmp_path / "expected.npz")
    with runtime.open(tmp_path / "noisy.coil", device=device.name) as program:
        for seed in _SEEDS:
            for index, got in enumerate(program(expected["x"], seed=seed)):
                np.testing.assert_allclose(got.numpy(), expected[f"{seed} {index}"], rtol=1e-5, atol=1e-6)
