"""Replacements of library calls in models whose sizes are known only when they are called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import compile_in_process, write  # noqa: E402
from small_models import Lambda  # noqa: E402

from coilpack import runtime  # noqa: E402

ANY = torch.export.Dim.AUTO


def _scattered(x, index, source):
    return x.scatter_reduce(0, index, source, "amax"), x.scatter_reduce(0, index, source, "mean")


def _rotated(x, frequency):
    turned = torch.view_as_complex(x.reshape(*x.shape[:2], 4, 2)) * torch.polar(torch.ones_like(frequency), frequency)
    return torch.view_as_real(turned).flatten(2)


# For each model, its inputs with `n` more in their first dimension, which is the dynamic one.
CASES = {
    "topk": (Lambda(lambda x: torch.topk(x.T, 3)), lambda n: (torch.randn(20 + n, 5),)),
    "scatter_reduce": (
        Lambda(_scattered),
        lambda n: (torch.randn(9 + n), torch.randint(0, 9, (12 + n,)), torch.randn(12 + n)),
    ),
    "transposed_convolution": (
        torch.nn.ConvTranspose2d(3, 4, 3, stride=2),
        lambda n: (torch.randn(2 + n, 3, 6, 7),),
    ),
    "rotary_embedding": (Lambda(_rotated), lambda n: (torch.randn(5 + n, 2, 8), torch.randn(5 + n, 1, 4))),
}


@pytest.mark.parametrize("name", CASES)
def test_a_replacement_holds_for_other_sizes(name, device, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, inputs = CASES[name]
    dynamic = tuple({0: ANY} for _ in inputs(0))
    with torch.no_grad():
        program = torch.export.export(
            module.eval(), inputs(0), dynamic_shapes=(dynamic,) if isinstance(module, Lambda) else dynamic
        )
    path = write(compile_in_process({"main": program}), tmp_path / "model.coil")
    with runtime.open(path, device=device.name) as opened:
        for more in (0, 3):
            values = inputs(more)
            with torch.no_grad():
                expected = module(*values)
            got = opened(*(v.numpy() for v in values))
            for one, want in zip(
                got if isinstance(got, tuple) else (got,),
                expected if isinstance(expected, tuple) else (expected,),
                strict=True,
            ):
                np.testing.assert_allclose(one.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
