"""What capture makes of models: programs of kernels alone, and errors that name operation and source line."""

from __future__ import annotations

import inspect
import re

import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

import small_models as models  # noqa: E402
from in_process import compile_in_process, export  # noqa: E402

from coilpack.compiler.capture import choices  # noqa: E402
from coilpack.compiler.targets import TARGETS  # noqa: E402
from coilpack.runtime.errors import CoilpackError, UnsupportedError  # noqa: E402
from coilpack.runtime.executable import read_executable  # noqa: E402
from coilpack.runtime.program import ir  # noqa: E402


def _function(name: str) -> ir.Function:
    program = compile_in_process({"main": export(*models.MODELS[name]())}).program
    (target,) = program.targets
    return target.function("main")


def _operations(function: ir.Function, kind: type) -> list:
    return [operation for operation in function.operations if isinstance(operation, kind)]


def test_a_fused_expression_is_one_dispatch_with_an_output_of_its_own() -> None:
    function = _function("pointwise")
    (dispatch,) = _operations(function, ir.Dispatch)
    assert dispatch.grid == (1, 1, 1)
    (alloc,) = _operations(function, ir.Alloc)
    assert alloc.space is ir.AllocSpace.OUTPUT
    assert function.arena_nbytes == 0
    source, target = (p for p in dispatch.kernel.parameters if isinstance(p, ir.PointerParameter))
    assert (source.access, target.access) == (ir.Access.READ, ir.Access.WRITE)


def test_a_dispatch_says_which_line_of_the_model_it_comes_from_whatever_the_folder() -> None:
    (dispatch,) = _operations(_function("pointwise"), ir.Dispatch)
    name, line = dispatch.location.split(":")
    assert name == "small_models.py"
    assert "function(*args)" in inspect.getsource(models).splitlines()[int(line) - 1]


def test_kernels_are_named_after_function_ordinal_and_inductors_name() -> None:
    bundle = compile_in_process({"my$function": export(*models.MODELS["pointwise"]())})
    (kernel,) = bundle.program.targets[0].kernels
    assert kernel.export_name.startswith("my$function_dispatch_0_triton_poi_")


def test_tied_weights_are_one_storage() -> None:
    bundle = compile_in_process({"main": export(*models.MODELS["tied_weights"]())})
    assert [storage.nbytes for storage in bundle.program.storages] == [50 * 32 * 4]


def test_equal_weights_of_two_functions_are_one_storage() -> None:
    module, inputs = models.MODELS["layer_norm"]()
    programs = {"one": export(module, inputs), "two": export(module, inputs)}
    bundle = compile_in_process(programs)
    assert len(bundle.program.storages) == 2  # weight and bias


def test_a_matrix_product_with_its_epilogue_is_one_template_kernel() -> None:
    names = [d.kernel.export_name for d in _operations(_function("linear_bf16"), ir.Dispatch)]
    assert sum("triton_tem_" in name for name in names) == 2
    assert len(names) == 3  # two products with bias and GELU inside, one layer norm


def test_attention_is_one_kernel_and_layers_share_the_block_mask() -> None:
    two = torch.nn.Sequential(models.Encoder(), models.Encoder())
    program = compile_in_process({"main": export(two, (torch.randn(1, 24, 64),))}).program
    names = [d.kernel.export_name for d in _operations(program.targets[0].function("main"), ir.Dispatch)]
    assert sum("flex_attention" in name for name in names) == 2
    assert sum("ones" in name and "tem" not in name for name in names) == 1


def _large_attention() -> torch.export.ExportedProgram:
    attention = models.Lambda(torch.nn.functional.scaled_dot_product_attention)
    return export(attention, tuple(torch.randn(1, 2, 32, 80) for _ in range(3)))


def test_attention_takes_tiles_that_fit_the_target_at_once(capsys) -> None:
    compile_in_process({"main": _large_attention()})
    assert "smaller tiles" not in capsys.readouterr().out


def test_a_kernel_that_needs_too_much_is_compiled_with_smaller_tiles(monkeypatch, capsys) -> None:
    monkeypatch.setattr(choices, "flex_shared_bytes", lambda c, _dim, _size: c.block_m * c.num_stages * 600)
    bundle = compile_in_process({"main": _large_attention()})
    assert re.search(r"needs [\d,]+ bytes of shared memory per block, and sm_80 has 166,912", capsys.readouterr().out)
    (data,) = bundle.executables.values()
    assert max(export.shared_memory_bytes for export in read_executable(data).exports) <= 166_912


class Inverse(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.inv(x)


class Selection(torch.nn.Module):
    def forward(self, x):
        return x[x > 0]


@pytest.mark.parametrize(
    ("module", "dtype", "operation"),
    [
        (Inverse, torch.float32, "aten.linalg_inv_ex"),
        (Selection, torch.float32, "aten.index.Tensor"),
    ],
    ids=["library call", "unknown size"],
)
def test_what_cannot_be_lowered_is_named_with_its_source_line(module, dtype, operation) -> None:
    line = inspect.getsourcelines(module)[1] + 2
    with pytest.raises(UnsupportedError, match=rf"{operation}\S* at \S*test_capture.py:{line} "):
        compile_in_process({"main": export(module(), (torch.randn(8, 8, dtype=dtype),))})


def test_a_process_serves_one_target() -> None:
    from coilpack.compiler.capture.offline import target_device

    compile_in_process({"main": export(*models.MODELS["pointwise"]())})
    with pytest.raises(CoilpackError, match="needs a process of its own"), target_device(TARGETS["sm_90"]):
        pass


def test_capture_leaves_torch_as_it_was() -> None:
    before = torch.cuda.get_device_properties
    compile_in_process({"main": export(*models.MODELS["pointwise"]())})
    assert torch.cuda.get_device_properties is before
    assert torch.cuda.is_available() == bool(torch.cuda.device_count())
