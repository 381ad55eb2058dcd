"""The cache on disk: what it returns, what damage does, and who may write at once."""

import logging
import multiprocessing
import os

import pytest

from coilpack.compiler.cache import Cache, content_key, default_directory

KEY = content_key(what="test", n=1)


def stored_files(cache):
    return [p for p in cache.directory.rglob("*") if p.is_file()]


def test_what_is_put_is_got(tmp_path):
    cache = Cache(tmp_path / "c")
    assert cache.get(KEY) is None
    for data in (b"", b"\0" * 1000, b"again"):
        cache.put(KEY, data)
        assert cache.get(KEY) == data
    assert len(stored_files(cache)) == 1
    assert Cache(tmp_path / "c").get(KEY) == b"again"


def test_every_damaged_byte_and_every_truncation_counts_as_absent(tmp_path):
    cache = Cache(tmp_path)
    cache.put(KEY, b"data")
    (file,) = stored_files(cache)
    good = file.read_bytes()
    damaged = [good[:n] for n in range(len(good))]
    damaged += [good[:n] + bytes([good[n] ^ 1]) + good[n + 1 :] for n in range(len(good))]
    for content in damaged:
        file.write_bytes(content)
        assert cache.get(KEY) is None
        assert not file.exists()
    cache.put(KEY, b"data")
    assert cache.get(KEY) == b"data"


def test_keys():
    assert content_key(a=1, b=[1, "x"]) == content_key(b=[1, "x"], a=1)
    different = [{"a": 1}, {"a": "1"}, {"a": 1.0}, {"a": True}, {"a": None}, {"a": [1]}, {"b": 1}, {"a": {"a": 1}}]
    assert len({content_key(**parts) for parts in different}) == len(different)
    with pytest.raises(TypeError):
        content_key(a=object())


def test_prune_keeps_what_was_used_last(tmp_path):
    cache = Cache(tmp_path, limit=3000)
    keys = [content_key(n=n) for n in range(4)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(900))
        os.utime(cache.directory / key[:2] / key[2:], (1000 + age, 1000 + age))
    assert cache.get(keys[0]) is not None  # makes it the newest
    assert cache.prune() > 900
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True]
    assert cache.prune() == 0


def test_prune_deletes_what_dead_writers_left_and_spares_the_living(tmp_path):
    cache = Cache(tmp_path)
    cache.put(KEY, b"data")
    (entry,) = stored_files(cache)
    dead, living = entry.parent / ".writing-dead", entry.parent / ".writing-living"
    for file in (dead, living):
        file.write_bytes(b"half")
    os.utime(dead, (1000, 1000))
    cache.prune()
    assert (dead.exists(), living.exists(), entry.exists()) == (False, True, True)


def test_a_directory_that_cannot_be_made_costs_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "c")
    with caplog.at_level(logging.WARNING):
        cache.put(KEY, b"data")
    assert "cannot write the cache" in caplog.text
    assert cache.get(KEY) is None
    assert cache.prune() == 0


def write_and_read(directory):
    cache = Cache(directory)
    for n in range(200):
        key = content_key(n=n % 10)
        data = bytes([n % 10]) * 10_000
        cache.put(key, data)
        if cache.get(key) != data:
            raise AssertionError(f"entry {n % 10} is wrong")


def test_several_processes_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_and_read, args=(tmp_path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [p.exitcode for p in processes] == [0, 0, 0]
    assert len(stored_files(Cache(tmp_path))) == 10


def test_default_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "coilpack"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification says to ignore it
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".cache" / "coilpack"
