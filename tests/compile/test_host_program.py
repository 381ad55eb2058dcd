"""Host programs read from modules that Inductor generated: recorded ones, and ones that are also captured."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from core_operations import OPERATIONS  # noqa: E402
from generated_modules import generate, operations  # noqa: E402
from in_process import TARGET, export  # noqa: E402
from inductor_kernels import KERNELS  # noqa: E402
from small_models import MODELS  # noqa: E402

from coilpack.compiler.capture.host_graph import dispatch  # noqa: E402
from coilpack.compiler.freezing.host_program import read_host_program  # noqa: E402
from coilpack.compiler.freezing.kernel_bundle import CompiledConfiguration  # noqa: E402
from coilpack.compiler.freezing.kernel_text import generated_kernel  # noqa: E402
from coilpack.compiler.standalone.generated_module import read_kernels  # noqa: E402

RECORDED = Path(__file__).parent / "data" / "generated"
ROWS = {**MODELS, **KERNELS, **OPERATIONS}
FEW = ("encoder_layer", "convolution", "constant", "split_reduction", "view_with_offset", "integer_matmul", "scalar")


# --- generated here, and captured ---


@pytest.mark.parametrize("name", FEW)
def test_a_module_does_what_was_captured_of_the_same_graph(name: str) -> None:
    generated = generate(export(*ROWS[name]()), TARGET)
    host = read_host_program(
        generated.source, generated.chosen, generated.placeholder_values, generated.constants, "module"
    )
    assert operations(host) == operations(generated.captured)
    assert any(dispatch.__name__ in kind for kind, *_ in operations(host))
    assert host.kernels.keys() == generated.captured.kernels.keys()


# --- recorded on a GPU ---


def _module(name: str) -> str:
    return (RECORDED / f"{name}.py.txt").read_text()


def _chosen(source: str, block: int = 64) -> dict[str, CompiledConfiguration]:
    """One configuration of each kernel, in which everything that a tuner chooses is `block`."""
    texts = read_kernels(source, "module").assigned
    kernels = {name: generated_kernel(text, "module") for name, text in texts.items()}
    return {
        name: CompiledConfiguration("", name, {n: block for n in k.constexprs if n not in k.constants}, 4, 2)
        for name, k in kernels.items()
    }


def _launches(host) -> list[tuple]:
    return [node.args for node in host.graph.find_nodes(op="call_function", target=dispatch)]


def test_a_recorded_transformer_is_read_whole() -> None:
    source = _module("two_layers")
    values = [torch.empty(1, dtype=torch.bfloat16, device="meta") for _ in range(25)]
    host = read_host_program(source, _chosen(source), values, {})
    launches = _launches(host)
    assert len(launches) == source.count(".run(")
    assert list(host.kernels) == list(dict.fromkeys(name for name, _, _ in launches))
    name, grid, operands = launches[1]
    assert name == "triton_tem_fused_addmm_native_layer_norm_t_view_1"
    assert grid == (96, 1, 1)
    assert {key: node.name for key, node in operands.items()} == {
        "in_ptr0": "arg1_1",
        "arg_A": "buf3",
        "arg_B": "arg0_1",
        "out_ptr0": "buf4",
    }
