"""Conditions, and what a package cannot follow: data-dependent sizes, loops, outputs that are no tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import compile_in_process, export, write  # noqa: E402
from small_models import Lambda  # noqa: E402
from torch._higher_order_ops import map as map_rows  # noqa: E402
from torch._higher_order_ops import while_loop  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.runtime.errors import UnsupportedError  # noqa: E402


def _nested(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor):
    def inner(x):
        return torch.cond(second, lambda x: (x + 1, x.sum()), lambda x: (x - 1, x.prod()), (x,))

    return torch.cond(first, inner, lambda x: (x.cos(), x.mean()), (x,))


def test_a_condition_on_data_selects_between_its_branches(device, tmp_path: Path) -> None:
    x = torch.rand(4, 3)
    program = export(Lambda(_nested), (x, torch.tensor(True), torch.tensor(False)))
    with runtime.open(write(compile_in_process({"main": program}), tmp_path / "m.coil"), device=device.name) as opened:
        for first in (True, False):
            for second in (True, False):
                flags = torch.tensor(first), torch.tensor(second)
                for got, want in zip(opened(x.numpy(), *(f.numpy() for f in flags)), _nested(x, *flags), strict=True):
                    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)


def test_a_condition_on_a_size_holds_for_every_size(device, tmp_path: Path) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.shape[0] > 6, lambda x: x * 2, lambda x: x + 10, (x,))

    with torch.no_grad():
        dynamic = {"args": ({0: torch.export.Dim("n")},)}
        program = torch.export.export(Lambda(model), (torch.rand(4, 3),), dynamic_shapes=dynamic)
    with runtime.open(write(compile_in_process({"main": program}), tmp_path / "m.coil"), device=device.name) as opened:
        for size in (4, 6, 7, 20, 1):
            x = torch.rand(size, 3)
            np.testing.assert_allclose(opened(x.numpy()).numpy(), (x * 2 if size > 6 else x + 10).numpy(), rtol=1e-6)


def test_a_map_is_unrolled_and_a_nested_no_grad_vanishes(device, tmp_path: Path) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            doubled = x * 2
        return map_rows(lambda row, y: row.cumsum(0) + y[0], doubled, x)

    x = torch.rand(3, 5)
    expected = (2 * x).cumsum(1) + x[0]
    bundle = compile_in_process({"main": export(Lambda(model), (x,))})
    with runtime.open(write(bundle, tmp_path / "m.coil"), device=device.name) as opened:
        np.testing.assert_allclose(opened(x.numpy()).numpy(), expected.numpy(), rtol=1e-5)


_REFUSED = {
    "while_loop": (
        lambda x: while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x)),
        r"while_loop at .*\.py:\d+ cannot be lowered: a package has no loops",
    ),
    "nonzero": (lambda x: x.nonzero(), r"aten.nonzero.default at .*\.py:\d+ gives a result whose size"),
    "mask": (lambda x: x[x > 0], r"aten.index.Tensor at .*\.py:\d+ gives a result whose size"),
    "item": (lambda x: x * x.sum().item(), r"aten.item.default at .*\.py:\d+ takes a number out of a tensor"),
    "float": (lambda x: (x + 1, 2.5), r"output 1 of 'main' is 2.5; a model returns tensors and integers only"),
    "text": (lambda x: (x + 1, "a"), r"output 1 of 'main' is 'a'"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_a_package_cannot_follow_is_refused_by_name_and_line(name: str) -> None:
    function, message = _REFUSED[name]
    program = export(Lambda(function), (torch.rand(4),))
    with pytest.raises(UnsupportedError, match=message) as raised:
        compile_in_process({"main": program})
    assert "\n" not in str(raised.value)
