"""Matrix products on the emulator: numpy in the next higher precision, rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from coilpack.runtime.devices.base import Matrix, Product
from coilpack.runtime.dtypes import DType

if TYPE_CHECKING:
    from coilpack.runtime.devices.emulator.device import Emulator

_WIDER = {DType.f16: np.float32, DType.bf16: np.float32, DType.f32: np.float64, DType.f64: np.longdouble}


class EmulatorProduct:
    """A matrix product of the emulator."""

    workspace_nbytes = 0

    def __init__(self, device: Emulator, product: Product) -> None:
        self._device, self._product = device, product
        self._addresses = [0] * (3 if product.addend is None else 4)

    def set_address(self, index: int, address: int) -> None:
        """Says where operand `index` lies: target, left side, right side, addend."""
        self._addresses[index] = address

    def set_workspace(self, address: int) -> None:
        """Does nothing: it needs none."""

    def run(self, stream: int) -> None:
        """Computes the product; it is done on return."""
        del stream
        self.fixed()()

    def fixed(self) -> Callable[[], None]:
        """The product over the addresses of now."""
        addresses = self._addresses.copy()
        return lambda: self._device.multiply(self._product, addresses)


def multiply(product: Product, bytes_at: Callable[[int, int], npt.NDArray[np.uint8]], addresses: Sequence[int]) -> None:
    """Computes a product over memory.

    Args:
        product: what to compute.
        bytes_at: gives the memory of a number of bytes at an address.
        addresses: of target, left side, right side, and addend where there is one.
    """

    def view(index: int, matrix: Matrix, rows: int, columns: int) -> npt.NDArray[Any]:
        dtype = (product.dtype if index in (1, 2) else product.target_dtype).numpy
        shape = (product.batch, rows, columns)
        strides = matrix.strides
        count = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        flat = bytes_at(addresses[index], count * dtype.itemsize).view(dtype)
        return np.lib.stride_tricks.as_strided(flat, shape, [stride * dtype.itemsize for stride in strides])

    m, n, k, wide = product.m, product.n, product.k, _WIDER[product.dtype]
    left, right = view(1, product.lhs, m, k).astype(wide), view(2, product.rhs, k, n).astype(wide)
    result = wide(product.alpha) * np.matmul(left, right)
    if product.addend is not None:
        result += wide(product.beta) * view(3, product.addend, m, n).astype(wide)
    target = view(0, product.target, m, n)
    with np.errstate(over="ignore"):  # beyond the range is infinity, as on the device
        target[...] = result.astype(target.dtype)
