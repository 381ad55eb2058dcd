"""The CUDA device itself: memory, modules, launches, contexts, and what it says when something is wrong."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from coilpack.runtime.devices import resolve_device
from coilpack.runtime.devices.base import Device, LaunchConfig
from coilpack.runtime.devices.cuda import device_count
from coilpack.runtime.devices.cuda_driver import call, driver
from coilpack.runtime.errors import DeviceError, InputError, NotFoundError, TargetMismatchError

pytestmark = pytest.mark.gpu

S = 1  # the default stream
CUBINS = Path(__file__).parents[1] / "unit" / "data" / "cubins"

# reverse(y, last): y[t] = what thread t stored to dynamic shared memory at byte last - 4 t, which is t
REVERSE = """\
.version {version}
.target {target}
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry reverse(.param .u64 y, .param .u32 last)
{{
.reg .b32 %r<8>;
.reg .b64 %rd<4>;
mov.u32 %r1, dynamic;
ld.param.u32 %r2, [last];
mov.u32 %r3, %tid.x;
shl.b32 %r4, %r3, 2;
sub.s32 %r5, %r2, %r4;
add.s32 %r6, %r1, %r5;
st.shared.u32 [%r6], %r3;
bar.sync 0;
ld.shared.u32 %r7, [%r6];
ld.param.u64 %rd1, [y];
mul.wide.u32 %rd2, %r3, 4;
add.s64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], %r7;
ret;
}}
.visible .entry nothing() {{ ret; }}
"""


def ptx(version="8.0", target="sm_80"):
    return memoryview(REVERSE.format(version=version, target=target).encode())


@pytest.fixture(scope="module")
def module(device):
    return device.load_module(ptx(), "test")


def read(device, address, dtype, count):
    data = np.empty(count, dtype)
    device.read(address, memoryview(data.view(np.uint8)), S)
    return data


def test_it_is_a_device(device):
    assert isinstance(device, Device)
    assert resolve_device("cuda") is device
    assert str(device.compute_capability) in device.description
    assert device.max_shared_memory_per_block >= 48 * 1024


# --- memory ---


def test_write_copy_read(device):
    data = np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8)
    first, second = device.allocate(data.nbytes, S), device.allocate(data.nbytes, S)
    assert first.address % 256 == second.address % 256 == 0
    assert device.owns(first.address)
    assert not device.owns(data.ctypes.data)
    source = data.copy()
    device.write(first.address, memoryview(source), S)
    source[:] = 0
    device.copy(second.address + 5, first.address, data.nbytes - 5, S)
    np.testing.assert_array_equal(read(device, second.address, np.uint8, data.nbytes)[5:], data[:-5])
    for buffer in (first, second):
        buffer.close()
        buffer.close()


PATTERNS = ["ab", "0102", "01020304", "0000803f", "0102030405060708", "00010203" * 4, bytes(range(16)).hex()]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_fill(device, pattern):
    unit = bytes.fromhex(pattern)
    buffer = device.allocate(4096, S)
    device.fill(buffer.address, bytes(1), 4096, S)
    device.fill(buffer.address + 16, unit, 1600, S)
    expected = bytes(16) + unit * (1600 // len(unit)) + bytes(4096 - 1616)
    assert read(device, buffer.address, np.uint8, 4096).tobytes() == expected


def test_nothing_of_no_bytes(device):
    buffer = device.allocate(0, S)
    assert (buffer.address, buffer.nbytes) == (0, 0)
    device.write(0, memoryview(b""), S)
    device.copy(0, 0, 0, S)
    device.fill(0, b"\1", 0, S)
    device.read(0, memoryview(bytearray()), S)
    buffer.close()


def test_memory_is_reused(device):
    free = []
    for _ in range(200):
        device.allocate(64 << 20, S).close()
        device.synchronize(S)
        with device.activate():
            free.append(call("cuMemGetInfo", "test")[0])
    assert free[-1] >= free[1] - (64 << 20)


def test_too_much_memory(device):
    with pytest.raises(
        DeviceError, match=r"allocating \d+ bytes on cuda:0: CUDA_ERROR_OUT_OF_MEMORY: .*Free device memory"
    ):
        device.allocate(1 << 45, S)
    device.allocate(1 << 20, S).close()  # and goes on


# --- modules ---


def test_parameter_layout(module):
    assert module.kernel("reverse").parameter_layout == ((0, 8), (8, 4))
    assert module.kernel("nothing").parameter_layout == ()


def test_a_kernel_that_is_not_there(module):
    with pytest.raises(NotFoundError, match="test has no kernel named 'revers'; nearest: 'reverse'"):
        module.kernel("revers")


def test_ptx_that_does_not_compile_shows_the_log(device):
    broken = bytes(ptx()).replace(b"bar.sync 0", b"bar.sink 0")
    with pytest.raises(
        DeviceError, match=r"(?s)broken: loading it on cuda:0: CUDA_ERROR_INVALID_PTX.*JIT log:.*line \d+"
    ):
        device.load_module(memoryview(broken), "broken")


def test_ptx_that_is_too_new_names_both_versions(device):
    if device.supports_ptx((99, 0)):
        pytest.skip("this driver is newer than the versions known here")
    with pytest.raises(DeviceError, match=r"it is PTX ISA 99\.0, and the driver .* takes PTX up to \d+\.\d"):
        device.load_module(ptx("99.0"), "new")


def test_other_targets_are_refused(device):
    major = device.compute_capability.major
    with pytest.raises(TargetMismatchError, match="the ptx image is for sm_999"):
        device.load_module(ptx(target="sm_999"), "other")
    other = "sm_75" if major != 7 else "sm_90"
    with pytest.raises(TargetMismatchError, match=f"the cubin image is for {other}"):
        device.load_module(memoryview((CUBINS / f"{other}.cubin").read_bytes()), "other")


# --- launches ---


def pointer(buffer):
    return buffer.address.to_bytes(8, "little")


def u32(value):
    return value.to_bytes(4, "little")


def run(device, kernel, config, *parameters):
    launch = device.prepare(kernel, config, parameters)
    with device.activate():
        launch.run(S)
    return launch


@pytest.mark.parametrize("shared", [4096, 48 << 10, 64 << 10, "limit"])
def test_dynamic_shared_memory(device, module, shared):
    nbytes = device.max_shared_memory_per_block if shared == "limit" else shared
    out = device.allocate(4096, S)
    config = LaunchConfig((1, 1, 1), (1024, 1, 1), nbytes)
    run(device, module.kernel("reverse"), config, pointer(out), u32(nbytes - 4))
    np.testing.assert_array_equal(read(device, out.address, np.int32, 1024), np.arange(1024))


def test_set_parameter(device, module):
    first, second = device.allocate(128, S), device.allocate(128, S)
    config = LaunchConfig((1, 1, 1), (32, 1, 1), 128)
    launch = run(device, module.kernel("reverse"), config, pointer(first), u32(124))
    launch.set_parameter(0, pointer(second))
    with device.activate():
        launch.run(S)
    for buffer in (first, second):
        np.testing.assert_array_equal(read(device, buffer.address, np.int32, 32), np.arange(32))


@pytest.mark.parametrize(
    ("grid", "block", "shared", "message"),
    [
        ((1, 65536, 1), (1, 1, 1), 0, "grid size 65536 along y; cuda:0 takes 0 to 65535"),
        ((2**31, 1, 1), (1, 1, 1), 0, "grid size 2147483648 along x"),
        ((1, 1, -1), (1, 1, 1), 0, "grid size -1 along z"),
        ((1, 1, 1), (2048, 1, 1), 0, "block size 2048 along x"),
        ((1, 1, 1), (0, 1, 1), 0, "block size 0 along x; cuda:0 takes 1"),
        ((1, 1, 1), (32, 32, 2), 0, "2048 threads in a block"),
        ((1, 1, 1), (1, 1, 1), 1 << 20, r"needs 1048576 bytes of shared memory in a block; cuda:0 has at most \d+"),
    ],
)
def test_geometry_over_the_limits(device, module, grid, block, shared, message):
    with pytest.raises(InputError, match=message):
        device.prepare(module.kernel("nothing"), LaunchConfig(grid, block, shared), ())


def test_parameters_that_do_not_fit(device, module):
    config = LaunchConfig((1, 1, 1), (1, 1, 1), 0)
    with pytest.raises(InputError, match="takes 2 parameters, 1 were given"):
        device.prepare(module.kernel("reverse"), config, (bytes(8),))
    with pytest.raises(InputError, match="parameter 1 has 4 bytes, 8 were given"):
        device.prepare(module.kernel("reverse"), config, (bytes(8), bytes(8)))


def test_an_empty_grid_does_nothing(device, module):
    run(device, module.kernel("reverse"), LaunchConfig((0, 1, 1), (32, 1, 1), 0), bytes(8), bytes(4))
    device.synchronize(S)


def test_a_kernel_without_parameters(device, module):
    run(device, module.kernel("nothing"), LaunchConfig((2, 3, 4), (1, 1, 1), 0))
    device.synchronize(S)


# --- contexts, threads, streams ---


def test_the_callers_context_stays_current(device):
    def current():
        return int(call("cuCtxGetCurrent", "test"))

    before = current()
    device.allocate(64, S).close()
    with device.activate(), device.activate():
        assert current() != 0
    assert current() == before


def test_from_threads_without_a_context(device, module):
    wrong = []

    def work():
        out = device.allocate(4096, S)
        config = LaunchConfig((1, 1, 1), (1024, 1, 1), 4096)
        run(device, module.kernel("reverse"), config, pointer(out), u32(4092))
        if not np.array_equal(read(device, out.address, np.int32, 1024), np.arange(1024)):
            wrong.append(out)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_order_between_streams(device):
    non_blocking = driver().CUstream_flags.CU_STREAM_NON_BLOCKING.value
    with device.activate():
        streams = [int(call("cuStreamCreate", "test", non_blocking)) for _ in range(2)]
    size = 256 << 20
    buffer = device.allocate(size, streams[0])
    for value in range(1, 6):
        device.fill(buffer.address, bytes([value]), size, streams[0])
        device.order(streams[0], streams[1])
        last = np.empty(16, np.uint8)
        device.read(buffer.address + size - 16, memoryview(last), streams[1])
        assert set(last.tolist()) == {value}
        device.order(streams[1], streams[0])
    buffer.close()
    with device.activate():
        for stream in streams:
            call("cuStreamSynchronize", "test", stream)
            call("cuStreamDestroy", "test", stream)


def test_two_devices(device):
    if device_count() < 2:
        pytest.skip("needs two devices")
    other = resolve_device("cuda:1")
    assert other is not device
    buffer = other.allocate(64, S)
    other.fill(buffer.address, b"\7", 64, S)
    assert other.owns(buffer.address)
    assert not device.owns(buffer.address)
    np.testing.assert_array_equal(read(other, buffer.address, np.uint8, 64), 7)


def test_no_such_device():
    with pytest.raises(DeviceError, match=rf"there is no device cuda:99: the driver shows {device_count()} devices"):
        resolve_device("cuda:99")


FAULT = """
import sys
sys.path.insert(0, {here!r})
from test_cuda_device import ptx, LaunchConfig, resolve_device
device = resolve_device("cuda:0")
kernel = device.load_module(ptx(), "test").kernel("reverse")
config = LaunchConfig((1, 1, 1), (32, 1, 1), 128)
launch = device.prepare(kernel, config, ((8).to_bytes(8, "little"), bytes([124, 0, 0, 0])))
with device.activate():
    launch.run(1)
device.synchronize(1)
"""


def test_a_kernel_that_accesses_memory_out_of_bounds():
    code = FAULT.format(here=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "DeviceError: waiting for work on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr
    assert "the process must start anew" in done.stderr
