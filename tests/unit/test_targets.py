"""The table of architectures, and PTX versions."""

import pytest

from coilpack.compiler.targets import TARGETS, choose_ptx_version, format_ptx_version, parse_ptx_version, parse_target
from coilpack.runtime.errors import InputError, NotFoundError


@pytest.mark.parametrize(
    ("name", "optin"),
    [("sm_80", 166_912), ("sm_86", 101_376), ("sm_90", 232_448), ("sm_100", 232_448), ("sm_120", 101_376)],
)
def test_shared_memory_limits(name, optin):
    assert parse_target(name).shared_memory_per_block_optin == optin


def test_names():
    assert parse_target("sm_90") is parse_target("sm_90a") is TARGETS["sm_90"]
    assert parse_target("sm_90").ptx_name == "sm_90a"
    assert (parse_target("sm_120").major, parse_target("sm_120").minor) == (12, 0)


def test_an_unknown_target_lists_the_nearest():
    with pytest.raises(NotFoundError, match=r"no target named 'sm_81'.*'sm_80'"):
        parse_target("sm_81")


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_facts_agree_with_each_other(target):
    assert target.shared_memory_per_block <= target.shared_memory_per_block_optin
    assert target.shared_memory_per_block_optin <= target.shared_memory_per_multiprocessor
    assert target.minimum_ptx_version <= target.default_ptx_version
    assert target.max_threads_per_multiprocessor % target.warp_size == 0
    assert target.name == f"sm_{target.compute_capability}"


def test_ptx_versions():
    assert parse_ptx_version("8.4") == (8, 4)
    assert format_ptx_version((8, 4)) == "8.4"
    assert choose_ptx_version(TARGETS["sm_80"], None) == (8, 7)
    assert choose_ptx_version(TARGETS["sm_80"], (7, 4)) == (7, 4)
    with pytest.raises(InputError, match=r"PTX version 8\.4 does not know sm_120a; ask for 8\.7 or later"):
        choose_ptx_version(TARGETS["sm_120"], (8, 4))


@pytest.mark.parametrize("text", ["", "8", "8.", "8.44", "84", "v8.4", "8.4 "])
def test_malformed_ptx_versions(text):
    with pytest.raises(InputError, match="not of the form"):
        parse_ptx_version(text)
