# ruff: noqa: N803 (constants of Triton kernels are written in capitals)
"""Writes the module that Inductor generates for a small model, compiled for sm_80 without a GPU.

    python tests/compile/data/record_module.py dynamic > tests/compile/data/generated_module_torch_2_13.txt

The model has a fused pointwise kernel, two reductions, a product by a Triton template, and a kernel of a user's own
with None and equal-to-1 arguments.
"""

from __future__ import annotations

import contextlib
import sys

import torch
import triton
import triton.language as tl
from torch._inductor import config
from torch._inductor.exc import InductorError
from torch._inductor.graph import GraphLowering
from torch.library import triton_op, wrap_triton

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.choices import StaticChoices
from coilpack.compiler.capture.functionalise import functionalise
from coilpack.compiler.capture.offline import target_device
from coilpack.compiler.capture.retrace import retrace
from coilpack.compiler.targets import TARGETS

BLOCK = 128


@triton.jit
def affine(x, out, BLOCK: tl.constexpr, n, scale, bias, step, NEGATE: tl.constexpr, shift):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) * step
    value = tl.load(x + at, mask=at < n) * scale + shift
    if bias is not None:
        value += tl.load(bias + at, mask=at < n)
    if NEGATE:
        value = -value
    tl.store(out + at, value, mask=at < n)


@triton_op("coilpack_record::affine", mutates_args={})
def affine_op(x: torch.Tensor, scale: float) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    wrap_triton(affine)[grid](x, out, BLOCK, x.numel(), scale, None, 1, NEGATE=True, shift=7)
    return out


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, x.shape[1:]) @ weight)
        return (affine_op(y, 0.1) + y).softmax(-1) + x.sum(0, keepdim=True)


def record(dynamic: bool) -> str:
    """The module's source."""
    found: list[str] = []
    GraphLowering.save_output_code = found.append
    target = TARGETS["sm_80"]
    settings = {
        "max_autotune_gemm": True,
        "max_autotune_gemm_backends": "TRITON",
        "autotune_fallback_to_aten": False,
        "compile_threads": 1,
        "force_disable_caches": True,
        "shape_padding": False,  # it, and folding, would run kernels
        "joint_graph_constant_folding": False,
    }
    rows = {0: torch.export.Dim("rows", min=2, max=4096)} if dynamic else None
    program = torch.export.export(
        Model(), (torch.randn(50, 64), torch.randn(64, 64)), dynamic_shapes={"x": rows, "weight": None}
    )
    choices = StaticChoices(target, target.shared_memory_per_block_optin)
    with (
        target_device(target),
        torch.no_grad(),
        config.patch(**settings),
        compat.V.set_choices_handler(choices),
    ):
        retraced = retrace(functionalise(program, "main"), results=[0], fuse_attention=False)
        with compat.V.set_fake_mode(retraced.fake_mode), retraced.fake_mode, contextlib.suppress(InductorError):
            # It ends by loading the module, which would ask for a GPU; the source is made by then.
            compat.joint_graph_passes(retraced.graph_module)
            compat.compile_fx_inner(retraced.graph_module, retraced.inputs, is_inference=True)
    return found[-1]


if __name__ == "__main__":
    sys.stdout.write(record(sys.argv[1] == "dynamic"))
