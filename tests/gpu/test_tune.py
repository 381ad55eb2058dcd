"""Tuning on each device of this machine, and its stopwatch."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pytest
from tuning_samples import ADDS, EXPECTED, SOURCES, TOKENS, Variant, X, write_tunable

from coilpack import runtime
from coilpack.runtime.package import Package
from coilpack.runtime.tuning.report import TuningReport

S = 1  # the default stream
LOADS = 2000  # one after another

SLOW = SOURCES["scale"].replace(
    "ld.global.f32 %f1, [%rd4];",
    "mov.u32 %r1, 0;\nAGAIN:\nld.volatile.global.f32 %f1, [%rd4];\nadd.u32 %r1, %r1, 1;\n"
    f"setp.lt.u32 %p1, %r1, {LOADS};\n@%p1 bra AGAIN;",
)
SCALES = {
    "scale$1": Variant(SLOW),
    "scale$1.wrong": Variant(SOURCES["scale"].replace("mul.rn.f32", "add.rn.f32")),
    "scale$1.idle": Variant(SOURCES["scale"].replace("st.global.f32 [%rd5], %f3;", "")),
    "scale$1.fast": Variant(SOURCES["scale"]),
}


@pytest.fixture
def package(tmp_path):
    return write_tunable(tmp_path / "m.coil", ("main",), SCALES, ADDS)


def test_takes_the_fastest_that_is_right(package, any_device):
    output = package.with_name("tuned.coil")
    report = runtime.tune(package, output, any_device, budget=2)
    scale, add = report.kernels
    assert scale.winner.kernel == "scale$1.fast"
    assert scale.gain > 2
    errors = {candidate.kernel: candidate.error for candidate in scale.candidates if candidate.error}
    assert errors.keys() == {"scale$1.wrong", "scale$1.idle"}
    assert all("results differ" in error for error in errors.values())
    assert not any(candidate.error for candidate in add.candidates)  # in place: each finds what the first one found
    (call,) = report.functions
    assert call.after < call.before
    assert report.unit == ("instructions" if any_device.name == "emulator" else "us")
    assert report.description == any_device.description
    assert TuningReport.read(f"{output}.tuning.json") == report
    with Package.open(output) as opened:
        assert {k.export_name for k in opened.program.targets[0].kernels} == {"scale$1.fast", add.winner.kernel}
    for path in (package, output):
        with runtime.open(path, any_device) as program:
            np.testing.assert_array_equal(program(X, TOKENS).numpy(), EXPECTED)


def test_an_interrupted_run_goes_on(package, any_device):
    def interrupt(line):
        if line.startswith("kernel 1"):
            raise KeyboardInterrupt

    lines: list[str] = []
    output = package.with_name("tuned.coil")
    with pytest.raises(KeyboardInterrupt):
        runtime.tune(package, output, any_device, budget=2, progress=interrupt)
    report = runtime.tune(package, output, any_device, budget=2, progress=lines.append)
    assert [line.split(":")[0] for line in lines if line.startswith("kernel")] == ["kernel 2 of 2"]
    assert report.kernels[0].winner.kernel == "scale$1.fast"


@pytest.mark.gpu
def test_the_stopwatch_measures_the_device_and_not_the_host(device):
    """A fill takes as long as its bytes, however long the host waits before and after."""
    nbytes = 256 << 20
    memory, watch = device.allocate(nbytes, S), device.stopwatch(S)
    assert (watch.unit, watch.is_exact) == ("us", False)
    with device.activate():
        for part in (1, 1, 4, 1, 4):  # the first one warms up
            watch.flush()
            watch.start()
            device.fill(memory.address, bytes(1), nbytes // part, S)
            watch.stop()
            time.sleep(0.01)
    _, whole, quarter, *again = watch.read()
    assert again == pytest.approx([whole, quarter], rel=0.2)
    assert nbytes / whole / 1e6 == pytest.approx(nbytes / 4 / quarter / 1e6, rel=0.5)  # TB/s
    assert 0.05 < nbytes / whole / 1e6 < 50
    assert watch.read() == []
    watch.close()
    watch.close()
    memory.close()


@pytest.mark.gpu
def test_a_flush_makes_the_next_kernel_read_memory(device):
    """A copy within the cache is faster than one of what a flush has driven out of it."""
    nbytes = device.cache_nbytes // 8
    memory, watch = device.allocate(2 * nbytes, S), device.stopwatch(S)
    device.fill(memory.address, bytes(1), 2 * nbytes, S)

    def copy():
        device.copy(memory.address + nbytes, memory.address, nbytes, S)

    with device.activate():
        for _ in range(50):
            watch.flush()
            watch.start()
            copy()
            watch.stop()
            watch.start()
            copy()
            watch.stop()
    samples = watch.read()
    assert statistics.median(samples[1::2]) < statistics.median(samples[::2])
    watch.close()
    memory.close()
