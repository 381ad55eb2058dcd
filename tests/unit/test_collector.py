"""The collector is off inside, and afterwards as it was before."""

from __future__ import annotations

import gc

import pytest

from coilpack.runtime.collector import no_collections


@pytest.fixture(autouse=True)
def _enabled():
    gc.enable()
    yield
    gc.enable()


def test_it_is_on_again_afterwards():
    with no_collections():
        assert not gc.isenabled()
        with no_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_again_after_an_error():
    with pytest.raises(KeyError), no_collections():
        raise KeyError
    assert gc.isenabled()


def test_it_stays_off_where_the_caller_wants_it_off():
    gc.disable()
    with no_collections():
        pass
    assert not gc.isenabled()
