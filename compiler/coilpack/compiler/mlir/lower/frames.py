"""Gives operations a frame of their own in tracebacks, as if the MLIR file were code that Python executes.

torch.fx keeps with each node the frames of functions called `forward`; errors about a node, and the locations in a
package, name the innermost one. With these frames that is the line of the MLIR file.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

_CALL: Callable[..., Any] = lambda function, *arguments: function(*arguments)  # noqa: E731 - one line, for its number


def called_at(file: str, line: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function` returns for `arguments`, called from line `line` of `file`."""
    assert isinstance(_CALL, FunctionType)
    code = _CALL.__code__.replace(co_name="forward", co_filename=file, co_firstlineno=line)
    return FunctionType(code, {})(function, *arguments)
