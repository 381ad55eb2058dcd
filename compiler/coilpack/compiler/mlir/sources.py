"""MLIR files as the user names them: `model.mlir`, or `model.mlir:@function`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from coilpack.compiler.mlir.functions import public_functions
from coilpack.compiler.mlir.parser import parse_module
from coilpack.compiler.mlir.syntax import Module
from coilpack.runtime.errors import InputError, InvalidFileError, NotFoundError

_SOURCE = re.compile(r"(?P<path>.*?\.mlir)(?::@?(?P<function>.+))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MlirSource:
    """A function of an MLIR file; None for the only public one."""

    path: Path
    function: str | None

    @classmethod
    def parse(cls, text: str) -> MlirSource | None:
        """Reads `model.mlir`, `model.mlir:@function` or `model.mlir:function`; None for what is no MLIR file."""
        match = _SOURCE.fullmatch(text)
        return cls(Path(match["path"]), match["function"]) if match else None

    def choose(self, module: Module) -> str:
        """The name of the function in its module.

        Raises:
            InputError: none is named and there is not just one.
            NotFoundError: there is no public function of that name.
        """
        functions = public_functions(module)
        if self.function is None and len(functions) == 1:
            return next(iter(functions))
        if self.function is None:
            listed = ", ".join(f"@{name}" for name in list(functions)[:5]) or "none"
            raise InputError(
                f"{self.path} has {len(functions)} public functions ({listed}); name one as {self.path}:@FUNCTION"
            )
        if self.function not in functions:
            raise NotFoundError("public function", self.function, str(self.path), functions)
        return self.function


def read_module(path: Path) -> Module:
    """Parses an MLIR file.

    Raises:
        InputError: there is no such file.
        CoilpackError: it is not text, or not MLIR that is covered.
    """
    try:
        return parse_module(path.read_text(encoding="utf-8"), file=str(path))
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidFileError(str(path), f"byte {error.start}", "it is not text in UTF-8") from error


def all_functions(text: str) -> dict[str, str]:
    """The source of each public function of an MLIR file by its name; nothing for what is not the name of such a file.

    Raises:
        CoilpackError: it cannot be read, or has no public function.
    """
    source = MlirSource.parse(text)
    if source is None or source.function is not None:
        return {}
    names = public_functions(read_module(source.path))
    if not names:
        raise InputError(f"{source.path} has no public function with a body; there is nothing to compile")
    return {name: f"{source.path}:@{name}" for name in names}
