"""A bare `@triton.jit` function with the signature that it is compiled for."""

from __future__ import annotations

import ast
from pathlib import Path

from coilpack.compiler import _triton_compat as triton
from coilpack.compiler.arithmetic import add, floor_divide
from coilpack.compiler.capture.configuration import configuration_text
from coilpack.compiler.capture.source_expressions import SIZE_FUNCTIONS, SIZE_OPERATORS, SourceEvaluator
from coilpack.compiler.kernel_options import KernelOptions
from coilpack.compiler.kernels.source import KernelSource
from coilpack.compiler.python_file import import_module
from coilpack.compiler.standalone.model import Candidate, Grid, StandaloneKernel, grid_arguments
from coilpack.compiler.standalone.signature_text import Argument, Constant, Declared, attributes, bind_signature
from coilpack.runtime.errors import InputError, UnsupportedError
from coilpack.runtime.executable.names import unique_kernel_names
from coilpack.runtime.program import wire
from coilpack.runtime.program.expr import Binary, Expr, Symbol


def read_function(path: Path, name: str, options: KernelOptions) -> StandaloneKernel:
    """The function `name` of a Python file, which is run.

    Of an autotuned function all configurations are candidates, in the order of their author: nothing is measured. What
    a heuristic would compute from run-time values is given in the signature.

    Raises:
        InputError: there is no such file or Triton function, or the signature or grid does not fit it.
        NotFoundError: the signature names an argument that there is not.
        UnsupportedError: an argument is of a type that the runtime cannot pass.
    """
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}")
    module = import_module(path)
    found = triton.tuned_function(getattr(module, name, None))
    if found is None:
        known = sorted(n for n, value in vars(module).items() if triton.tuned_function(value) is not None)
        raise InputError(f"{path} has no Triton function {name!r} (decorated by @triton.jit); it has {known}")
    what = f"{path}:{name}"
    candidates = [_candidate(found.function, config, options, what) for config in found.configs]
    return StandaloneKernel(name, candidates)


def _candidate(
    function: triton.JITFunction, config: triton.Configuration, options: KernelOptions, what: str
) -> Candidate:
    arguments = list(function.arg_names)
    tuned = {name: value for name, value in config.values.items() if name in arguments}
    items = bind_signature(options.signature, _declared(function), tuned, what)
    signature = {name: item.type if isinstance(item, Argument) else "constexpr" for name, item in items.items()}
    constants = {name: item.value for name, item in items.items() if isinstance(item, Constant)}
    own = {"num_warps": options.num_warps, "num_stages": options.num_stages}
    source = KernelSource(
        function=function,
        kernel_name=unique_kernel_names([function.__name__])[0],
        signature={**signature, **dict.fromkeys(tuned, "constexpr")},
        constants=dict([*constants.items(), *tuned.items()]),
        attributes=attributes(items, arguments),
        options={
            **{name: value for name, value in config.values.items() if name not in arguments},
            **config.options,
            **{name: value for name, value in own.items() if value is not None},
        },
        location=what,
    )
    warps, stages = (source.options.get(name) for name in own)
    configuration = configuration_text(tuned, warps, stages)  # type: ignore[arg-type]
    return Candidate(source, None if options.grid is None else _grid(options.grid, source, what), configuration, tuned)


def _declared(function: triton.JITFunction) -> list[Declared]:
    return [
        Declared(parameter.name, parameter.is_constexpr, Constant(parameter.default) if parameter.has_default else None)
        for parameter in function.params
    ]


def _grid(text: str, source: KernelSource, what: str) -> Grid:
    """A grid of one to three sizes, which may call `cdiv`, `min` and `max`."""
    parameters = source.parameters()
    names = grid_arguments(parameters, source.constants)
    for symbol, parameter in zip(wire.launch_symbols(len(parameters)), parameters, strict=True):
        if parameter.name in names:
            names.setdefault(symbol, names[parameter.name])
    evaluator = SourceEvaluator(SIZE_OPERATORS, {**SIZE_FUNCTIONS, "cdiv": _cdiv}, names)
    try:
        sizes = [evaluator.value(size) for size in _split(text)]
    except (UnsupportedError, SyntaxError, ValueError) as error:
        raise InputError(f"{what}: the grid {text!r} cannot be read: {error}; it may use {sorted(names)}") from None
    if not 1 <= len(sizes) <= 3 or not all(isinstance(size, int | Symbol | Binary) for size in sizes):
        raise InputError(f"{what}: the grid {text!r} must be one to three sizes, as 'cdiv(n, 128), 1, 1'")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _split(text: str) -> list[str]:
    body = ast.parse(text.strip(), mode="eval").body
    return [ast.unparse(part) for part in (body.elts if isinstance(body, ast.Tuple) else [body])]


def _cdiv(lhs: Expr, rhs: Expr) -> Expr:
    return floor_divide(add(lhs, rhs, -1), rhs)
