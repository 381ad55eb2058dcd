"""What `.pt2` files are refused for, in words that name the file and the reason."""

from __future__ import annotations

import re
import zipfile

import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import export  # noqa: E402

from coilpack.compiler.frontends import load_program  # noqa: E402
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
        ("weights/weight_0", lambda d: d[:10], "size 10 is not a multiple"),
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
