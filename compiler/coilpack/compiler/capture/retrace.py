"""Moves an exported program from the CPU onto fake CUDA tensors and decomposes it as Inductor wants it there.

Decomposing on the CPU would bake CPU choices in (its flash attention, its strides), so the export is only
functionalised there; everything else is decomposed while it is traced again on fake CUDA tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture import control_flow, decompositions, library_calls, random_decompositions
from coilpack.compiler.capture.bindings import Mutation
from coilpack.compiler.capture.decompositions import complex_pairs
from coilpack.compiler.capture.size_expressions import expression
from coilpack.compiler.capture.source_location import source_location
from coilpack.runtime.errors import UnsupportedError

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten


@dataclass(frozen=True)
class Retraced:
    """The graph to compile, with fake inputs in the order of its placeholders and the mode that made them.

    Attributes:
        graph_module: the graph.
        inputs: a fake tensor, `SymInt` or constant for each placeholder.
        named_inputs: the same by the names that the export gives them.
        fake_mode: whose `shape_env` holds what was assumed about sizes.
    """

    graph_module: torch.fx.GraphModule
    inputs: list[Any]
    named_inputs: Mapping[str, Any]
    fake_mode: Any


def retrace(
    program: torch.export.ExportedProgram,
    *,
    mutations: Sequence[Mutation] = (),
    results: Sequence[int],
    fuse_attention: bool,
    library_products: bool = False,
) -> Retraced:
    """Traces `program` on fake CUDA tensors.

    Args:
        program: an exported program on the CPU; functionalised already (`run_decompositions({})`).
        mutations: inputs that get a new value at the end, in place.
        results: the numbers of the program's results that the graph returns.
        fuse_attention: attention becomes one flex-attention kernel where its shapes allow; otherwise plain arithmetic.
        library_products: products of matrices are kept as they are for a library.

    Raises:
        UnsupportedError: an operation cannot be traced; names it and its source line.
    """
    graph_module = program.graph_module
    _move_to_cuda(graph_module)
    overrides = _overrides(fuse_attention)
    shape_env = _shape_env(graph_module)
    mode = compat.FakeTensorMode(allow_non_fake_inputs=True, shape_env=shape_env)

    # With the Python dispatcher, operations made of others take torch's decompositions, which keep sizes symbolic.
    with mode, torch.no_grad(), compat.enable_python_dispatcher(), torch.fx.traceback.preserve_node_meta():
        placeholders = graph_module.graph.find_nodes(op="placeholder")
        inputs = [_on_cuda(node.meta["val"]) for node in placeholders]
        tracer = _Tracer(graph_module, overrides)

        def run(*arguments: Any) -> tuple[Any, ...]:
            return _update(arguments, tracer.run(*arguments), mutations, results)

        table = {**decompositions.complete(compat.select_decomp_table()), **random_decompositions.TABLE}
        if library_products:
            table |= library_calls.DECOMPOSITIONS
        traced = compat.make_fx(run, decomposition_table=table)(*inputs)
        if complex_pairs.has_complex_values(traced.graph):
            traced = compat.make_fx(_PairTracer(traced, {}).run, decomposition_table=table)(*inputs)
    named = {str(node.target): value for node, value in zip(placeholders, inputs, strict=True)}
    return Retraced(traced, inputs, named, mode)


class _Tracer(torch.fx.Interpreter):
    """Runs a graph, and the graphs in it, with replacements for some operators."""

    def __init__(self, module: torch.fx.GraphModule, overrides: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__(module)
        self.extra_traceback = False  # would put the whole graph into each message
        self._overrides = overrides
        self._graph_operators = control_flow.handlers()

    def _run_graph(self, module: torch.fx.GraphModule, *arguments: Any) -> Any:
        return _Tracer(module, self._overrides).run(*arguments)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in self._graph_operators:
            return self._graph_operators[target](self._run_graph, *args, **kwargs)
        override = self._overrides.get(target)
        if override is not None:
            result = override(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return super().call_function(target, args, kwargs)

    def run_node(self, n: torch.fx.Node) -> Any:
        try:
            return super().run_node(n)
        except UnsupportedError:
            raise
        except control_flow.RefusedError as error:
            raise UnsupportedError(f"{n.target} at {source_location(n)} cannot be lowered: {error}") from error
        except Exception as error:
            raise UnsupportedError(
                f"{n.target} at {source_location(n)} cannot be traced for CUDA: {error}. "
                "Rewrite that line with operations that torch.compile supports on CUDA"
            ) from error


class _PairTracer(_Tracer):
    """Runs a graph with a pair of real tensors for each complex one."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = complex_pairs.call(target, args, kwargs)
        return super().call_function(target, args, kwargs) if result is NotImplemented else result


def _update(
    arguments: Sequence[Any], values: Sequence[Any], mutations: Sequence[Mutation], results: Sequence[int]
) -> tuple[Any, ...]:
    """Copies new values over the arguments that change, and picks the results; what was a new value is the argument.

    With the copies at the end, Inductor updates the arguments in place where it can. What still shows an argument's old
    value is copied out before.
    """
    changed = {compat.memory_identity(arguments[m.placeholder]) for m in mutations}
    new = [_set_aside(values[m.result]) if m.aside else values[m.result] for m in mutations]
    returned = [
        values[number].clone() if compat.memory_identity(values[number]) in changed else values[number]
        for number in results
    ]
    for mutation, value in zip(mutations, new, strict=True):
        arguments[mutation.placeholder].copy_(value)
    inputs = {id(argument) for argument in arguments}
    updated = {id(values[m.result]): arguments[m.placeholder] for m in mutations if id(values[m.result]) not in inputs}
    return tuple(updated.get(id(values[number]), value) for number, value in zip(results, returned, strict=True))


