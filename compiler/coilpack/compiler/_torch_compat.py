"""Every private name of torch that the compiler relies on, checked when this module is imported.

The rest of the compiler imports them from here alone. Which hooks are needed and why was found by taking each away in
turn; torch 2.11 to 2.14 have the same ones.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch

from coilpack.runtime.errors import CoilpackError

OLDEST, NEWEST = (2, 11), (2, 14)


def _version() -> tuple[int, int]:
    major, minor = torch.__version__.split("+")[0].split(".")[:2]
    return int(major), int(minor)


if not OLDEST <= _version() <= NEWEST:
    raise CoilpackError(
        f"torch {torch.__version__} is outside the supported range "
        f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}; install one of those, as `pip install torch==2.13.0`"
    )

try:
    import torch._export.utils as export_utils
    import torch._inductor.config as inductor_config
    from torch._decomp import get_decompositions
    from torch._dispatch.python import enable_python_dispatcher
    from torch._dynamo.device_interface import (
        DeviceInterface,
        get_interface_for_device,
        register_interface_for_device,
    )
    from torch._dynamo.repro import after_aot
    from torch._dynamo.utils import counters
    from torch._guards import TracingContext, tracing
    from torch._higher_order_ops.flex_attention import flex_attention as flex_attention_op
    from torch._higher_order_ops.triton_kernel_wrap import (
        kernel_side_table,
        tracing_triton_hopifier_singleton,
        triton_kernel_wrapper_functional,
        triton_kernel_wrapper_mutation,
    )
    from torch._inductor import list_mode_options, select_algorithm
    from torch._inductor.choices import InductorChoices
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.codegen import wrapper_fxir
    from torch._inductor.codegen.common import (
        FileBackedGraphModule,
        device_codegens,
        init_backend_registration,
    )
    from torch._inductor.codegen.cuda_combined_scheduling import CUDACombinedScheduling
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen, WrapperLine
    from torch._inductor.compile_fx import _recursive_joint_graph_passes, compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.exc import InductorError
    from torch._inductor.fx_passes import reinplace
    from torch._inductor.ir import FlexibleLayout, RandomSeeds, ReinterpretView, ShapeAsConstantBuffer, TensorBox
    from torch._inductor.kernel import mm_plus_mm
    from torch._inductor.kernel.flex import flex_attention as flex_attention_lowering
    from torch._inductor.lowering import lowerings
    from torch._inductor.output_code import CompiledFxGraph
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir
    from torch._inductor.runtime.compile_tasks import _set_triton_ptxas_path
    from torch._inductor.runtime.runtime_utils import triton_hash_to_path_key
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner, GridExpr
    from torch._inductor.select_algorithm import (
        AlgorithmSelectorCache,
        TritonTemplateCaller,
        TritonTemplateKernel,
        get_algorithm_selector_cache,
    )
    from torch._inductor.triton_bundler import (
        StaticallyLaunchedAutotuner,
        TritonBundle,
        TritonKernelArtifact,
        TritonKernelArtifacts,
    )
    from torch._inductor.utils import LineContext
    from torch._inductor.virtualized import V
    from torch._ops import OperatorBase
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.export.pt2_archive import _package as pt2_package
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.nn.attention.flex_attention import _create_empty_block_mask
    from torch.utils import _triton as triton_support
    from torch.utils._pytree import tree_map
    from torch.utils._sympy.functions import (
        CeilToInt,
        FloorDiv,
        FloorToInt,
        IntTrueDiv,
        Max,
        Min,
        Mod,
        PythonMod,
        Where,
    )

    FxConverter = wrapper_fxir.FxConverter
    WrapperFxCodegen = wrapper_fxir.WrapperFxCodegen
    _REQUIRED = [
        (FxConverter, "_generate_triton_call"),
        (FxConverter, "_import_kernel"),
        (FxConverter, "_lookup_args"),
        (FxConverter, "_generate_sym_node"),
        (FxConverter, "_generate_symbolic_call_arg"),
        (FxConverter, "_generate_graph_inputs"),
        (FxConverter, "_generate_buffer"),
        (FxConverter, "_get_buffer"),
        (FxConverter, "_record_allocation"),
        (WrapperFxCodegen, "_generate"),
        (WrapperFxCodegen, "make_zero_buffer"),
        (InductorChoices, "_finalize_template_configs"),
        (InductorChoices, "can_fuse_vertical"),
        (InductorChoices, "get_conv_configs"),
        (InductorChoices, "get_flex_attention_fwd_configs"),
        (AlgorithmSelectorCache, "add_preprocessing_fn"),
        (CUDACombinedScheduling, "codegen_template"),
        (CUDACombinedScheduling, "generate_kernel_code_from_nodes"),
        (TritonTemplateCaller, "get_make_kernel_render"),
        (TritonTemplateKernel, "additional_call_args_and_types"),
        (CachingAutotuner, "_create_compile_meta"),
        (CachingAutotuner, "_create_compile_options"),
        (GridExpr, "from_meta"),
        (PyCodeCache, "modules"),
        (flex_attention_lowering, "_use_flex_decoding"),
        (reinplace, "compute_overlapping_tensors"),
        (mm_plus_mm, "tuned_mm_plus_mm"),
        (tracing_triton_hopifier_singleton, "call_HOP"),
        (pt2_package, "PT2ArchiveReader"),
        (export_utils, "_materialize_cpp_cia_ops"),
        (OperatorBase, "py_impl"),
        (after_aot, "save_graph_repro"),
        (inductor_config, "_config"),
        (torch.export.ExportedProgram, "_get_flat_args_with_check"),
    ]
    _REQUIRED_FIELDS = [
        (CompiledFxGraph, ("cache_key", "source_code", "_triton_bundle")),
        (TritonBundle, ("kernel_artifacts", "static_autotuners")),
        (TritonKernelArtifacts, ("kernel_hash", "artifacts")),
        (TritonKernelArtifact, ("filename", "payload")),
        (StaticallyLaunchedAutotuner, ("kernel_name", "kernel")),
    ]
    for owner, name in _REQUIRED:
        inspect.getattr_static(owner, name)
    for record, names in _REQUIRED_FIELDS:
        if missing := set(names) - {field.name for field in dataclasses.fields(record)}:
            raise AttributeError(f"{record.__name__} has no field {min(missing)}")
except (ImportError, AttributeError) as error:
    raise CoilpackError(
        f"torch {torch.__version__} lacks a name that the compiler needs ({error}); "
        "supported are the released builds 2.11 to 2.14"
    ) from error

__all__ = [
    "CUDACombinedScheduling",
    "CachingAutotuner",
    "CeilToInt",
    "CompiledFxGraph",
    "DeviceInterface",
    "FakeTensor",
    "FakeTensorMode",
    "FileBackedGraphModule",
    "FloorDiv",
    "FloorToInt",
    "FxConverter",
    "GridExpr",
    "InductorChoices",
    "InductorError",
    "IntTrueDiv",
    "LineContext",
    "Max",
    "Min",
    "Mod",
    "OperatorBase",
    "PyCodeCache",
    "PythonMod",
    "PythonWrapperCodegen",
    "RandomSeeds",
    "ReinterpretView",
    "ShapeAsConstantBuffer",
    "TensorBox",
    "TritonBundle",
    "TritonTemplateCaller",
    "V",
    "Where",
    "WrapperFxCodegen",
    "WrapperLine",
    "after_aot",
    "call_triton_kernel",
    "choices_independent_of_sizes",
    "compile_fx_inner",
    "condition_with_examples",
    "contiguous_strides",
    "cuda_device_guard",
    "decompositions_of",
    "device_codegens",
    "empty_block_mask",
    "enable_python_dispatcher",
    "export_utils",
    "flat_inputs",
    "flex_attention_op",
    "forget_missing_triton",
    "free_unbacked_symbols",
    "get_algorithm_selector_cache",
    "get_interface_for_device",
    "graph_cache_hits",
    "inductor_config",
    "inductor_setting_names",
    "init_backend_registration",
    "is_unbacked",
    "joint_graph_passes",
    "kernel_side_table",
    "lowerings",
    "make_fx",
    "memory_identity",
    "mode_settings",
    "pt2_package",
    "quiet_tuning",
    "register_interface_for_device",
    "select_decomp_table",
    "size_hint",
    "sums_of_products_apart",
    "symbolic_size",
    "tracing_in",
    "tracing_triton_hopifier_singleton",
    "tree_map",
    "triton_cache_dir",
    "triton_hash_to_path_key",
    "triton_kernel_wrapper_functional",
    "triton_kernel_wrapper_mutation",
    "unreplaced",
    "use_ptxas_of_torch",
    "with_tensors",
]

empty_block_mask = _create_empty_block_mask
contiguous_strides = FlexibleLayout.contiguous_strides
joint_graph_passes = _recursive_joint_graph_passes


def memory_identity(tensor: torch.Tensor) -> int:
    """A number that (fake) tensors have in common if they view one storage, as long as one of them lives."""
    reference: Any = StorageWeakRef  # torch does not annotate it
    return int(reference(tensor.untyped_storage()).cdata)


def with_tensors(
    program: torch.export.ExportedProgram, replaced: Mapping[str, torch.Tensor]
) -> torch.export.ExportedProgram:
    """The same program with other parameters, buffers and constants under the names in `replaced`."""
    other = copy.copy(program)
    other._state_dict = {name: replaced.get(name, value) for name, value in program.state_dict.items()}
    other._constants = {name: replaced.get(name, value) for name, value in program.constants.items()}
    return other


def is_unbacked(symbol: Any) -> bool:
    """Whether a sympy symbol stands for something that the model computes, rather than for a size of its inputs."""
    return bool(free_unbacked_symbols(symbol))


@contextmanager
def choices_independent_of_sizes() -> Iterator[None]:
    """Keeps Inductor from binding a program to the sizes that it was exported with, where that gains nothing.

    Its attention would compare the number of queries with what its decode kernel takes, which is never used here. Its
    in-place pass would compare offsets of views of a changed input; views with symbolic ones count as overlapping.
    """
    attention, in_place = cast("Any", flex_attention_lowering), cast("Any", reinplace)
    decide, overlapping = attention._use_flex_decoding, in_place.compute_overlapping_tensors

    def overlapping_or_symbolic(tensors: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        numbers = (n for t in tensors for n in (*t.shape, *t.stride(), t.storage_offset()))
        if any(isinstance(number, torch.SymInt) for number in numbers):
            return set(range(len(tensors)))
        return overlapping(tensors, *args, **kwargs)

    in_place.compute_overlapping_tensors = overlapping_or_symbolic
    attention._use_flex_decoding = lambda *_: False
    try:
        yield
    finally:
        in_place.compute_overlapping_tensors = overlapping
        attention._use_flex_decoding = decide


def forget_missing_triton() -> None:
    """Lets torch look for Triton again: without a GPU it remembers having found none, even from an export alone."""
    for name in ("has_triton", "has_triton_package"):
        getattr(triton_support, name).cache_clear()


def symbolic_size(shape_env: Any, name: str) -> Any:
    """The size of torch's that the symbol `name` stands for."""
    symbol = next(known for known in shape_env.var_to_range if known.name == name)
    return shape_env.create_symintnode(symbol, hint=None)


