"""Matrix products on a CUDA device by cuBLASLt, through nvmath-python (the extra `cublas`)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from coilpack.runtime.devices.base import Matrix, Product
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import DeviceError

if TYPE_CHECKING:
    from coilpack.runtime.devices.cuda import CudaDevice

_WORKSPACE_LIMIT = 4 << 20  # bytes; each plan with products has a workspace, and there may be hundreds
# cudaDataType_t (library_types.h) and cublasComputeType_t (cublas_api.h)
_DATA_TYPES = {DType.f32: 0, DType.f64: 1, DType.f16: 2, DType.bf16: 14}
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_32F_FAST_TF32 = 68, 70, 77


@functools.cache
def _library() -> Any:
    """The module `nvmath.bindings.cublasLt`; its import costs about a second, so it waits for the first product.

    Raises:
        DeviceError: it is not installed.
    """
    try:
        from nvmath.bindings import cublasLt
    except ImportError as error:
        raise DeviceError(
            f"matrix products by cuBLASLt need nvmath-python: {error}. Run `pip install 'coilpack[cublas]'`, or "
            "compile without `--matmul cublaslt`"
        ) from error
    return cublasLt


def _call(function: str, attempt: str, *arguments: Any) -> Any:
    """Calls a function of cuBLASLt.

    Raises:
        DeviceError: it fails, or the library is not there.
    """
    library = _library()
    try:
        return getattr(library, function)(*arguments)
    except (library.cuBLASLtError, RuntimeError) as error:  # the latter where cuBLASLt itself cannot be loaded
        raise DeviceError(f"{attempt}: {function}: {type(error).__name__}: {error}") from error


@functools.cache
def _handle(device: str) -> int:
    """The library's handle for a device, whose context is current. It may be used from any thread."""
    return int(_call("create", f"starting cuBLASLt on {device}"))


