"""Tables and progress, drawn on a terminal and plain lines anywhere else; and the end of a command that is told to."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import click


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints rows under a title; columns that hold only numbers are aligned to the right.

    Args:
        title: one line.
        columns: the headings.
        rows: cells, as many in each row as there are columns.
    """
    numeric = [all(isinstance(row[index], int) for row in rows) and bool(rows) for index in range(len(columns))]
    text = [[printable(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(title, columns, text, numeric)
    else:
        _print_plain(title, columns, text, numeric)


def printable(text: str) -> str:
    """Names come from files: what could move the cursor or break a row is shown as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


@contextlib.contextmanager
def progress_printer() -> Iterator[Callable[[str], None]]:
    """Gives a function that shows a message on stderr: the latest one on a terminal, else each on its own line.

    The function may be called from any thread.
    """

    def lines(message: str) -> str:
        return "\n".join(map(printable, message.split("\n")))

    if not sys.stderr.isatty():
        yield lambda message: click.echo(lines(message), err=True)
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status("") as status:
        yield lambda message: status.update(escape(lines(message)))


@contextlib.contextmanager
def orderly_end() -> Iterator[None]:
    """Within it, being told to end unwinds as an interrupt does, so that processes and temporary files go too."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (Python's signature)
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_plain(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    widths = [max(len(row[index]) for row in [columns, *rows]) for index in range(len(columns))]
    click.echo(title)
    for row in [columns, *rows]:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        click.echo(f"  {'  '.join(cells)}".rstrip())


def _print_rich(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    from rich.console import Console  # only where a person looks: it costs 0.1 s
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for column, right in zip(columns, numeric, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # names may hold what rich would read as markup
    Console().print(table)