def size_hint(size: Any) -> int:
    """What a size was when the model was exported; only inside Inductor's lowering."""
    sizes: Any = V.graph.sizevars
    hint = getattr(sizes, "optimization_hint", None) or sizes.size_hint  # renamed in torch 2.12
    return int(hint(size))


def condition_with_examples(condition: torch.SymBool) -> tuple[Any, dict[Any, int]]:
    """A condition on sizes as an expression of sympy's, and the example that an export has for each symbol in it."""
    shape_env: Any = condition.node.shape_env
    # Renamed in torch 2.13, where the older name warns.
    examples = shape_env.backed_var_to_val if hasattr(shape_env, "backed_var_to_val") else shape_env.var_to_val
    expression = condition.node.expr
    return expression, {symbol: int(examples[symbol]) for symbol in expression.free_symbols}


def unreplaced(size: torch.SymInt) -> Any:
    """The sympy symbol that stands for an integer input, even where its value is known to equal something else."""
    return size.node._expr


@contextmanager
def sums_of_products_apart() -> Iterator[None]:
    """Lowers the sum of two matrix products as two products, the second with the sum in its epilogue.

    Inductor's template for both at once has no configuration where the inner dimension is small or dynamic, and nothing
    to fall back on without a library.
    """

    def apart(mat1: Any, mat2: Any, mat3: Any, mat4: Any, *, layout: Any = None) -> Any:  # noqa: ARG001
        product = lowerings[torch.ops.aten.mm.default]
        return lowerings[torch.ops.aten.add.Tensor](product(mat1, mat2), product(mat3, mat4))

    before = mm_plus_mm.tuned_mm_plus_mm
    mm_plus_mm.tuned_mm_plus_mm = apart
    try:
        yield
    finally:
        mm_plus_mm.tuned_mm_plus_mm = before