class CudaProduct:
    """A product with the algorithm that the library's heuristics choose; the device's context is current.

    The library is column-major: a row-major target is computed as its transpose, from the transposes of both sides.

    Raises:
        DeviceError: the library is not there, or computes no such product.
    """

    def __init__(self, device: CudaDevice, product: Product, alignments: Sequence[int]) -> None:
        self._product, self._device = product, device
        self._attempt = f"{self} on {device.name}"
        self._handle = _handle(device.name)
        self._addresses = [0] * (3 if product.addend is None else 4)
        self._workspace = 0
        scalar = np.float64 if product.dtype is DType.f64 else np.float32
        self._factors = np.array([product.alpha, 0.0 if product.is_bias else product.beta], scalar)
        self._factor_addresses = [int(self._factors.ctypes.data) + i * self._factors.itemsize for i in range(2)]
        self._owned: list[tuple[str, int]] = []  # what must be destroyed, and by which function
        try:
            self._describe()
            self._algorithm = self._choose(alignments)
        except BaseException:
            self.close()
            raise
        self.workspace_nbytes = int(self._algorithm["workspace_size"][0])

    def __str__(self) -> str:
        p = self._product
        batch = f"{p.batch} x " if p.batch > 1 else ""
        return f"matrix product {batch}({p.m} x {p.k}) @ ({p.k} x {p.n}) of {p.dtype.name} to {p.target_dtype.name}"

    # --- descriptions ---

    def _describe(self) -> None:
        product, swapped = self._product, self._product.target.is_row_major
        f64 = product.dtype is DType.f64
        fast = product.tf32 and product.dtype is DType.f32
        compute = _COMPUTE_64F if f64 else _COMPUTE_32F_FAST_TF32 if fast else _COMPUTE_32F
        scale = _DATA_TYPES[DType.f64 if f64 else DType.f32]
        self._operation = self._own("matmul_desc", compute, scale)
        left = (product.lhs, product.m, product.k)
        right = (product.rhs, product.k, product.n)
        sides = [(right, 2), (left, 1)] if swapped else [(left, 1), (right, 2)]
        self._sides = tuple(index for _, index in sides)
        self._layouts = []
        for attribute, ((matrix, rows, columns), _) in zip(("TRANSA", "TRANSB"), sides, strict=True):
            # Column-major takes a row-major matrix for its transpose.
            transposed = matrix.is_row_major is not swapped
            self._set("matmul_desc", self._operation, attribute, np.int32(transposed))
            self._layouts.append(self._layout(product.dtype, matrix, rows, columns))
        target = self._layout(product.target_dtype, product.target, product.m, product.n)
        addend = target
        if product.is_bias:
            self._set("matmul_desc", self._operation, "EPILOGUE", np.uint32(_library().Epilogue.BIAS))
            self._set("matmul_desc", self._operation, "BIAS_POINTER", np.uint64(256))  # heuristics want one
        elif product.addend is not None:
            addend = self._layout(product.target_dtype, product.addend, product.m, product.n)
        self._layouts += [addend, target]

    def _layout(self, dtype: DType, matrix: Matrix, rows: int, columns: int) -> int:
        """A description of a matrix, or of its transpose where it is row-major."""
        sizes = (columns, rows) if matrix.is_row_major else (rows, columns)
        layout = self._own("matrix_layout", _DATA_TYPES[dtype], *sizes, matrix.leading)
        self._set("matrix_layout", layout, "BATCH_COUNT", np.int32(self._product.batch))
        self._set("matrix_layout", layout, "STRIDED_BATCH_OFFSET", np.int64(matrix.batch_stride))
        return layout

    def _own(self, kind: str, *arguments: Any) -> int:
        made = int(_call(f"{kind}_create", self._attempt, *arguments))
        self._owned.append((f"{kind}_destroy", made))
        return made

    def _set(self, kind: str, described: int, attribute: str, value: np.generic) -> None:
        names = {"matmul_desc": "MatmulDescAttribute", "matrix_layout": "MatrixLayoutAttribute"}
        number = getattr(_library(), names.get(kind, "MatmulPreferenceAttribute"))[attribute]
        data = np.array([value])
        _call(f"{kind}_set_attribute", self._attempt, described, number, int(data.ctypes.data), data.nbytes)

    def _choose(self, alignments: Sequence[int]) -> npt.NDArray[Any]:
        target, *sides = alignments[:3]
        a, b = (sides[index - 1] for index in self._sides)
        c = target if len(alignments) < 4 or self._product.is_bias else alignments[3]
        preference = self._own("matmul_preference")
        self._set("matmul_preference", preference, "MAX_WORKSPACE_BYTES", np.uint64(_WORKSPACE_LIMIT))
        for name, alignment in zip("ABCD", (a, b, c, target), strict=True):
            self._set("matmul_preference", preference, f"MIN_ALIGNMENT_{name}_BYTES", np.uint32(alignment))
        found = np.zeros(1, _library().matmul_heuristic_result_dtype)
        count = np.zeros(1, np.int32)
        places = int(found.ctypes.data), int(count.ctypes.data)
        described = (self._handle, self._operation, *self._layouts, preference, 1, *places)
        _call("matmul_algo_get_heuristic", self._attempt, *described)
        if not count[0] or found["state"][0]:
            raise DeviceError(f"{self._attempt}: cuBLASLt has no algorithm for it. Compile without `--matmul cublaslt`")
        return found

    # --- runs ---

    def set_address(self, index: int, address: int) -> None:
        """Says where operand `index` lies: target, left side, right side, addend."""
        self._addresses[index] = address
        if index == 3 and self._product.is_bias:
            self._set("matmul_desc", self._operation, "BIAS_POINTER", np.uint64(address))

    def set_workspace(self, address: int) -> None:
        """Says where its workspace lies."""
        self._workspace = address

    def run(self, stream: int) -> None:
        """Queues the product on `stream`; the device's context is current."""
        target = self._addresses[0]
        a, b = (self._addresses[index] for index in self._sides)
        c = target if len(self._addresses) < 4 or self._product.is_bias else self._addresses[3]
        layouts, (alpha, beta) = self._layouts, self._factor_addresses
        operands = (alpha, a, layouts[0], b, layouts[1], beta, c, layouts[2], target, layouts[3])
        algorithm, workspace = int(self._algorithm.ctypes.data), (self._workspace, self.workspace_nbytes)
        _call("matmul", self._attempt, self._handle, self._operation, *operands, algorithm, *workspace, stream)

    def close(self) -> None:
        """Destroys its descriptions. Closing twice is harmless."""
        while self._owned:
            function, described = self._owned.pop()
            _call(function, self._attempt, described)

    def __del__(self) -> None:
        if getattr(self, "_owned", None) and not sys.is_finalizing():
            self.close()
