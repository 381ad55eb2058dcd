"""Runs Inductor on a retraced graph: what is the same whether its kernels are captured or compiled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.retrace import Retraced
from coilpack.compiler.capture.source_location import first_known, source_location
from coilpack.compiler.capture.torch_overhead import no_repro_scripts
from coilpack.runtime.errors import CoilpackError, UnsupportedError


def compile_graph(retraced: Retraced, settings: Mapping[str, Any], **options: Any) -> Any:
    """Compiles the retraced graph with Inductor.

    Args:
        retraced: the graph, which is used up.
        settings: of `torch._inductor.config`.
        options: what else `compile_fx_inner` takes.

    Returns:
        What Inductor makes of it.

    Raises:
        UnsupportedError: an operation cannot be compiled; names it and its source line.
    """
    _keep_output_layouts(retraced.graph_module.graph)
    with (
        compat.sums_of_products_apart(),
        no_repro_scripts(),
        compat.inductor_config.patch(**settings),
        compat.V.set_fake_mode(retraced.fake_mode),
        retraced.fake_mode,
        compat.choices_independent_of_sizes(),
        torch.no_grad(),
    ):
        try:
            compat.joint_graph_passes(retraced.graph_module)
            _refuse_random(retraced.graph_module.graph)
            return compat.compile_fx_inner(retraced.graph_module, retraced.inputs, is_inference=True, **options)
        except CoilpackError:
            raise
        except Exception as error:
            raise _explain(error, retraced.graph_module.graph) from error


def _keep_output_layouts(graph: torch.fx.Graph) -> None:
    """Gives outputs the strides that the model gives them; Inductor would choose what suits its kernels."""
    (output,) = graph.find_nodes(op="output")
    values = output.args[0] if isinstance(output.args[0], tuple | list) else output.args
    output.meta["user_visible_output_idxs"] = [
        index for index, value in enumerate(values) if isinstance(value, torch.fx.Node)
    ]


def _refuse_random(graph: torch.fx.Graph) -> None:
    """Refuses random operations for which Inductor has no kernel; for the others it has put its own by now."""
    for node in graph.nodes:
        if getattr(node.target, "namespace", "") == "aten" and torch.Tag.nondeterministic_seeded in node.target.tags:
            raise UnsupportedError(
                f"{node.target} at {source_location(node)} draws random numbers in a way that no Triton kernel does; "
                "use rand, randn, randint, bernoulli or dropout, or pass the numbers in as an input"
            )


def _explain(error: Exception, graph: torch.fx.Graph) -> CoilpackError:
    """An error of Inductor as one of ours: the first of ours in its chain, or what it says about which operation."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, CoilpackError):
            return cause
        cause = cause.__cause__ or cause.__context__
    text = str(error).strip() or type(error).__name__
    reason = text.splitlines()[0]
    named = re.search(r"^\s*target: (\S+)", text, re.MULTILINE)
    if named is None:
        return UnsupportedError(f"Inductor cannot compile the model for a GPU: {type(error).__name__}: {reason}")
    where = first_known(node for node in graph.nodes if str(node.target) == named[1])
    if "NoValidChoicesError" in reason:
        reason = "no Triton template takes its element type and shape"
    return UnsupportedError(f"{named[1]} at {where} cannot be lowered: {reason}")
