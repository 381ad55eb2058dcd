"""Models whose sizes are known only at a call: one package, many sizes, against torch in double precision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

import small_models as models  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from in_process import compile_in_process, write  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.runtime.errors import InputError, UnsupportedError  # noqa: E402

SIZES = (4, 1, 0, 7, 16, 32)


@dataclass(frozen=True)
class Row:
    """A model, what is dynamic, and its inputs for a size; `example` is the size that it is exported with."""

    module: Callable[[], torch.nn.Module]
    shapes: tuple[Any, ...]
    inputs: Callable[[int], tuple[Any, ...]]
    sizes: tuple[int, ...] = SIZES
    example: int = 5
    saved: bool = field(default=False)  # the export goes through a file


def _rows(n: int, *shape: int) -> torch.Tensor:
    return torch.randn(n, *shape)


class _Resize(torch.nn.Module):
    """Two convolutions of stride 2 and their inverse: sizes are quotients, rounded up."""

    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.norm = torch.nn.GroupNorm(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = functional.silu(self.norm(self.down(x)))
        return functional.interpolate(small, scale_factor=2.0, mode="nearest")


_B = Dim("batch")
_N, _M = Dim("n"), Dim("m", min=0, max=100)
MODELS: dict[str, Row] = {
    "pointwise": Row(lambda: models.Lambda(lambda x: torch.tanh(x) * 2), ({0: _N},), lambda n: (_rows(n, 3),)),
    "two_sizes": Row(
        lambda: models.Lambda(lambda x, y: (torch.softmax(x @ y, -1), x.reshape(-1) + 1, x.mT.contiguous())),
        ({0: _N, 1: _M}, {0: _M, 1: 2 * _N}),
        lambda n: (_rows(n, 3 + n // 2), _rows(3 + n // 2, 2 * n)),
    ),
    "broadcast": Row(
        lambda: models.Lambda(lambda x, y: x[:, None] + y[None, :]),
        ({0: _N}, {0: _N + 1}),
        lambda n: (_rows(n), _rows(n + 1)),
    ),
    "concatenate": Row(
        lambda: models.Lambda(lambda x, y: torch.cat([x, y]) * x.shape[0]),
        ({0: Dim.AUTO}, {0: Dim.AUTO}),
        lambda n: (_rows(n, 4), _rows(2 * n + 1, 4)),
    ),
    "reductions": Row(
        lambda: models.Lambda(lambda x: (x.sum(), x.sum(0), x.mean(1), x.square().sum((0, 1), keepdim=True))),
        ({0: _N, 1: _M},),
        lambda n: (_rows(n, n + 3),),
        sizes=(4, 1, 0, 37, 64),
    ),
    "layer_norm": Row(lambda: torch.nn.LayerNorm(48), ({0: _B, 1: _N},), lambda n: (_rows(n, 7, 48),)),
    "linear": Row(
        lambda: torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.GELU(), torch.nn.Linear(48, 16)),
        ({0: _N},),
        lambda n: (_rows(n, 32),),
        saved=True,
    ),
    "embedding": Row(
        lambda: torch.nn.Embedding(10, 8), ({0: _B, 1: _N},), lambda n: (torch.randint(0, 10, (n, 2 * n + 1)),)
    ),
    "view": Row(
        lambda: models.Lambda(lambda x: (x.view(x.shape[0] // 4, 4, -1).sum(1), x[x.shape[0] // 2 :] + 1)),
        ({0: 4 * _N},),
        lambda n: (_rows(4 * n, 6),),
        sizes=(4, 7, 16),  # export itself excludes 0 and 1
    ),
    "integer": Row(
        lambda: models.Lambda(lambda x, n: (x * n, n + x.shape[0], x.new_full((3,), 1.0) * (n % 3))),
        ({0: _B}, Dim.DYNAMIC),
        lambda n: (_rows(n, 4), 3 * n + 2),
    ),
    "slices": Row(
        lambda: models.Lambda(lambda x, n: (x[:n].sum(0), x[n:] * 2)),
        ({0: _B}, Dim.DYNAMIC),
        lambda n: (_rows(n + 9, 4), n + 2),
        saved=True,
    ),
    "attention": Row(
        lambda: models.Encoder(),
        ({0: _B, 1: _N},),
        lambda n: (_rows(1 + n % 2, n, 64),),
        sizes=(4, 1, 130),
    ),
    "convolution": Row(_Resize, ({0: _B, 2: 2 * _N},), lambda n: (_rows(n, 2, 2 * n, 8),), sizes=(4, 3, 9)),
    "mask": Row(
        lambda: models.Lambda(lambda x: torch.where(torch.arange(x.shape[1]) < x.shape[0], x, 0.0).cumsum(1)),
        ({0: _N, 1: _M},),
        lambda n: (_rows(n, 5 + n),),
    ),
    "sort": Row(
        lambda: models.Lambda(lambda x: (*x.sort(-1), *x.topk(3, -1))),
        ({0: _N},),
        lambda n: (_rows(n, 9),),
        sizes=(4, 1),
    ),
    "returned_input": Row(
        lambda: models.Lambda(lambda x: (x, x[:, 1:], x.shape[0], None, x + 1)),
        ({0: _B},),
        lambda n: (_rows(n + 1, 4),),
    ),
    "no_operation": Row(
        lambda: models.Lambda(lambda x, n: (x, n * 2, x.shape[0] + 1)),
        ({0: _B}, Dim.DYNAMIC),
        lambda n: (_rows(n + 1, 4), 3 * n + 2),
    ),
    "integers_alone": Row(
        lambda: models.Lambda(lambda n: n * 2 + 1),
        (Dim.DYNAMIC,),
        lambda n: (n + 2,),
    ),
}


def _package(row: Row, path: Path) -> tuple[torch.nn.Module, Path]:
    """The model and its package."""
    torch.manual_seed(0)
    module = row.module().eval()
    with torch.no_grad():
        dynamic = {"args": row.shapes} if isinstance(module, models.Lambda) else row.shapes
        program = torch.export.export(module, row.inputs(row.example), dynamic_shapes=dynamic)
    if row.saved:
        torch.export.save(program, path / "model.pt2")
        program = torch.export.load(path / "model.pt2")
    return module, write(compile_in_process({"main": program}), path / "model.coil")


def _values(results: Any) -> list[Any]:
    return [r for r in (results if isinstance(results, tuple) else (results,)) if r is not None]


def _doubled(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and torch.is_floating_point(value) else value


@pytest.mark.parametrize("name", MODELS)
def test_one_package_computes_what_torch_computes_for_many_sizes(name: str, device, tmp_path: Path) -> None:
    row = MODELS[name]
    module, path = _package(row, tmp_path)
    exact = copy.deepcopy(module).double()
    with runtime.open(path, device=device.name) as program:
        for size in row.sizes:
            inputs = row.inputs(size)
            with torch.no_grad():
                expected = _values(exact(*map(_doubled, inputs)))
            got = _values(program(*[x.numpy() if isinstance(x, torch.Tensor) else x for x in inputs]))
            assert len(got) == len(expected)
            for actual, want in zip(got, expected, strict=True):
                if isinstance(want, int):
                    assert actual == want
                    continue
                assert actual.shape == tuple(want.shape), f"size {size}"
                np.testing.assert_allclose(actual.numpy(), want.numpy(), rtol=1e-4, atol=1e-5, err_msg=f"size {size}")


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):  # noqa: N803 (constants are written in capitals)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@torch.library.triton_op("test_dynamic::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    out, n = torch.empty_like(x), x.numel()
    torch.library.wrap_triton(scale_kernel)[lambda config: (triton.cdiv(n, config["BLOCK"]),)](x, out, n, factor)
    return out


def test_the_grid_of_a_users_kernel_follows_the_sizes(device, tmp_path: Path) -> None:
    row = Row(lambda: models.Lambda(lambda x: scale(x + 1, 2.5)), ({0: _N, 1: _M},), lambda n: (_rows(n, 3 * n + 1),))
    _, path = _package(row, tmp_path)
    with runtime.open(path, device=device.name) as program:
        for size in (4, 1, 0, 13):
            (x,) = row.inputs(size)
            np.testing.assert_allclose(program(x.numpy()).numpy(), ((x + 1) * 2.5).numpy(), rtol=1e-6)


class _Cache(torch.nn.Module):
    """Appends rows to a buffer at a position, and sums what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(1, 64, 8))

    def forward(self, x: torch.Tensor, position: int) -> torch.Tensor:
        count = x.shape[1]
        torch._check(position >= 0)
        torch._check(position + count <= 64)
        self.rows[:, position : position + count] = x
        return self.rows[:, : position + count].sum(1)


