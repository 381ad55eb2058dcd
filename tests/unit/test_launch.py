"""Bare kernels, on a device in host memory; the modules of IREE's compilers run on a GPU, in tests/gpu."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_samples import executable, host_device

from coilpack.runtime import load_executable, load_executables, to_device
from coilpack.runtime.errors import InputError, InvalidFileError, NotFoundError, TargetMismatchError
from coilpack.runtime.executable import BindingFlags, Executable, Export, write_executable

IREE = "compat/iree"


@pytest.fixture
def device():
    return host_device()


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "kernels.cda1"
    file.write_bytes(executable())
    return file


def test_launch(path, device):
    x, y = to_device(np.float32([1, 2, 3, 4]), device), to_device(np.zeros(4, np.float32), device)
    with load_executable(path, device) as loaded:
        assert [export.name for export in loaded.exports] == ["scale$1", "add"]
        add = loaded.lookup("add")
        add.launch(1, [x, x, y])
        np.testing.assert_array_equal(y.numpy(), [2, 4, 6, 8])
        add.launch((1, 1, 1), [x, y, y], stream=5)
        np.testing.assert_array_equal(y.numpy(), [3, 6, 9, 12])
    assert ("launch", "add", 5) in device.log
    assert ("order", 1, 5) in device.log
    assert ("order", 5, 1) in device.log
    assert not any(module.open for module in device.modules)
    with pytest.raises(InputError, match="add: its executable is closed"):
        add.launch(1, [x, x, y])


def test_bindings_and_constants_in_order(tmp_path, device):
    # A kernel with IREE's parameters, two bindings and two constants: y = x + constant 0 + 2^32 * constant 1.
    ptx = b".version 8.7\n.target sm_80\n.entry k(.param .u64 a, .param .u64 b, .param .u32 c, .param .b32 d) { ret; }"
    export = Export(0, "k", "k", (1, 1, 1), constant_count=2, binding_flags=(BindingFlags.READ_ONLY, BindingFlags(0)))
    path = tmp_path / "k.cda1"
    path.write_bytes(write_executable(Executable((ptx,), (export,))))

    def body(device, config, parameters):
        assert config.grid == (3, 2, 1)
        constants = [int.from_bytes(p, "little") for p in parameters[2:]]
        device.view(parameters[1], "u8", 1)[:] = (
            device.view(parameters[0], "u8", 1) + constants[0] + (constants[1] << 32)
        )

    device.bodies["k"] = body
    x, y = to_device(np.uint64([7]), device), to_device(np.uint64([0]), device)
    kernel = load_executable(path, device).lookup("k")
    kernel.launch((3, 2), [x, y], [2**32 - 1, 1])
    assert y.numpy()[0] == 7 + 2**32 - 1 + 2**32
    kernel.launch((3, 2), [x, y], [-1, 0])
    assert y.numpy()[0] == 7 + 2**32 - 1
    with pytest.raises(InputError, match="takes 2 bindings and 2 constants; 2 and 1 were given"):
        kernel.launch(1, [x, y], [1])
    with pytest.raises(InputError, match="constant 1 is 4294967296; it has 32 bits"):
        kernel.launch(1, [x, y], [0, 2**32])


def test_what_is_refused(path, device):
    loaded = load_executable(path, device)
    x = to_device(np.zeros(4, np.float32), device)
    add = loaded.lookup("add")
    with pytest.raises(InputError, match=r"add: the kernel's parameters have \[8, 8, 8\] bytes; 2 bindings"):
        add.launch(1, [x, x])
    with pytest.raises(InputError, match=r"add: binding 2: is in host memory; bring it to host with .*to_device"):
        add.launch(1, [x, x, np.zeros(4, np.float32)])
    with pytest.raises(InputError, match="has 4 dimensions"):
        add.launch((1, 1, 1, 1), [x, x, x])
    with pytest.raises(NotFoundError, match=r"kernels\.cda1 has no export named 'scale'; nearest: 'scale\$1'"):
        loaded.lookup("scale")


def test_files_that_are_refused(tmp_path, device):
    file = tmp_path / "x.cda1"
    file.write_bytes(executable("sm_90"))
    with pytest.raises(TargetMismatchError, match=r"no code for host, which is .*; it has sm_90"):
        load_executable(file, device)
    with pytest.raises(InputError, match=r"has 1 executables; there is none with index 1"):
        load_executable(file, device, index=1)
    file.write_bytes(b"not an executable")
    with pytest.raises(InvalidFileError):
        load_executable(file, device)


@pytest.mark.parametrize("version", ["2.9.0", "3.13.0"])
def test_kernels_of_an_iree_module(request, device, version):
    path = request.config.rootpath / "tests" / IREE / f"names_dyn-{version}.vmfb"
    (loaded,) = load_executables(path, device)
    (export,) = loaded.exports
    kernel = loaded.lookup(export.name)
    assert repr(kernel) == f"<Function {export.name!r} on host>"
    assert load_executable(path, device).lookup(kernel.name).export == export
