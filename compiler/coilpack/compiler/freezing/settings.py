"""Inductor's settings for freezing: what a mode asks for, what the user may change, what must stay as it is."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

from coilpack.compiler import _torch_compat as compat
from coilpack.runtime.errors import InputError

Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
"""As `torch.compile` names them. CUDA graphs are the runtime's, so two and two of them are the same here."""

MODES: tuple[Mode, ...] = get_args(Mode)

_HOST_PROGRAM = "the host program is read from Inductor's module, and takes no other form"
_ARENA = "memory is planned over the whole function instead"
_SIZES = "sizes are checked by the runtime, before anything is launched"
_CACHE = "the kernels that were measured are taken from it"
_FAKE = "it would measure tensors that are not there while the model is traced"

# What freezing relies on: the value of each setting, and why it cannot be another.
_FIXED: Mapping[str, tuple[object, str]] = {
    "fx_wrapper": (False, _HOST_PROGRAM),
    "cpp_wrapper": (False, _HOST_PROGRAM),
    "graph_partition": (False, _HOST_PROGRAM),
    "triton.multi_kernel": (0, _HOST_PROGRAM),
    "triton.unique_kernel_names": (True, "kernels are found by their names"),
    "triton.debug_sync_graph": (False, _HOST_PROGRAM),
    "triton.debug_sync_kernel": (False, _HOST_PROGRAM),
    "profiler_mark_wrapper_call": (False, _HOST_PROGRAM),
    "generate_intermediate_hooks": (False, _HOST_PROGRAM),
    "memory_planning": (False, _ARENA),
    "allow_buffer_reuse": (False, _ARENA),
    "size_asserts": (False, _SIZES),
    "alignment_asserts": (False, _SIZES),
    "scalar_asserts": (False, _SIZES),
    "nan_asserts": (False, "packages do not stop where a number is not one"),
    "assert_indirect_indexing": (False, "packages have no assertions on the device"),
    "triton.cudagraphs": (False, "the runtime makes its own graphs"),
    "freezing": (False, "weights stay outside of the kernels"),
    "fx_graph_cache": (True, _CACHE),
    "force_disable_caches": (False, _CACHE),
    "unsafe_skip_cache_dynamic_shape_guards": (False, "a package must know for which sizes its code holds"),
    "bundle_triton_into_fx_graph_cache": (True, _CACHE),
    "use_static_cuda_launcher": (True, _CACHE),
    "use_static_triton_launcher": (True, _CACHE),  # the same setting under its newer name
    "static_launch_user_defined_triton_kernels": (True, _CACHE),
    "shape_padding": (False, _FAKE),
    "fallback_random": (False, "random numbers come from kernels"),
}

# What is otherwise than Inductor has it, unless the mode or the user says something else.
_USUAL: Mapping[str, object] = {
    "max_autotune_gemm": True,  # without templates a library would be called
    "max_autotune_gemm_backends": "TRITON",
    "max_autotune_conv_backends": "TRITON",
    "autotune_fallback_to_aten": False,
    "joint_graph_constant_folding": False,  # would run kernels while the model is traced
    "max_autotune_report_choices_stats": False,
    "autotune_num_choices_displayed": 0,
}


def inductor_settings(mode: Mode, options: Mapping[str, object]) -> dict[str, object]:
    """The settings of `torch._inductor.config` to freeze with.

    Args:
        mode: how much is tuned.
        options: what the user sets, by name: `{"max_autotune_gemm_backends": "TRITON,ATEN"}`.

    Raises:
        InputError: there is no such mode or setting, or freezing needs another value of it.
    """
    if mode not in MODES:
        raise InputError(f"there is no mode {mode!r}; there are {', '.join(MODES)}")
    known = compat.inductor_setting_names()
    for name, value in options.items():
        _check(name, value, known)
    fixed = {name: value for name, (value, _) in _FIXED.items()}
    settings = {**_USUAL, **compat.mode_settings(mode), **options, **fixed}
    return {name: value for name, value in settings.items() if name in known}  # some are newer than this torch


def _check(name: str, value: object, known: Collection[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else "see torch/_inductor/config.py for their names"
        raise InputError(f"Inductor has no setting {name!r}; {hint}")
    if name in _FIXED and value != _FIXED[name][0]:
        needed, reason = _FIXED[name]
        raise InputError(f"freezing needs {name}={needed!r} of Inductor, not {value!r}: {reason}; leave it out")


def asks_for_libraries(settings: Mapping[str, Any]) -> bool:
    """Whether products of matrices may become calls of a library under these settings."""
    return "ATEN" in str(settings["max_autotune_gemm_backends"]).upper()