def test_a_buffer_is_updated_in_place_at_any_position(device, tmp_path: Path) -> None:
    row = Row(_Cache, ({1: Dim("count", max=64)}, Dim.DYNAMIC), lambda n: (_rows(1, n, 8), 3))
    module, path = _package(row, tmp_path)
    with runtime.open(path, device=device.name) as program:
        position = 0
        for count in (7, 1, 1, 30, 25):
            x = _rows(1, count, 8)
            np.testing.assert_allclose(program(x.numpy(), position).numpy(), module(x, position).numpy(), rtol=1e-5)
            position += count
        with pytest.raises(InputError, match="<= 64 must hold"):
            program(np.ones((1, 3, 8), np.float32), 62)
        function = program.signature("main")
        assert len(function.guards) == 1  # what the model itself demands


class _Folded(torch.nn.Module):
    """Rows whose width must be a multiple of 4, which is checked in the model and follows from it."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert x.shape[1] % 4 == 0
        return x.view(x.shape[0], -1, 4).sum(-1) + y


@pytest.mark.parametrize("saved", [False, True])
def test_a_call_that_breaks_a_condition_of_the_model_is_refused(saved: bool, tmp_path: Path) -> None:
    rows = Dim("rows", min=3, max=10)
    shapes = ({0: rows, 1: Dim.AUTO}, {0: rows})
    _, path = _package(Row(_Folded, shapes, lambda n: (_rows(n, 8), _rows(n, 1)), saved=saved), tmp_path)
    with runtime.open(path, device="emulator") as program:
        assert program(np.ones((4, 12), np.float32), np.ones((4, 1), np.float32)).shape == (4, 3)
        for x, y, message in (
            ((4, 10), (4, 1), r"argument 0 \('x'\).*dimension 1 .* is 10; it must be a multiple of 4"),
            ((2, 12), (2, 1), r"dimension 0 .* is 2; it must be 3 to 10"),
            ((11, 12), (11, 1), r"dimension 0 .* is 11; it must be 3 to 10"),
            ((4, 12), (5, 1), r"argument 1 \('y'\)"),
        ):
            with pytest.raises(InputError, match=message):
                program(np.ones(x, np.float32), np.ones(y, np.float32))


def test_an_integer_that_the_model_compares_with_a_size_must_equal_it(tmp_path: Path) -> None:
    row = Row(
        lambda: models.Lambda(lambda x, n: x.reshape(n, -1) * n), ({0: _N}, Dim.DYNAMIC), lambda n: (_rows(n, 4), n)
    )
    _, path = _package(row, tmp_path)
    with runtime.open(path, device="emulator") as program:
        x = np.ones((6, 4), np.float32)
        np.testing.assert_array_equal(program(x, 6).numpy(), 6 * x)
        with pytest.raises(InputError, match="argument 1"):
            program(x, 7)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x, r"output 0, of aten\.\S*upsample\S* at \S+\.py:\d+, has the shape"),
        (lambda x: x.cumsum(-1).flip(-1).cumsum(-1).sum((2, 3)), r"at \w+\.py:\d+: the size"),
    ],
    ids=["result", "intermediate"],
)
def test_a_size_that_no_package_computes_is_refused_with_its_line(function, message) -> None:
    resize = models.Lambda(lambda x: function(torch.nn.functional.interpolate(x, scale_factor=1.5)))
    program = torch.export.export(resize, (torch.randn(1, 1, 8, 6),), dynamic_shapes={"args": ({2: Dim.DYNAMIC},)})
    with pytest.raises(UnsupportedError, match=message):
        compile_in_process({"main": program})
