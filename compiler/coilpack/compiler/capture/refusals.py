"""What a package cannot express, found before anything is compiled, with the source line of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from coilpack.compiler.capture.source_location import source_location
from coilpack.runtime.errors import UnsupportedError

aten = torch.ops.aten

_NUMBER = "takes a number out of a tensor while the program runs; keep it a tensor"
_FIXES: Mapping[Any, str] = {
    aten.nonzero.default: "use torch.nonzero_static, which takes the size",
    aten.index.Tensor: "use torch.where, or index with a number of indices that is known",
    aten.masked_select.default: "use torch.where, which keeps the shape",
    aten.bincount.default: "add ones up with scatter_add, into as many places as there can be",
}


def refuse_data_dependence(graph: torch.fx.Graph) -> None:
    """Refuses sizes and numbers that are known only from the values of tensors.

    Raises:
        UnsupportedError: names the first operation that gives one, its source line, and what to write instead.
    """
    for node in graph.nodes:
        if not node.meta.get("unbacked_bindings"):
            continue
        where = f"{node.target} at {source_location(node)}"
        if not isinstance(node.meta.get("val"), torch.Tensor | tuple | list):
            raise UnsupportedError(f"{where} {_NUMBER}")
        fix = _FIXES.get(node.target, "give the result a size that depends on shapes alone")
        raise UnsupportedError(f"{where} gives a result whose size depends on the values of its input; {fix}")