def decompositions_of(*operators: Any) -> dict[Any, Callable[..., Any]]:
    """Torch's own replacements for exactly these operators; `CoilpackError` names one that has none."""
    table = get_decompositions(operators)
    for operator in operators:
        if operator not in table:
            raise CoilpackError(
                f"torch {torch.__version__} has no decomposition of {operator}; see the supported range"
            )
    return {operator: table[operator] for operator in operators}


def call_triton_kernel(
    kernel: Any,
    grid: tuple[Any, Any, Any],
    arguments: Mapping[str, Any],
    constants: Mapping[str, Any],
    changed: Sequence[str],
) -> list[torch.Tensor]:
    """Puts a launch of a `@triton.jit` function into the graph that is being traced.

    Args:
        kernel: the function.
        grid: workgroups; sizes may be symbolic.
        arguments: tensors and numbers by parameter name.
        constants: values of the `constexpr` parameters.
        changed: the tensors that the kernel writes; it works on copies, which Inductor saves where it can.

    Returns:
        The changed copies, in the order of `changed`.
    """
    results = triton_kernel_wrapper_functional(
        kernel_idx=kernel_side_table.add_kernel(kernel),
        constant_args_idx=kernel_side_table.add_constant_args(dict(constants)),
        grid=[grid],
        tma_descriptor_metadata={},
        kwargs=dict(arguments),
        tensors_to_clone=list(changed),
    )
    return [results[name] for name in changed]


