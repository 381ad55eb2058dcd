"""A process for one piece of work: takes a request on standard input, reports in JSON lines on standard output.

It exports the models of one Python or MLIR file, or compiles one target.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from coilpack.runtime import errors

# Importing torch leaves 400,000 objects, and tracing makes many that stay. At Python's own thresholds a tenth of the
# time goes into looking through them for cycles; at these hardly any, in as much memory.
_COLLECT_AFTER = (20_000, 20, 20)


def _export_callables(path: Path, names: Iterable[tuple[str, str]], progress: Callable[[str], None]) -> None:
    """Exports callables of a Python file, one after the other, so that one model at a time is in memory."""
    from coilpack.compiler.frontends import export_callable

    for number, (name, target) in enumerate(names):
        if number:
            gc.collect()
        progress(f"exporting {path}:{name}")
        export_callable(path, name, Path(target))


def _export_functions(path: Path, names: Iterable[tuple[str, str]], progress: Callable[[str], None]) -> None:
    """Exports functions of an MLIR file."""
    from coilpack.compiler.mlir.lower.export import save_function
    from coilpack.compiler.mlir.sources import MlirSource, read_module

    module = read_module(path)
    for name, target in names:
        chosen = MlirSource(path, name or None).choose(module)
        progress(f"exporting {path}:@{chosen}")
        save_function(module, chosen, Path(target))


_EXPORTERS: Mapping[str, Callable[[Path, Iterable[tuple[str, str]], Callable[[str], None]], None]] = {
    "python": _export_callables,
    "mlir": _export_functions,
}


def _export(request: Mapping[str, Any], progress: Callable[[str], None]) -> None:
    """Exports models of one file."""
    _EXPORTERS[request["exporter"]](Path(request["path"]), request["names"], progress)


def _compile(request: Mapping[str, Any], progress: Callable[[str], None]) -> None:
    """Compiles a target and writes its bundle to the request's `output`."""
    from coilpack.compiler.cache import Cache
    from coilpack.compiler.compile_target import TargetOptions, compile_target
    from coilpack.compiler.frontends import load_program
    from coilpack.compiler.python_file import import_module
    from coilpack.compiler.targets import parse_ptx_version, parse_target
    from coilpack.runtime.program import ir
    from coilpack.runtime.tuning.report import TuningReport

    for path in request["modules"]:
        import_module(Path(path))  # registers the custom operators that its program calls
    bundle = compile_target(
        {name: load_program(Path(path)) for name, path in request["programs"].items()},
        parse_target(request["target"]),
        TargetOptions(
            tuple(ir.ImageKind[kind] for kind in request["image_kinds"]),
            parse_ptx_version(request["ptx_version"]) if request["ptx_version"] else None,
            request["float32_matmul_precision"],
            request["matmul"],
            request["fused_buffers"],
            request["candidates"],
            TuningReport.from_json(request["tuning"], "the tuning report") if request["tuning"] else None,
        ),
        jobs=request["jobs"],
        cache=Cache(Path(request["cache"])) if request["cache"] else None,
        progress=progress,
        elsewhere=frozenset(request["elsewhere"]),
    )
    Path(request["output"]).write_bytes(bundle.to_bytes())


_TASKS: Mapping[str, Callable[[Mapping[str, Any], Callable[[str], None]], None]] = {
    "export": _export,
    "compile": _compile,
}


def serve(request: Mapping[str, Any], out: TextIO) -> None:
    """Does what `request` asks for; see `target_process` for its fields."""
    _TASKS[request["task"]](request, lambda message: _send(out, {"progress": message}))


def _send(out: TextIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


def main() -> None:
    """Serves one request; an error of ours becomes an `error` line, anything else a traceback on standard error."""
    # Libraries print to standard output as they like; the protocol keeps the descriptor for itself.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        serve(json.load(sys.stdin), out)
    except errors.CoilpackError as error:
        _send(out, {"error": str(error), "kind": type(error).__name__})
        sys.exit(1)


if __name__ == "__main__":
    main()
