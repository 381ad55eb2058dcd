"""Which images run on which device, and which is taken."""

from __future__ import annotations

import pytest

from coilpack.runtime.devices.base import ComputeCapability
from coilpack.runtime.errors import InputError
from coilpack.runtime.program import ir
from coilpack.runtime.targets import Architecture, describe_targets, runnable_images

PTX, CUBIN = ir.ImageKind.PTX, ir.ImageKind.CUBIN


@pytest.mark.parametrize(
    ("target", "device", "ptx", "cubin"),
    [
        ("sm_80", (8, 0), True, True),
        ("sm_80", (8, 6), True, True),
        ("sm_86", (8, 0), False, False),
        ("sm_80", (9, 0), True, False),
        ("sm_80", (12, 0), True, False),
        ("sm_90", (8, 9), False, False),
        ("sm_90a", (9, 0), True, True),
        ("sm_90a", (10, 0), False, False),
        ("sm_100a", (10, 3), False, False),
        ("sm_100f", (10, 3), True, True),
        ("sm_100f", (10, 0), True, True),
        ("sm_103f", (10, 0), False, False),
        ("sm_100f", (12, 0), False, False),
        ("sm_100", (12, 1), True, False),
        ("sm_120", (12, 1), True, True),
    ],
)
def test_runs_on(target, device, ptx, cubin):
    architecture = Architecture.parse(target)
    assert str(architecture) == target
    assert architecture.runs_on(ComputeCapability(*device), binary=False) is ptx
    assert architecture.runs_on(ComputeCapability(*device), binary=True) is cubin


@pytest.mark.parametrize("name", ["sm_9", "90", "sm_90b", "compute_90", "sm_90aa", ""])
def test_no_targets(name):
    with pytest.raises(InputError, match="is no target"):
        Architecture.parse(name)


def targets(**kinds):
    return [ir.Target(name, tuple(ir.Image(k, f"{name}.{k.name}") for k in ks), (), ()) for name, ks in kinds.items()]


@pytest.mark.parametrize(
    ("device", "order"),
    [
        ((8, 0), ["sm_80.CUBIN", "sm_80.PTX"]),
        ((8, 6), ["sm_86.PTX", "sm_80.CUBIN", "sm_80.PTX"]),
        ((9, 0), ["sm_90a.CUBIN", "sm_90a.PTX", "sm_90.PTX", "sm_86.PTX", "sm_80.PTX"]),
        ((10, 0), ["sm_90.PTX", "sm_86.PTX", "sm_80.PTX"]),
        ((7, 5), []),
    ],
)
def test_best_first(device, order):
    program = targets(sm_80=(PTX, CUBIN), sm_90a=(PTX, CUBIN), sm_86=(PTX,), sm_90=(PTX,))
    assert [image.entry for _, image in runnable_images(program, ComputeCapability(*device))] == order


def test_describe():
    assert describe_targets(targets(sm_80=(PTX, CUBIN), sm_90a=(PTX,))) == "sm_80 (cubin, ptx), sm_90a (ptx)"
    assert describe_targets([]) == "none"
