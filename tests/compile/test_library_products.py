"""Products of matrices left to the library: each operation of the table, against torch in higher precision."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

import small_models as models  # noqa: E402
from in_process import compile_in_process, export, write  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.runtime.errors import UnsupportedError  # noqa: E402
from coilpack.runtime.program import ir  # noqa: E402


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


F64, BF16 = torch.float64, torch.bfloat16
# Name: the model, its inputs, relative error allowed, and how many products it has.
ROWS = {
    "mm": (lambda x, y: x @ y.T, (_random(5, 7), _random(3, 7)), 1e-6, 1),
    "mm_f64": (lambda x, y: torch.sin(x) @ y, (_random(5, 7, dtype=F64), _random(7, 3, dtype=F64)), 1e-14, 1),
    "bmm_bf16": (torch.bmm, (_random(2, 5, 8, dtype=BF16), _random(2, 8, 3, dtype=BF16)), 1e-2, 1),
    "addmm": (
        lambda b, x, y: torch.addmm(b, x, y, alpha=3, beta=0.25),
        (_random(4), _random(5, 7), _random(7, 4)),
        1e-6,
        1,
    ),
    "addmm_column": (torch.addmm, (_random(5, 1), _random(5, 7), _random(7, 4)), 1e-6, 1),
    "addmm_without": (
        lambda b, x, y: torch.addmm(b, x, y, beta=0),
        (torch.full((4,), float("nan")), _random(5, 7), _random(7, 4)),
        1e-6,
        1,
    ),
    "baddbmm": (
        lambda b, x, y: torch.baddbmm(b, x, y, beta=2),
        (_random(2, 1, 4), _random(2, 5, 7), _random(2, 7, 4)),
        1e-6,
        1,
    ),
    "two in a row": (
        lambda x, y, z: torch.relu(x @ y) @ z + 1,
        (_random(5, 7), _random(7, 6), _random(6, 2)),
        1e-6,
        2,
    ),
}


def _products(function: ir.Function) -> list[ir.Matmul]:
    return [operation for operation in function.operations if isinstance(operation, ir.Matmul)]


@pytest.mark.parametrize("name", ROWS)
def test_products_are_the_librarys(name, device, tmp_path) -> None:
    function, inputs, tolerance, count = ROWS[name]
    bundle = compile_in_process({"main": export(models.Lambda(function), inputs)}, matmul="cublaslt")
    assert len(_products(bundle.program.targets[0].function("main"))) == count
    assert not any("_tem_" in kernel.export_name for kernel in bundle.program.targets[0].kernels)
    want = function(*(x.double() for x in inputs)).numpy()
    with runtime.open(write(bundle, tmp_path / "model.coil"), device=device.name) as program:
        for _ in range(2):
            result = program(*(x if x.dtype == BF16 else x.numpy() for x in inputs))
            got = result.numpy().astype(np.float64)
            assert np.linalg.norm(got - want) / np.linalg.norm(want) < tolerance


def test_products_take_any_batch(device, tmp_path) -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    linear = torch.nn.Linear(8, 4)
    with torch.no_grad():
        program = torch.export.export(linear, (torch.zeros(5, 8),), dynamic_shapes=({0: rows},))
    bundle = compile_in_process({"main": program}, matmul="cublaslt")
    assert len(_products(bundle.program.targets[0].function("main"))) == 1
    with runtime.open(write(bundle, tmp_path / "model.coil"), device=device.name) as opened:
        for count in (2, 7, 64):
            x = _random(count, 8)
            want = (x.double() @ linear.weight.double().T + linear.bias.double()).detach().numpy()
            np.testing.assert_allclose(opened(x.numpy()).numpy(), want, rtol=1e-4, atol=1e-5)


def test_templates_stay_for_what_the_library_does_not_multiply() -> None:
    inputs = (torch.ones(32, 64, dtype=torch.int8), torch.ones(64, 32, dtype=torch.int8))
    program = compile_in_process({"main": export(models.Lambda(torch._int_mm), inputs)}, matmul="cublaslt").program
    assert not _products(program.targets[0].function("main"))
    assert any("_tem_" in kernel.export_name for kernel in program.targets[0].kernels)


def test_tf32_is_said_where_it_is_allowed() -> None:
    program = export(models.Lambda(torch.mm), (_random(4, 4), _random(4, 4)))
    try:
        (allowed,) = _products(_function(program, float32_matmul_precision="high"))
    finally:
        torch.set_float32_matmul_precision("highest")
    (exact,) = _products(_function(program))
    assert (allowed.tf32, exact.tf32) == (True, False)


def _function(program: torch.export.ExportedProgram, **options: str) -> ir.Function:
    return compile_in_process({"main": program}, matmul="cublaslt", **options).program.targets[0].function("main")


class Decomposed(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.qr(x)[0]


def test_other_library_calls_are_still_refused_by_name() -> None:
    line = inspect.getsourcelines(Decomposed)[1] + 2
    with pytest.raises(UnsupportedError, match=rf"linalg_qr\S* at \S*test_library_products.py:{line} "):
        _function(export(Decomposed(), (_random(4, 4),)))