def _set_aside(value: torch.Tensor) -> torch.Tensor:
    """A copy that no pass takes for needless, as it would a clone; the same bits, NaNs included."""
    return torch.maximum(value, value)


def _shape_env(graph_module: torch.fx.GraphModule) -> Any:
    """The shape environment of the export, so that its symbols keep their names and ranges."""
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, compat.FakeTensor):
            return value.fake_mode.shape_env
        if isinstance(value, torch.SymInt):
            return value.node.shape_env
    return None


def _on_cuda(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=CUDA)


def _move_to_cuda(graph_module: torch.fx.GraphModule) -> None:
    """Rewrites device arguments in place, in all nested graphs.

    `aten.view` becomes `aten.reshape`, because strides of CPU results are baked into views; assertions about metadata
    compare with the CPU and go.
    """
    for module in graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in list(module.graph.nodes):
            if node.kwargs.get("device") is not None:
                node.kwargs = {**node.kwargs, "device": CUDA}
            if node.target is aten.to.device:
                node.args = (node.args[0], CUDA, *node.args[2:])
            elif node.target is aten.view.default:
                node.target = aten.reshape.default
            elif node.target is aten._assert_tensor_metadata.default:
                module.graph.erase_node(node)
        module.recompile()


# --- attention ---

_FLEX_OPTIONS: Mapping[str, Any] = {
    "PRESCALE_QK": False,
    "ROWS_GUARANTEED_SAFE": False,
    "BLOCKS_ARE_CONTIGUOUS": False,
    "WRITE_DQ": True,
    "OUTPUT_LOGSUMEXP": False,
    "OUTPUT_MAX": False,
    # Below 128 queries Inductor takes its decode kernel, which fails on an empty block mask.
    "FORCE_USE_FLEX_ATTENTION": True,
}
_SMALLEST_HEAD_DIM = 16  # tl.dot's smallest inner dimension


def _attention(
    fused: bool,
    block_masks: dict[tuple[Any, Any], tuple[Any, ...]],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`scaled_dot_product_attention` as flex attention where that is possible, else as its own arithmetic.

    Block masks are made by small kernels, so all attentions of the same lengths share one, kept in `block_masks`.
    """
    if dropout_p:
        raise UnsupportedError(f"attention with dropout {dropout_p}; export the model in eval mode")
    head_dim = query.shape[-1]
    if not (fused and query.dim() == 4 and key.dim() == 4 and head_dim >= _SMALLEST_HEAD_DIM):
        if enable_gqa:
            repeats = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
        return aten._scaled_dot_product_attention_math(query, key, value, attn_mask, 0.0, is_causal, scale=scale)[0]
    score_mod, buffers = _score_mod(query, key, attn_mask, is_causal)
    lengths = (expression(query.shape[2]), expression(key.shape[2]))
    if lengths not in block_masks:
        block_masks[lengths] = compat.empty_block_mask(query, key).as_tuple()
    block_mask = block_masks[lengths]
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    options = dict(_FLEX_OPTIONS)
    return compat.flex_attention_op(query, key, value, score_mod, block_mask, scale, options, buffers, ())[0]


def _score_mod(
    query: torch.Tensor, key: torch.Tensor, attn_mask: torch.Tensor | None, is_causal: bool
) -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]:
    """How flex attention changes a score at (batch, head, query, key), and the tensors it reads for that."""
    if attn_mask is not None:
        # Inductor inlines a mask that is still an expression into the kernel, with names that are not defined there.
        # `as_strided` is the one operation that makes it put its input into memory first.
        whole = attn_mask.contiguous()
        mask = whole.as_strided(whole.shape, whole.stride()).expand(*query.shape[:3], key.shape[2])
        if mask.dtype == torch.bool:
            return (lambda s, b, h, i, j, m: torch.where(m[b, h, i, j], s, -math.inf)), (mask,)
        return (lambda s, b, h, i, j, m: s + m[b, h, i, j]), (mask,)
    if is_causal:
        return (lambda s, b, h, i, j: torch.where(i >= j, s, -math.inf)), ()  # noqa: ARG005 (flex passes all five)
    return (lambda s, b, h, i, j: s), ()  # noqa: ARG005


def _overrides(fuse_attention: bool) -> Mapping[Any, Callable[..., Any]]:
    """Replacements by operator; a decomposition table would not fire for these."""
    block_masks: dict[tuple[Any, Any], tuple[Any, ...]] = {}

    def attention(*args: Any, **kwargs: Any) -> Any:
        return _attention(fuse_attention, block_masks, *args, **kwargs)

    return {
        aten.scaled_dot_product_attention.default: attention,
        **decompositions.OVERRIDES,
    }


def user_inputs(program: torch.export.ExportedProgram) -> Sequence[torch.fx.Node]:
    """The placeholders that callers fill, in call order."""
    names = set(program.graph_signature.user_inputs)
    return [n for n in program.graph.find_nodes(op="placeholder") if n.name in names]
