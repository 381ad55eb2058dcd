"""Spares work of torch's that takes longer than a small model, and serves nothing here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch

from coilpack.compiler import _torch_compat as compat

Kernel = Callable[..., Any]


@contextmanager
def composites_kept_quickly() -> Iterator[None]:
    """Halves the time that `run_decompositions` takes to keep composite operators whole, whatever the program.

    torch looks for all of them once for each namespace of operators, and registers 12,000 kernels through closures
    whose annotations, which Python evaluates each time, cost more than all else. Here it looks once, and the kernels
    are registered just as torch would.
    """
    utilities, base = cast("Any", compat.export_utils), cast("Any", compat.OperatorBase)
    find, register = utilities._materialize_cpp_cia_ops, base.py_impl

    def register_quickly(operator: Any, key: Any) -> Callable[[Kernel], Kernel]:
        plain = type(key) is torch._C.DispatchKey and key != torch._C.DispatchKey.Python
        if not plain or key in operator.py_kernels:  # kept elsewhere, or an error
            return cast("Callable[[Kernel], Kernel]", register(operator, key))

        def keep(kernel: Kernel) -> Kernel:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()
            return kernel

        return keep

    find()
    utilities._materialize_cpp_cia_ops, base.py_impl = lambda: None, register_quickly
    try:
        yield
    finally:
        utilities._materialize_cpp_cia_ops, base.py_impl = find, register


@contextmanager
def no_repro_scripts() -> Iterator[None]:
    """Keeps Inductor from writing, at each run, a script that repeats it: only a log that is off would have it."""
    module = cast("Any", compat.after_aot)
    save = module.save_graph_repro
    module.save_graph_repro = lambda *_, **__: None
    try:
        yield
    finally:
        module.save_graph_repro = save
