"""Kernels of the modules that IREE's own compilers wrote, launched through this runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coilpack.runtime import InputError, NotFoundError, empty, load_executable, to_device

FOLDER = Path(__file__).parents[1] / "compat" / "iree"
NAMES = sorted(path.name for path in FOLDER.glob("names-*.vmfb"))
DYNAMIC = sorted(path.name for path in FOLDER.glob("names_dyn-*.vmfb"))


@pytest.fixture(scope="module")
def device(any_device):
    return any_device


def lookup(loaded, function):
    """The kernel of a source function: older files keep the original name in the debug information alone."""
    names = [e.export_name or e.debug_name or e.kernel_name for e in loaded.exports]
    (name,) = [n for n in names if n.startswith(f"{function}_dispatch_0")]
    return loaded.lookup(name)


def test_all_files_are_there():
    assert len(NAMES) == 17
    assert len(DYNAMIC) == 16


@pytest.mark.parametrize("file", NAMES)
def test_names(device, file):
    x = np.random.default_rng(1).standard_normal(8).astype(np.float32)
    rows = np.random.default_rng(2).standard_normal((16, 64)).astype(np.float32)
    with load_executable(FOLDER / file, device) as loaded:
        for function, given, grid, expected in [
            ("decode$step", x, 1, x + np.float32(0.5)),
            ("decode_step", x, 1, x + x),
            ("row$max", rows, 16, rows.max(axis=1)),
        ]:
            y = empty(expected.shape, "f32", device)
            lookup(loaded, function).launch(grid, [to_device(given, device), y])
            np.testing.assert_array_equal(y.numpy(), expected, err_msg=function)


@pytest.mark.parametrize("size", [1, 31, 64, 1000])
@pytest.mark.parametrize("file", DYNAMIC)
def test_push_constants(device, file, size):
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    y = empty(x.shape, "f32", device)
    with load_executable(FOLDER / file, device) as loaded:
        kernel = lookup(loaded, "scale$any")
        # The size is an index of 64 bits, passed as two constants, the lower half first; a workgroup of these kernels
        # covers as many elements as it has threads.
        kernel.launch(-(-size // kernel.export.block_dims[0]), [to_device(x, device), y], [size % 2**32, size >> 32])
        np.testing.assert_array_equal(y.numpy(), x * np.float32(3))


def test_errors(device):
    with load_executable(FOLDER / "names-3.13.0.vmfb", device) as loaded:
        with pytest.raises(NotFoundError, match=r"nearest: .*decode"):
            loaded.lookup("decode$stop_dispatch_0_elementwise_8_f32")
        kernel = lookup(loaded, "decode$step")
        y = empty((8,), "f32", device)
        with pytest.raises(InputError, match="2 bindings and 0 constants; 1 and 0"):
            kernel.launch(1, [y])
        with pytest.raises(InputError, match="is in host memory"):
            kernel.launch(1, [np.zeros(8, np.float32), y])
