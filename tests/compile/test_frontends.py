"""What `.pt2` files are refused for, in words that name the file and the reason."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import export  # noqa: E402

from coilpack.compiler.capture.functionalise import functionalise, tensors  # noqa: E402
from coilpack.compiler.frontends import load_program  # noqa: E402
from coilpack.compiler.pt2 import Pt2File  # noqa: E402
from coilpack.compiler.python_file import import_module  # noqa: E402
from coilpack.compiler.weights import Weights  # noqa: E402
from coilpack.runtime.errors import InvalidFileError, UnsupportedError  # noqa: E402


def _saved(path, module: torch.nn.Module = torch.nn.Linear(4, 4)):  # noqa: B008 (never changed)
    torch.export.save(export(module, (torch.zeros(2, 4),)), path)
    return path


def _changed(path, entry: str, change) -> None:
    """Rewrites one entry of an archive."""
    with zipfile.ZipFile(path) as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, change(data) if name.endswith(entry) else data)


def _of_a_later_schema(model: bytes) -> bytes:
    changed = re.sub(rb'("schema_version": {"major": )\d+', rb"\g<1>99", model)
    assert changed != model
    return changed


def test_a_saved_program_is_loaded(tmp_path) -> None:
    assert load_program(_saved(tmp_path / "model.pt2")).graph_signature.user_inputs == ("input",)


@pytest.mark.parametrize(
    ("entry", "change", "reason"),
    [
        (
            "models/model.json",
            lambda d: d.replace(b'"major": 8', b'"major": 99'),
            r"schema version .*99.* does not match",
        ),
        ("models/model.json", lambda d: d[:100], "Unterminated string"),
        ("weights/weight_0", lambda d: d[:10], r"(size 10 is not a multiple|buffer length \(10 bytes\))"),
    ],
    ids=["newer", "cut", "short weight"],
)
def test_what_torch_cannot_load_says_why(tmp_path, entry: str, change, reason: str) -> None:
    path = _saved(tmp_path / "model.pt2")
    _changed(path, entry, change)
    with pytest.raises(InvalidFileError, match=rf"model\.pt2: torch \S+ cannot load it: .*{reason}"):
        load_program(path)


def test_a_file_of_another_kind(tmp_path) -> None:
    path = tmp_path / "weights.pt2"
    torch.save({"weight": torch.zeros(3)}, path)
    with pytest.raises(InvalidFileError, match=r"weights\.pt2: torch \S+ cannot load it: .*archive_format"):
        load_program(path)


def test_a_custom_operator_that_is_not_registered_is_named(tmp_path) -> None:
    with torch.library._scoped_library("coilpack_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        torch.library.register_fake("coilpack_test::twice", lambda x: torch.empty_like(x), lib=library)

        class Twice(torch.nn.Module):
            def forward(self, x):
                return torch.ops.coilpack_test.twice(x)

        path = _saved(tmp_path / "custom.pt2", Twice())
    with pytest.raises(UnsupportedError, match=r"custom\.pt2: it calls the custom operator coilpack_test\.twice"):
        load_program(path)


def _anonymous_bytes() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of memory")
def test_weights_are_read_without_taking_memory(tmp_path) -> None:
    """Loading a program, making it functional and hashing its weights leaves them where the file has them."""
    path, nbytes = tmp_path / "large.pt2", 4096 * 4096 * 4
    torch.export.save(export(torch.nn.Linear(4096, 4096, bias=False), (torch.zeros(1, 4096),)), path)
    known = frozenset(Pt2File.read(path).digests.values())
    before = _anonymous_bytes()
    program = load_program(path)
    functionalise(program, "main")
    weights = Weights(known)
    places = {name: weights.add(name, tensor) for name, tensor in tensors(program).items()}
    assert _anonymous_bytes() - before < nbytes // 3
    (content,) = weights.storages.values()
    assert (content.data, content.shape) == (None, (4096, 4096))
    assert places["weight"].storage.nbytes == nbytes
    with torch.no_grad():
        assert torch.equal(program.state_dict["weight"][5], torch.export.load(path).state_dict["weight"][5])
        program.state_dict["weight"].zero_()  # of the mapping alone
    assert torch.export.load(path).state_dict["weight"].any()


def test_a_file_that_changes_the_search_path_leaves_it_so_but_for_its_own_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "model.py").write_text("import sys\nsys.path.insert(0, '/models/library')\n")
    before = list(sys.path)
    import_module(tmp_path / "model.py")
    assert sys.path == ["/models/library", *before]
