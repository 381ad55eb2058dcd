"""Tuning through the emulator, whose cost of a launch is the number of instructions that it executes."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
from tuning_samples import ADDS, EXPECTED, LOOPS, SCALES, TOKENS, X, write_tunable

from coilpack import runtime
from coilpack.cli.main import main
from coilpack.runtime.devices.emulator.device import Emulator
from coilpack.runtime.devices.emulator.stopwatch import EmulatorStopwatch
from coilpack.runtime.errors import DeviceError, InputError, InvalidFileError, NotFoundError, TargetMismatchError
from coilpack.runtime.package import Package
from coilpack.runtime.tuning.measure import LostDeviceError
from coilpack.runtime.tuning.report import TuningReport


@pytest.fixture
def package(tmp_path):
    return write_tunable(tmp_path / "m.coil")


def tune(package, device="emulator", **options):
    return runtime.tune(package, package.with_name("tuned.coil"), device, **options)


def kernels_of(path):
    with Package.open(path) as package:
        (target,) = package.program.targets
        return {kernel.export_name for kernel in target.kernels}


def test_takes_the_fastest_that_is_right(package):
    report = tune(package)
    scale, add = report.kernels
    assert report.choices == {"scale$1": "scale$1.fast", "add": "add.fast"}
    times = {candidate.kernel: candidate.time for candidate in scale.candidates}
    assert times["scale$1"] - times["scale$1.fast"] == 20
    assert times["scale$1.slower"] - times["scale$1"] == 10
    assert scale.gain == times["scale$1"] / times["scale$1.fast"]
    assert (scale.launches, add.launches) == (1, 2)
    assert scale.winner.configuration == "BLOCK=32 scale$1.fast"
    (call,) = report.functions
    assert call.before - call.after == 20 + 2 * 5
    assert report.unit == "instructions"
    assert kernels_of(package.with_name("tuned.coil")) == {"scale$1.fast", "add.fast"}
    assert kernels_of(package) == {*SCALES, *ADDS}
    assert TuningReport.read(package.with_name("tuned.coil.tuning.json")) == report
    assert not package.with_name("tuned.coil.tuning.part").exists()


def test_those_that_are_wrong_or_refused_are_out_with_a_reason(package):
    (scale, add) = tune(package).kernels
    errors = {candidate.kernel.partition(".")[2]: candidate.error for candidate in scale.candidates if candidate.error}
    assert errors.keys() == {"wrong", "idle", "wild", "large"}
    assert "its results differ from those of scale$1: arena 0, bytes 0 to 16: element" in errors["wrong"]
    assert "element 0 is nan" in errors["idle"]
    assert "200000 bytes of shared memory" in errors["large"]
    assert "kernel k4" in errors["wild"]
    assert not any(candidate.error for candidate in add.candidates)  # which adds in place, measured or not


def test_what_is_written_computes_the_same(package):
    tune(package)
    for path in (package, package.with_name("tuned.coil")):
        with runtime.open(path, "emulator") as program:
            np.testing.assert_array_equal(program(X, TOKENS).numpy(), EXPECTED)


def test_the_sum_over_sizes_decides(tmp_path):
    package = write_tunable(tmp_path / "m.coil", ("dynamic",), LOOPS)
    few = tune(package, sizes=[{"n": 32}])
    assert few.choices == {"scale$1": "scale$1.loop"}
    many = tune(package, sizes=[{"n": 32}, {"n": 320}])
    assert many.choices == {"scale$1": "scale$1"}
    assert [item.sizes for item in many.functions] == [{"n": 32}, {"n": 320}]
    assert many.kernels[0].launches == 2
    single = [tune(package, sizes=[{"n": n}]).kernels[0].candidates[1].time for n in (32, 320)]
    assert many.kernels[0].candidates[1].time == sum(single) / 2


def test_calls_that_launch_nothing(tmp_path):
    package = write_tunable(tmp_path / "m.coil", ("dynamic",), LOOPS, minimum=0)
    with pytest.raises(InputError, match=r"no kernel that has candidates is launched in dynamic \(n=0\)"):
        tune(package, sizes=[{"n": 0}])
    assert [path.name for path in tmp_path.iterdir()] == ["m.coil"]
    both = tune(package, sizes=[{"n": 0}, {"n": 32}])
    assert both.choices == {"scale$1": "scale$1.loop"}
    assert [(item.before, item.after < item.before) for item in both.functions[:1]] == [(0, False)]


def test_kernels_that_are_not_launched_keep_their_first_candidate(tmp_path):
    package, lines = write_tunable(tmp_path / "m.coil", ("main", "dynamic"), LOOPS, ADDS), []
    tune(package, functions=["dynamic"], sizes=[{"n": 32}], progress=lines.append)
    assert "kernels that these calls do not launch keep their first candidates: 1 (add)" in lines
    assert kernels_of(package.with_name("tuned.coil")) == {"scale$1.loop", "add"}


def test_inputs_may_be_given(tmp_path):
    package = write_tunable(tmp_path / "m.coil", ("main", "dynamic"), LOOPS)
    report = tune(package, functions=["dynamic"], inputs={"dynamic": [np.zeros(40, np.float32)]})
    assert [(item.function, item.sizes) for item in report.functions] == [("dynamic", {"n": 40})]


def without_addresses(report):
    """The report as text; of a wild access the emulator says the address and the buffer."""
    return re.sub("0x[0-9a-f]+|buffer [0-9]+", "", report.to_json())


def test_is_the_same_each_time(package):
    assert without_addresses(tune(package)) == without_addresses(tune(package))


# --- interruption ---


class Interrupted(KeyboardInterrupt):
    pass


def interrupt_at(text, lines):
    def progress(line):
        lines.append(line)
        if line.startswith(text):
            raise Interrupted

    return progress


def test_goes_on_after_an_interruption(package):
    record, output = (package.with_name(f"tuned.coil{suffix}") for suffix in (".tuning.part", ""))
    expected = without_addresses(tune(package))
    output.unlink()
    lines: list[str] = []
    with pytest.raises(Interrupted):
        tune(package, progress=interrupt_at("kernel 1 of 2", lines))
    assert record.exists()
    assert not output.exists()
    lines.clear()
    assert without_addresses(tune(package, progress=lines.append)) == expected
    assert f"going on with what {record} holds: 1 measured" in lines
    assert [line[:13] for line in lines if line.startswith("kernel")] == ["kernel 2 of 2"]
    assert output.exists()
    assert not record.exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d["identity"].update(package="0"), "of another package"),
        (lambda d: d["identity"].update(device="NVIDIA H200 (sm_90)"), "of another device"),
        (lambda d: d["identity"].update(driver="13.0"), "of another version of the driver"),
        (lambda d: d["identity"].update(calls="0"), "of other functions, sizes or inputs"),
        (lambda d: d.update(version=9), "version: it is 9"),
        (lambda d: next(iter(d["launches"].values()))[0].update(cold="1"), "cold: it is '1'"),
    ],
)
def test_begins_anew_where_the_record_is_of_something_else(package, change, reason):
    record, lines = package.with_name("tuned.coil.tuning.part"), []
    with pytest.raises(Interrupted):
        tune(package, progress=interrupt_at("kernel 2", []))
    document = json.loads(record.read_text())
    change(document)
    record.write_text(json.dumps(document))
    tune(package, progress=lines.append)
    assert [line for line in lines if reason in line and line.endswith("everything is measured anew")]
    assert len([line for line in lines if line.startswith("kernel")]) == 2


def test_measures_again_what_the_record_has_a_part_of(package):
    record, lines = package.with_name("tuned.coil.tuning.part"), []
    with pytest.raises(Interrupted):
        tune(package, progress=interrupt_at("kernel 2", []))
    document = json.loads(record.read_text())
    next(iter(document["launches"].values()))[0]["hot"] = None
    record.write_text(json.dumps(document))
    tune(package, progress=lines.append)
    assert len([line for line in lines if line.startswith("kernel")]) == 1


def test_restart_ignores_the_record(package):
    with pytest.raises(Interrupted):
        tune(package, progress=interrupt_at("kernel 2", []))
    lines: list[str] = []
    tune(package, progress=lines.append, restart=True)
    assert len([line for line in lines if line.startswith("kernel")]) == 2


class FragileEmulator(Emulator):
    """A device on which nothing works any more once a kernel has failed."""

    failed = False

    def execute(self, *arguments):
        try:
            super().execute(*arguments)
        except DeviceError:
            self.failed = True
            raise

    def synchronize(self, stream):
        super().synchronize(stream)
        if self.failed:
            raise DeviceError("waiting for work: the context is lost")

    def trim(self):
        if self.failed:
            self.failed = False  # once is enough
            raise DeviceError("trimming memory: the context is lost")


def test_goes_on_without_a_candidate_that_the_device_did_not_survive(package):
    with pytest.raises(LostDeviceError, match=r"scale\$1\.wild has failed, and the device with it: waiting for work"):
        tune(package, FragileEmulator())
    report = tune(package, FragileEmulator())
    errors = {candidate.kernel: candidate.error for candidate in report.kernels[0].candidates}
    assert "has failed, and the device with it" in errors["scale$1.wild"]
    assert report.choices == {"scale$1": "scale$1.fast", "add": "add.fast"}


# --- what is refused ---


def test_the_emulator_is_taken_only_when_it_is_asked_for(package, monkeypatch):
    monkeypatch.setattr("coilpack.runtime.tuning.tune.resolve_device", lambda _: Emulator())
    with pytest.raises(InputError, match="--device emulator"):
        tune(package, "auto")


def test_a_package_without_candidates(package):
    tuned = package.with_name("tuned.coil")
    tune(package)
    with pytest.raises(InputError, match="--candidates"):
        runtime.tune(tuned, package.with_name("again.coil"), "emulator")


def test_a_device_that_there_is_no_code_for(package, monkeypatch):
    with Package.open(package) as opened:
        program = opened.program
    newer = dataclasses.replace(program, targets=tuple(dataclasses.replace(t, name="sm_90a") for t in program.targets))
    monkeypatch.setattr(Package, "program", newer)
    with pytest.raises(TargetMismatchError, match="sm_90a"):
        tune(package)


@pytest.mark.parametrize(
    ("output", "report", "message"),
    [
        ("./m.coil", None, "m.coil: it would replace the package that is tuned"),
        ("t.coil", "./m.coil", "m.coil: it would replace the package that is tuned"),
        ("t.coil", "./t.coil", "must be different files"),
        ("t.coil", "t.coil.tuning.part", "must be different files"),
        ("t.coil", "none/r.json", "cannot be written: there is no folder"),
        ("none/t.coil", None, "cannot be written: there is no folder"),
        (".", None, "it is a folder"),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_measuring(package, output, report, message):
    before, lines = package.read_bytes(), []
    paths = [name and f"{package.parent}/{name}" for name in (output, report)]
    with pytest.raises(InputError, match=message):
        runtime.tune(package, paths[0], "emulator", report=paths[1], progress=lines.append)
    assert not lines
    assert package.read_bytes() == before
    assert [path.name for path in package.parent.iterdir()] == ["m.coil"]


def test_a_package_that_is_not_there(package):
    with pytest.raises(InvalidFileError, match="cannot be opened"):
        runtime.tune(package.with_name("none.coil"), package, "emulator")


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({}, InputError, r"dynamic: say at which sizes .* n=N .*argument 0 \('x'\): dimension 0 \(n\), 1 to 1000"),
        ({"sizes": [{"n": 1001}]}, InputError, "1 to 1000"),
        ({"sizes": [{"n": 10**30}]}, InputError, f"is {10**30}; it must be 1 to 1000"),
        ({"sizes": [{"n": 1.5}]}, InputError, "size n: is a float"),
        ({"sizes": [{"k": 1}]}, NotFoundError, "'k'"),
        ({"functions": ["other"]}, NotFoundError, "'other'"),
        ({"functions": ["dynamic"], "inputs": {"main": []}}, NotFoundError, "'main'"),
        ({"functions": ["dynamic"], "inputs": {"dynamic": [np.zeros((2, 2), np.float32)]}}, InputError, "2 dimensions"),
        ({"functions": ["dynamic"], "inputs": {"dynamic": [np.zeros(2)]}}, InputError, "f64"),
        ({"sizes": [{"n": 1}], "budget": 0}, InputError, "budget"),
    ],
)
def test_what_is_refused(tmp_path, options, kind, message):
    package = write_tunable(tmp_path / "m.coil", ("main", "dynamic"), LOOPS)
    with pytest.raises(kind, match=message):
        tune(package, **options)
    assert not package.with_name("tuned.coil").exists()


# --- whole calls decide ---


class CachedStopwatch(EmulatorStopwatch):
    """A stopwatch of a device with caches: what a launch takes is up to a function of its instructions."""

    is_exact = False

    def __init__(self, executed, cost):
        super().__init__(executed)
        self._cost, self._flushed, self._cold = cost, False, 0

    def flush(self):
        self._flushed = self._executed()

    def start(self):
        super().start()
        self._cold = self._flushed == self._began

    def stop(self):
        instructions = self._executed() - self._began
        self._samples.append(float(self._cost(instructions, self._cold)))


class CachedEmulator(Emulator):
    def __init__(self, cost):
        super().__init__()
        self._cost = cost

    def stopwatch(self, stream):
        del stream
        return CachedStopwatch(lambda: self.instructions, self._cost)


CALL = 50  # a call of main executes more instructions, a launch fewer


def test_times_with_warm_caches_are_tried_too(package):
    """Where a flushed cache favours the slow ones, and calls in a row show that they are slow."""
    device = CachedEmulator(lambda instructions, cold: 1000 - instructions if cold else instructions)
    report = tune(package, device, budget=0.01)
    assert report.choices == {"scale$1": "scale$1.fast", "add": "add.fast"}
    (call,) = report.functions
    assert call.before - call.after == 20 + 2 * 5


def test_is_never_slower_than_before(package):
    """Where launches by themselves favour the slow ones: the untuned selection is kept."""
    device = CachedEmulator(lambda instructions, _: instructions if instructions > CALL else 1000 - instructions)
    report = tune(package, device, budget=0.01)
    assert report.choices == {"scale$1": "scale$1", "add": "add"}
    (call,) = report.functions
    assert call.before == call.after
    slower = report.kernels[0].candidates[1]
    assert slower.time < report.kernels[0].candidates[0].time  # and yet it was not taken


# --- the command ---


def test_the_command(package, capsys):
    output, report = package.with_name("tuned.coil"), package.with_name("r.json")
    arguments = ["tune", str(package), "-o", str(output), "--device", "emulator", "--report", str(report)]
    assert main([*arguments, "--input", "4xf32=1,2,3,4", "--input", "2xi64"]) == 0
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    assert ["scale$1", "8", "37", "->", "17", "+117.6", "%", "BLOCK=32", "scale$1.fast", "4", "(see"] in [
        line[:11] for line in lines
    ]
    assert out.endswith(f"{output}: 2 of 2 kernels replaced by a faster candidate\n")
    assert "kernel 1 of 2: scale$1: 8 candidates, best 17 instructions (-54 %)\n" in err
    assert TuningReport.read(report).choices["add"] == "add.fast"
    assert kernels_of(output) == {"scale$1.fast", "add.fast"}


def test_the_command_takes_combinations_of_sizes(tmp_path, capsys):
    package = write_tunable(tmp_path / "m.coil", ("dynamic",), LOOPS)
    arguments = ["tune", str(package), "-o", str(tmp_path / "t.coil"), "--device", "emulator"]
    assert main([*arguments, "--size", "n=32", "--size", "n = 320"]) == 0
    assert "n=320" in capsys.readouterr().out
    for wrong in ("n", "n=1,n=2", "n=x", "=1"):
        assert main([*arguments, "--size", wrong]) == 2
    assert main([*arguments, "--size", "n=1", "--input", "4xf32"]) == 2


def test_the_command_says_how_to_go_on(package, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("coilpack.runtime.tuning.tune.measure_call", interrupted)
    output = package.with_name("tuned.coil")
    assert main(["tune", str(package), "-o", str(output), "--device", "emulator"]) == 130
    assert f"interrupted: {output} is not written; the same command goes on from here\n" in capsys.readouterr().err
    assert main(["tune", str(package), "-o", str(output), "--device", "emulator", "--restart"]) == 130
    assert "the same command without --restart goes on" in capsys.readouterr().err
    assert package.with_name("tuned.coil.tuning.part").exists()
    assert not output.exists()
