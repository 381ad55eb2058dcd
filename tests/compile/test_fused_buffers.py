"""Kernels for IREE bring together no more buffers than it has bindings, where fusion is what would."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import compile_in_process, export, write, write_iree  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.runtime.errors import UnsupportedError  # noqa: E402
from coilpack.runtime.program import ir  # noqa: E402
from coilpack.schemas.wire import MAX_BINDINGS  # noqa: E402

INPUTS = 20


class Chain(torch.nn.Module):
    """Elementwise operations over more inputs than one kernel for IREE can take."""

    def forward(self, *xs: torch.Tensor) -> torch.Tensor:
        total = xs[0]
        for x in xs[1:]:
            total = torch.relu(total + x)
        return total


def _pointers(program: ir.Program) -> list[int]:
    return [sum(isinstance(p, ir.PointerParameter) for p in k.parameters) for k in program.targets[0].kernels]


def test_fusion_ends_where_bindings_do(device, tmp_path) -> None:
    inputs = tuple(torch.randn(64) for _ in range(INPUTS))
    exported = {"main": export(Chain(), inputs)}
    whole = compile_in_process(exported)
    assert _pointers(whole.program) == [INPUTS + 1]
    with pytest.raises(UnsupportedError, match=r"kernel 'main_dispatch_0_\w+' takes 21 pointers; .* at most 16"):
        write_iree(whole, tmp_path / "whole")
    assert not (tmp_path / "whole").exists()

    split = compile_in_process(exported, fused_buffers=MAX_BINDINGS)
    assert len(_pointers(split.program)) > 1
    assert max(_pointers(split.program)) <= MAX_BINDINGS
    write_iree(split, tmp_path / "split")
    with runtime.open(write(split, tmp_path / "split.coil"), device=device.name) as program:
        result = program(*(x.numpy() for x in inputs)).numpy()
    np.testing.assert_array_equal(result, Chain()(*inputs).numpy())
