"""Random models against torch.compile on the device: the same numbers from the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coilpack import runtime

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    pytest.importorskip("triton")
    return module


def test_a_seed_gives_the_numbers_that_torch_compile_gives_after_manual_seed(torch, device, tmp_path: Path) -> None:
    from coilpack.compiler.driver import CompileOptions, compile_package

    class Noisy(torch.nn.Module):
        def forward(self, x):
            noise = torch.rand(x.shape, device=x.device)
            dropped = torch.nn.functional.dropout(x, 0.3, training=True)
            return noise, dropped, torch.randn_like(x) + x, torch.randint(0, 100, x.shape, device=x.device)

    x = torch.randn(37, 100)
    torch.export.save(torch.export.export(Noisy(), (x,)), tmp_path / "noisy.pt2")
    options = CompileOptions(targets=(str(device.compute_capability),), image="ptx")
    compile_package({"main": tmp_path / "noisy.pt2"}, tmp_path / "noisy.coil", options)
    compiled = torch.compile(Noisy())
    with runtime.open(tmp_path / "noisy.coil", device=device.name) as program, torch.no_grad():
        for seed in (0, 11, 2**40 + 1, -5):
            torch.manual_seed(seed)
            expected = compiled(x.cuda())
            for got, want in zip(program(x.numpy(), seed=seed), expected, strict=True):
                np.testing.assert_allclose(got.numpy(), want.cpu().numpy(), rtol=1e-5, atol=1e-6)
