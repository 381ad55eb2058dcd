"""Writes a program as a folder for IREE's compiler, and says how to go on from there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from coilpack.compiler.iree.abi import iree_kernel
from coilpack.compiler.iree.executables import HostKernel
from coilpack.compiler.iree.host import SCOPE, host_module
from coilpack.compiler.iree.text import element_type, unique
from coilpack.runtime.atomic import atomic_folder, write_atomically
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import InputError, UnsupportedError
from coilpack.runtime.executable import Executable
from coilpack.runtime.package.writer import StorageData, write_weights
from coilpack.runtime.program import ir
from coilpack.runtime.program.expr import evaluate

MODULE, WEIGHTS, KERNELS = "module.mlir", "weights.safetensors", "kernels"
_HEADER: Final = "// Written by coilpack compile --emit iree. "
_COMPILED: Final = "module.vmfb"  # what the command that we name makes; it goes when the folder is written again
# What a folder that was written here holds: files, but for the folder of kernels.
_OURS: Final = re.compile(rf"{MODULE}|{WEIGHTS}|{_COMPILED}|{KERNELS}(/(\d{{3,}}_.*|copy\.\d+(_\d+)?)\.ptx)?")
_MAX_FILE_NAME: Final = 100  # characters of a kernel's name in its file's


def write_folder(output: Path, program: ir.Program, executable: Executable, storages: Sequence[StorageData]) -> None:
    """Writes `module.mlir`, `kernels/*.ptx` and, where there are weights, `weights.safetensors`.

    Args:
        output: the folder; it appears whole or not at all, and replaces one that was written here or is empty.
        program: a program of one target.
        executable: the kernels of that target, as PTX.
        storages: the content of the program's storages.

    Raises:
        UnsupportedError: something of the program cannot be expressed for IREE.
        InputError: the folder cannot be written, or holds other files.
    """
    (target,) = program.targets
    kernels = _kernels(target, executable)
    module = host_module(target, kernels)
    with atomic_folder(output, lambda: check_folder(output)) as folder:
        (folder / KERNELS).mkdir()
        for kernel in module.kernels.values():
            write_atomically(folder / kernel.path, kernel.abi.ptx.encode())
        if storages:
            write_weights(folder / WEIGHTS, program, storages)
        text = f"{_HEADER}Compile it with:\n//   {compile_command(Path('.'))}\n{module.text()}"
        write_atomically(folder / MODULE, text.encode())


def check_folder(output: Path) -> None:
    """Refuses a folder with files that would be lost, or the current one: it must be empty, or written here."""
    if not output.exists():
        return
    if not output.is_dir():
        raise InputError(f"{str(output)!r} is a file; --emit iree writes a folder")
    if Path.cwd().is_relative_to(output.resolve()):
        raise InputError(f"{str(output)!r} is the current folder, which cannot be replaced; name one in it")
    module = output / MODULE
    ours = module.is_file() and module.read_bytes()[: len(_HEADER)] == _HEADER.encode()
    strange = sorted(path for path in output.rglob("*") if not (ours and _is_ours(path, output)))
    if strange:
        raise InputError(
            f"the folder {str(output)!r} holds {str(strange[0].relative_to(output))!r}, which coilpack did not write; "
            "name another, or empty it"
        )


def _is_ours(path: Path, folder: Path) -> bool:
    """Whether `path` is what `write_folder`, or the command that we name, puts into `folder`."""
    name = path.relative_to(folder).as_posix()
    return _OURS.fullmatch(name) is not None and path.is_dir() == (name == KERNELS)


def _kernels(target: ir.Target, executable: Executable) -> dict[str, HostKernel]:
    """What each kernel of the program becomes, by its export name."""
    made: dict[str, HostKernel] = {}
    names = {function.name for function in target.functions}
    exports = {export.name: export for export in executable.exports}
    for ordinal, kernel in enumerate(target.kernels):
        if kernel.cooperative:
            raise UnsupportedError(
                f"kernel {kernel.export_name!r} needs all its workgroups resident at once, which IREE does not "
                "promise: emit a package"
            )
        export = exports[kernel.export_name]
        ptx = bytes(executable.modules[export.module_ordinal]).decode()
        made[kernel.export_name] = HostKernel(
            symbol=export.symbol,
            executable=unique(export.symbol, names),
            path=f"{KERNELS}/{ordinal:03}_{export.symbol[:_MAX_FILE_NAME]}.ptx",
            parameters=kernel.parameters,
            abi=iree_kernel(ptx, export.symbol, kernel.parameters),
            block_dims=export.block_dims,
            shared_memory_bytes=export.shared_memory_bytes,
        )
    return made


# --- how to go on ---


def next_commands(folder: Path, program: ir.Program) -> tuple[str, ...]:
    """What makes a module of the folder, and runs its first function, where it has any, on zeros."""
    return (compile_command(folder), *([run_command(folder, program)] if program.signatures else []))


def compile_command(folder: Path) -> str:
    """The command that makes a module of the folder."""
    return shlex.join(
        [
            "iree-compile",
            str(folder / MODULE),
            f"--iree-hal-executable-object-search-path={folder}",
            "-o",
            str(folder / _COMPILED),
        ]
    )


def run_command(folder: Path, program: ir.Program) -> str:
    """A command that runs the first function of the module, on zeros."""
    signature = program.signatures[0]
    words = ["iree-run-module", "--device=cuda", f"--module={folder / _COMPILED}"]
    if program.storages:
        words.append(f"--parameters={SCOPE}={folder / WEIGHTS}")
    sizes = {symbol.name: symbol.minimum for symbol in signature.symbols}
    words.append(f"--function={signature.name}")
    return shlex.join([*words, *(f"--input={_zeros(argument, sizes)}" for argument in signature.inputs)])


def _zeros(argument: ir.Argument, sizes: Mapping[str, int]) -> str:
    """An input as `iree-run-module` reads it."""
    if argument.value is not None:
        return str(evaluate(argument.value, sizes))
    shape = [evaluate(size, sizes) for size in argument.type.shape]
    element = element_type(argument.type.dtype)[1]
    if element.startswith("complex"):
        return f"@{argument.name or 'input'}.npy"  # the command reads them from files only
    if argument.type.dtype is DType.i1:
        element = "i8"  # the command reads i1 as hexadecimal digits, and takes i8 for it
    return "x".join([*map(str, shape), element]) + ("" if shape else "=0")
