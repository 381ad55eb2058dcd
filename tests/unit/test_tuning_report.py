"""Tuning reports: written and read back, and what is refused with the name of the field."""

from __future__ import annotations

import json

import pytest

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.tuning.report import (
    MAX_BYTES,
    Candidate,
    FunctionTime,
    KernelChoice,
    TuningReport,
)

REPORT = TuningReport(
    producer="coilpack 0.1.0",
    package="ab" * 32,
    device="cuda:0",
    description="NVIDIA H200 (sm_90)",
    target="sm_90a",
    unit="us",
    functions=(FunctionTime("größe", {"s0": 16, "s1": 1}, 214.5, 190.0),),
    kernels=(
        KernelChoice(
            "k",
            12,
            (
                Candidate("k", "0123", "XBLOCK=256 num_warps=4 num_stages=1", 5.5),
                Candidate("k.c1", "0123", "XBLOCK=512 num_warps=8 num_stages=1", None, "needs too much"),
                Candidate("k.c2", "0123", "XBLOCK=128 num_warps=2 num_stages=1", 4.4),
            ),
            2,
        ),
    ),
)


def test_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(REPORT.to_json())
    assert TuningReport.read(path) == REPORT
    assert TuningReport.from_json(REPORT.to_json().encode(), "r").to_json() == REPORT.to_json()
    assert REPORT.choices == {"k": "k.c2"}
    assert REPORT.kernels[0].gain == pytest.approx(1.25)


def _broken(change) -> str:
    document = json.loads(REPORT.to_json())
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda d: d.update(format="other"), "format"),
        (lambda d: d.update(version=2), "version"),
        (lambda d: d.update(version=True), "version"),
        (lambda d: d.pop("unit"), "unit: it is missing"),
        (lambda d: d.update(more=1), "more: there is no such field"),
        (lambda d: d.update(device=3), "device: it is '3'"),
        (lambda d: d.update(kernels={}), "kernels"),
        (lambda d: d["kernels"].append(d["kernels"][0]), "kernels[1].kernel"),
        (lambda d: d["kernels"][0].update(launches=0), "kernels[0].launches"),
        (lambda d: d["kernels"][0].update(choice=3), "kernels[0].choice"),
        (lambda d: d["kernels"][0].update(choice=1), "kernels[0].choice"),
        (lambda d: d["kernels"][0].update(kernel="x"), "kernels[0].candidates"),
        (lambda d: d["kernels"][0]["candidates"].clear(), "kernels[0].candidates"),
        (lambda d: d["kernels"][0]["candidates"][0].update(time=-1), "kernels[0].candidates[0].time"),
        (lambda d: d["kernels"][0]["candidates"][0].update(time=float("inf")), "Infinity"),
        (lambda d: d["kernels"][0]["candidates"][0].update(error="both"), "kernels[0].candidates[0]"),
        (lambda d: d["kernels"][0]["candidates"][1].update(kernel="k"), "kernels[0].candidates"),
        (lambda d: d["functions"][0].update(sizes={"s0": 2**70}), "functions[0].sizes['s0']"),
    ],
)
def test_what_is_wrong_is_named(change, where):
    with pytest.raises(InvalidFileError) as error:
        TuningReport.from_json(_broken(change), "r.json")
    assert str(error.value).startswith("r.json: ")
    assert where in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}', "[" * 100_000, " " * (MAX_BYTES + 1)])
def test_what_is_no_report_at_all(text):
    with pytest.raises(InvalidFileError):
        TuningReport.from_json(text, "r.json")


def test_every_cut_is_refused():
    whole = REPORT.to_json().rstrip()
    for end in range(len(whole)):
        with pytest.raises(InvalidFileError):
            TuningReport.from_json(whole[:end], "r.json")