def inductor_setting_names() -> frozenset[str]:
    """The names of all of Inductor's settings, with those that are other names for one."""
    settings: Any = inductor_config
    return frozenset(settings._config)


def mode_settings(mode: str) -> dict[str, object]:
    """The settings that `torch.compile` changes for a mode."""
    return dict(list_mode_options(mode))


def flat_inputs(program: torch.export.ExportedProgram, args: Any, kwargs: Any) -> list[Any]:
    """The inputs of a call, one for each placeholder that callers fill; `ValueError` where the program takes others."""
    untyped: Any = program
    flat, _ = untyped._get_flat_args_with_check(args, kwargs)
    return list(flat)


@contextmanager
def tracing_in(fake_mode: Any) -> Iterator[None]:
    """Within it, Inductor finds in `fake_mode` what is known of sizes; its cache of graphs asks for that."""
    with tracing(TracingContext(fake_mode)):
        yield


def use_ptxas_of_torch() -> None:
    """Makes Triton's assembler in this process the one that Inductor takes in its workers, where torch brings one."""
    _set_triton_ptxas_path()


def graph_cache_hits() -> int:
    """How many graphs Inductor's cache has served to this process so far."""
    return int(counters["inductor"]["fxgraph_cache_hit"])


@contextmanager
def quiet_tuning() -> Iterator[None]:
    """Keeps Inductor from reporting as an error each candidate that the device cannot run."""
    logger = logging.getLogger(select_algorithm.__name__)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


# c10::DeviceType codes (c10/core/DeviceType.h).
_CUDA, _META, _DEVICE_TYPES = 1, 14, 21


@contextmanager
def cuda_device_guard() -> Iterator[None]:
    """Gives a CPU build of torch a CUDA device guard that does nothing.

    Operations on fake CUDA tensors (indexing, `copy_`) ask c10 for the guard of device type CUDA, and a CPU build has
    none: they raise or abort. The guard of the meta device does nothing, whatever its type, so it stands in. A CUDA
    build keeps its own.

    Raises:
        CoilpackError: c10's registry of guards is not where it was in the supported versions.
    """
    if torch.version.cuda is not None:
        yield
        return
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    try:
        registry = (ctypes.c_void_p * _DEVICE_TYPES).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    except ValueError as error:
        raise CoilpackError(f"torch {torch.__version__}: no device guard registry in libc10 ({error})") from error
    before = registry[_CUDA]
    registry[_CUDA] = before or registry[_META]
    try:
        yield
    finally:
        registry[_CUDA] = before
