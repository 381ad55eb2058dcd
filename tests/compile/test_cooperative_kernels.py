"""Reductions that are split over workgroups which wait for one another: Inductor's cooperative kernels."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import numpy as np
import torch
from in_process import compile_in_process, export, write
from torch._inductor import config

from coilpack import runtime
from coilpack.runtime.program import ir

pytestmark = pytest.mark.compiler


class Spread(torch.nn.Module):
    def forward(self, x):
        return x.sum() / x.std()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    with config.patch({"triton.cooperative_reductions": True, "triton.force_cooperative_reductions": True}):
        bundle = compile_in_process({"main": export(Spread(), (torch.zeros(1, 3000),))})
    target = bundle.program.targets[0]
    assert [kernel.cooperative for kernel in target.kernels] == [True]
    # A workspace for the parts, and a semaphore that must be zero at every call.
    assert [type(op) for op in target.functions[0].operations].count(ir.Fill) == 1
    return write(bundle, tmp_path_factory.mktemp("cooperative") / "m.coil")


@pytest.mark.parametrize("device", ["emulator", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_a_cooperative_reduction(path, device):
    generator = np.random.default_rng(0)
    with runtime.open(path, device=device) as program:
        for _ in range(4):  # once step by step, then as a graph
            x = (1 + generator.standard_normal((1, 3000))).astype(np.float32)
            expected = x.astype(np.float64).sum() / x.astype(np.float64).std(ddof=1)
            np.testing.assert_allclose(program(x).numpy(), expected, rtol=1e-5)
