"""What is refused says so in these words, and the published coverage is that of the rows as they are."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

import coverage_page  # noqa: E402
from core_operations import REFUSED  # noqa: E402
from in_process import compile_in_process, export  # noqa: E402

from coilpack.runtime.errors import UnsupportedError  # noqa: E402


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_the_operation_and_its_line(name) -> None:
    before, after = map(re.escape, REFUSED[name].message.split("{where}"))
    with pytest.raises(UnsupportedError) as caught:
        compile_in_process({"main": export(*REFUSED[name].row())})
    assert re.fullmatch(rf"{before}\S+\.py:\d+{after}", str(caught.value))


def test_the_published_coverage_is_current() -> None:
    published = coverage_page.PAGE.read_text(encoding="utf-8")
    if f" {coverage_page.TORCH} " not in published:
        pytest.skip(f"the page is of another torch than {coverage_page.TORCH}, whose exports differ")
    assert published == coverage_page.page(), "run `python tests/compile/coverage_page.py --write`"


def test_nine_tenths_of_at_least_120_rows_run() -> None:
    total = len(coverage_page.RUNNING) + len(REFUSED)
    assert total >= 120
    assert len(coverage_page.RUNNING) >= 0.9 * total
