"""Kernels that keep partial results and semaphores in a workspace: zeroed before every launch, in graphs as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import compile_in_process, write  # noqa: E402
from small_models import Lambda  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.compiler.capture import host_graph  # noqa: E402
from coilpack.runtime.program import ir  # noqa: E402

_COOPERATIVE = {"triton.cooperative_reductions": True, "triton.force_cooperative_reductions": True}
# Inductor's settings, the model, its inputs for a size, and whether the size is dynamic.
CASES: dict[str, tuple[dict[str, Any], Callable[..., Any], Callable[[int], torch.Tensor], bool]] = {
    "split_scan": ({}, lambda x: x.cumsum(0), lambda n: torch.randn(3000 * n), False),
    "cooperative": (_COOPERATIVE, lambda x: (x.sum(), x.var(1)), lambda n: torch.randn(n, 5000), False),
    "cooperative_dynamic": (_COOPERATIVE, lambda x: x.sum(1), lambda n: torch.randn(n, 4000), True),
}


def _workspaces(function: ir.Function) -> list[ir.Value]:
    """The values that are filled with zeros, each of which the next launch takes."""
    filled = []
    for position, operation in enumerate(function.operations):
        if isinstance(operation, ir.Fill):
            assert operation.pattern == 0
            filled.append(operation.target)
            launches = (op for op in function.operations[position:] if isinstance(op, ir.Dispatch))
            assert operation.target in next(launches).operands
    return filled


@pytest.mark.parametrize("name", CASES)
def test_every_call_finds_its_workspaces_zeroed(name: str, device, tmp_path: Path, monkeypatch) -> None:
    settings, model, inputs, dynamic = CASES[name]
    monkeypatch.setattr(host_graph, "SETTINGS", {**host_graph.SETTINGS, **settings})
    shapes = {"args": ({0: torch.export.Dim("n")},)} if dynamic else None
    with torch.no_grad():
        program = torch.export.export(Lambda(model), (inputs(7),), dynamic_shapes=shapes)
    bundle = compile_in_process({"main": program})
    assert _workspaces(bundle.program.targets[0].functions[0])
    with runtime.open(write(bundle, tmp_path / "m.coil"), device=device.name) as opened:
        for size in (7, 3, 7, 7) if dynamic else (7, 7, 7):  # direct, then as a graph
            x = inputs(size)
            got, want = opened(x.numpy()), model(x.double())
            pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
            for result, expected in pairs:
                np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-4, atol=1e-3)
