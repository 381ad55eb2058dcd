"""Executables of every released writer stay readable."""

from __future__ import annotations

from pathlib import Path

from coilpack.runtime.executable import BindingFlags, SourceLocation, read_executable

FOLDER = Path(__file__).parent / "executables"


def test_0_1_0():
    read = read_executable((FOLDER / "full-0.1.0.cda1").read_bytes())
    assert [(e.export_name, e.kernel_name, e.symbol, e.module_ordinal) for e in read.exports] == [
        ("add$one", "add_one", "add_one", 0),
        (None, "twice", "twice", 0),
        ("\u30ab\u30fc\u30cd\u30eb", "k", "k", 1),
    ]
    first, second, third = read.exports
    assert (first.block_dims, first.constant_count, first.shared_memory_bytes) == ((128, 2, 1), 1, 0)
    assert first.binding_flags == (BindingFlags.READ_ONLY, BindingFlags.READ_ONLY | BindingFlags.INDIRECT)
    assert (second.shared_memory_bytes, second.location) == (4096, SourceLocation("m.py", 7))
    assert (third.debug_name, third.location) == ("kernel", None)
    assert [len(image) for image in read.modules] == [299, 57]
    assert [(file.path, bytes(file.content)) for file in read.source_files] == [("m.py", b"pass\n")]
    assert read.target == "sm_80"
