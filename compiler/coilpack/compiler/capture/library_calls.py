"""The one kind of library call that a program may hold: matrix products, where they are chosen over Triton's templates.

Whatever else Inductor would call a library for has no entry in the table, and is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture import decompositions
from coilpack.compiler.capture.source_location import first_known
from coilpack.runtime.errors import UnsupportedError

aten = torch.ops.aten

OPERATIONS = ("mm", "addmm", "bmm", "baddbmm")  # as Inductor calls what it chooses a template or a library for
_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def library_product(target: Any, lhs: Any, rhs: Any, addend: Any, alpha: float, beta: float, tf32: bool) -> None:
    """Marks `target = alpha * lhs @ rhs + beta * addend` in the host graph; never called."""
    raise AssertionError(f"product nodes are data ({target}, {lhs}, {rhs}, {addend}, {alpha}, {beta}, {tf32})")


def _product(inputs: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Any, ...]:  # noqa: ARG001
    lhs, rhs = inputs
    return lhs, rhs, None, 1.0, 0.0


def _sum_and_product(inputs: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Any, ...]:
    addend, lhs, rhs = inputs
    alpha, beta = float(options.get("alpha", 1)), float(options.get("beta", 1))
    return (lhs, rhs, addend, alpha, beta) if beta else (lhs, rhs, None, alpha, 0.0)


_TABLE: Mapping[Any, Callable[..., tuple[Any, ...]]] = {
    aten.mm.out: _product,
    aten.bmm.out: _product,
    aten.addmm.out: _sum_and_product,
    aten.baddbmm.out: _sum_and_product,
    "extern_kernels.bias_addmm": _sum_and_product,  # torch 2.11: addmm with a row, which calls the same library
}

SOURCE_PRODUCTS: Mapping[str, Callable[..., tuple[Any, ...]]] = {
    "extern_kernels.mm": _product,
    "extern_kernels.bmm": _product,
    "extern_kernels.addmm": _sum_and_product,
    "extern_kernels.baddbmm": _sum_and_product,
    "extern_kernels.bias_addmm": _sum_and_product,
}
"""The products of the table as Inductor writes them in Python."""


def _multiplied(*operands: torch.Tensor) -> bool:
    """Whether the library takes a product of these; one of nothing is left to others."""
    empty = any(isinstance(size, int) and size == 0 for operand in operands for size in operand.shape)
    return operands[0].dtype in _TYPES and not empty


def _kept(operator: Any) -> Callable[..., Any]:
    """A decomposition of `operator` that leaves to the library what it multiplies."""
    otherwise = decompositions.TABLE[operator]

    def decompose(*arguments: Any, **options: Any) -> Any:
        return NotImplemented if _multiplied(*arguments[-2:]) else otherwise(*arguments, **options)

    return decompose


DECOMPOSITIONS: Mapping[Any, Callable[..., Any]] = {
    operator: _kept(operator)
    for operator in (aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default)
}
"""For a decomposition table, in place of those of `decompositions` for the same operators."""


@contextmanager
def sums_apart() -> Iterator[None]:
    """Within it, Inductor lowers what is added to a product by itself, where the library cannot add it.

    The library adds a row of float16, bfloat16 or float32, or a matrix laid out as the result.
    """
    lowerings: Any = compat.lowerings  # by operator; torch types the keys more narrowly than it uses them
    before = {operator: lowerings[operator] for operator in (aten.addmm.default, aten.baddbmm.default)}
    products = {aten.addmm.default: aten.mm.default, aten.baddbmm.default: aten.bmm.default}

    def lowered(operator: Any) -> Callable[..., Any]:
        def lower(added: Any, left: Any, right: Any, *, alpha: float = 1, beta: float = 1, **options: Any) -> Any:
            if beta == 0 or _is_addend(added, left, right, beta):
                return before[operator](added, left, right, alpha=alpha, beta=beta, **options)
            product = lowerings[products[operator]](left, right)
            product = product if alpha == 1 else lowerings[aten.mul.Tensor](product, alpha)
            return lowerings[aten.add.Tensor](added if beta == 1 else lowerings[aten.mul.Tensor](added, beta), product)

        return lower

    lowerings.update({operator: lowered(operator) for operator in before})
    try:
        yield
    finally:
        lowerings.update(before)


def _is_addend(added: Any, left: Any, right: Any, beta: float) -> bool:
    shape = [*left.get_size()[:-1], right.get_size()[-1]]
    if list(added.get_size()) == shape[-1:]:
        return len(shape) == 2 and beta == 1 and added.get_dtype() != torch.float64
    return list(added.get_size()) == shape and added.maybe_get_stride() == compat.contiguous_strides(shape)


def is_product(kernel: Any) -> bool:
    """Whether a library call of Inductor's is a product of the table."""
    return _name(kernel) in _TABLE


def _name(kernel: Any) -> Any:
    """What Inductor calls: an operator, or a function of its own."""
    return getattr(kernel, "op_overload", None) or getattr(kernel, "python_kernel_name", None)


def source_product_arguments(
    call: str, inputs: tuple[Any, ...], options: Mapping[str, Any], dtype: torch.dtype, tf32: bool
) -> tuple[Any, ...]:
    """As `product_arguments`, of a call as Inductor writes it in Python.

    Args:
        call: the function called, of `SOURCE_PRODUCTS`.
        inputs: the nodes of its positional arguments.
        options: its keyword arguments but for `out`.
        dtype: of what is multiplied.
        tf32: whether float32 products may be rounded to TF32.

    Raises:
        UnsupportedError: the element type is none that the library multiplies, or the arguments are of another number.
    """
    _check_type(dtype, call)
    try:
        arguments = SOURCE_PRODUCTS[call](inputs, options)
    except ValueError:
        raise UnsupportedError(f"{call} takes no {len(inputs)} tensors") from None
    return (*arguments, tf32 and dtype == torch.float32)


def product_arguments(kernel: Any, inputs: tuple[Any, ...], tf32: bool) -> tuple[Any, ...]:
    """The arguments of `library_product` but for the target.

    Args:
        kernel: Inductor's call, of the table.
        inputs: the nodes of its inputs.
        tf32: whether float32 products may be rounded to TF32.

    Raises:
        UnsupportedError: the element type is none that the library multiplies.
    """
    dtype = kernel.inputs[-1].get_dtype()
    _check_type(dtype, f"{_name(kernel)} at {first_known(kernel.get_origins())}")
    return (*_TABLE[_name(kernel)](inputs, kernel.kwargs), tf32 and dtype == torch.float32)


def _check_type(dtype: torch.dtype, what: str) -> None:
    if dtype not in _TYPES:
        names = ", ".join(str(t).removeprefix("torch.") for t in _TYPES)
        raise UnsupportedError(f"{what} multiplies {dtype}; the library of matrix products takes {names}")
