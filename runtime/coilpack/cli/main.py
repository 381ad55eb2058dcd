"""The entry point: the group of sub-commands, and how failures become messages and exit codes.

Exit codes: 0 done; 1 a `CoilpackError` or a file that the system refuses; 2 wrong usage; 70 a fault of this program
(`EX_SOFTWARE` of sysexits.h); 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import NamedTuple

import click

from coilpack.runtime.errors import CoilpackError

EXIT_ERROR, EXIT_FAULT, EXIT_INTERRUPTED = 1, 70, 130


class _Entry(NamedTuple):
    module: str  # its `command` is the click command
    summary: str


# Summaries stand here so that `coilpack --help` imports no sub-command.
_COMMANDS = {
    "compile": _Entry("coilpack.cli.compile_command", "Compile a model into a package, an executable or text."),
    "freeze": _Entry("coilpack.cli.freeze_command", "Tune a model with Inductor on this GPU, into a package."),
    "tune": _Entry("coilpack.cli.tune_command", "Measure the candidates of a package, and keep the fastest."),
    "run": _Entry("coilpack.cli.run_command", "Run a function of a package and print its results."),
    "inspect": _Entry("coilpack.cli.inspect_command", "Show what a .coil, .cda1 or .vmfb file holds."),
    "extract": _Entry("coilpack.cli.extract_command", "Write the executables and the code in a file as files."),
    "verify": _Entry("coilpack.cli.verify_command", "Check every part of a .coil, .cda1 or .vmfb file."),
}


class _LazyGroup(click.Group):
    """A group that imports a sub-command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = _COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = importlib.import_module(entry.module).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(metadata.version("coilpack"), prog_name="coilpack", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Packs PyTorch models into IREE-style executables, and runs them without PyTorch."""
    del debug  # read by `main`, which is where errors end


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code.

    Args:
        arguments: what follows the program's name; by default those of this process.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = cli.main(arguments, prog_name="coilpack", standalone_mode=False)
        sys.stdout.flush()  # a closed pipe must show here, not at interpreter exit
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except Exception as error:
        if "--debug" in arguments:
            raise
        line, code = _explain(error)
        click.echo(f"coilpack: error: {line}", err=True)
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> tuple[str, int]:
    """The line to print for an error, and the exit code."""
    if isinstance(error, CoilpackError):
        return str(error), EXIT_ERROR
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}", EXIT_ERROR
    fault = f"{type(error).__name__}: {error}"
    return f"this is a fault of coilpack: {fault}; `coilpack --debug ...` shows where, please report it", EXIT_FAULT
