"""What the source of a kernel of Inductor's says of it, read from its syntax: nothing of it is run or imported.

Such a source is a decorator of `triton_heuristics`, whose arguments are all that Inductor's launcher knows, over a
function of Triton's.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coilpack.compiler import _triton_compat as triton
from coilpack.compiler.cache import content_key
from coilpack.compiler.freezing.kernel_bundle import CompiledConfiguration
from coilpack.compiler.kernels.source import DIGEST_DIGITS
from coilpack.compiler.standalone.generated_module import KernelText
from coilpack.runtime.errors import InvalidFileError

_HEURISTICS = "triton_heuristics"
_META = ("triton_meta", "inductor_meta")
_OPTIONS_AS_CONSTANTS = ("num_warps", "num_stages")  # which a kernel may take as `constexpr` under these names


@dataclass(frozen=True)
class Opaque:
    """A value that is no literal, as `ReductionHint.INNER`.

    Attributes:
        text: as the source writes it.
    """

    text: str


@dataclass(frozen=True)
class GeneratedKernel:
    """A kernel of Inductor's as its source states it, before a configuration is chosen.

    Values of the mappings are Python's literals, or `Opaque`.

    Attributes:
        name: the module's name for it.
        function: the name of its function.
        line: where the module assigns it.
        heuristic: the decorator: `pointwise`, `reduction`, `persistent_reduction`, `template`, `user_autotune`, ...
        argument_names: all parameters of the function, in order.
        constexprs: those that it declares `tl.constexpr`.
        signature: Triton's type of each argument by name, `constexpr` included, in declaration order.
        constants: values of arguments that are the same at each launch, by name or index path.
        attributes: `[["tt.divisibility", 16]]` by index path, of each argument that is always a multiple of 16.
        inductor_meta: what Inductor notes for its launcher; `grid_type` names the rule of the grid.
        options: the other arguments of the decorator: `size_hints`, `num_warps`, `num_stages`, `configs`, ...
        digest: tells kernels apart by what they are made of besides their configuration and names, in 16 hex digits.
    """

    name: str
    function: str
    line: int
    heuristic: str
    argument_names: tuple[str, ...]
    constexprs: tuple[str, ...]
    signature: Mapping[str, str]
    constants: Mapping[str | tuple[int, ...], Any]
    attributes: Mapping[tuple[int, ...], Sequence[Sequence[object]]]
    inductor_meta: Mapping[str, Any]
    options: Mapping[str, Any]
    digest: str


@dataclass(frozen=True)
class ChosenKernel:
    """A generated kernel in the one configuration that was chosen; see `LaunchedKernel` for what a launch takes of it.

    Attributes:
        generated: the kernel.
        configuration: what was chosen.
    """

    generated: GeneratedKernel
    configuration: CompiledConfiguration

    @property
    def name(self) -> str:
        """The module's name for it."""
        return self.generated.name

    @property
    def signature(self) -> Mapping[str, str]:
        """Triton's type of each argument by name."""
        return self.generated.signature

    @property
    def constants(self) -> Mapping[str, Any]:
        """Values of arguments that are the same at each launch, by name; not those that the configuration chooses."""
        names = self.generated.argument_names
        return {
            key if isinstance(key, str) else names[key[0]]: value
            for key, value in self.generated.constants.items()
            if isinstance(key, str) or len(key) == 1
        }

    @property
    def constexprs(self) -> tuple[str, ...]:
        """The parameters that the source declares `constexpr`."""
        return self.generated.constexprs

    @property
    def inductor_meta(self) -> Mapping[str, Any]:
        """What Inductor notes for its launcher."""
        return self.generated.inductor_meta

    @property
    def config(self) -> triton.Config:
        """The configuration as Triton's own."""
        chosen = self.configuration
        return triton.Config(dict(chosen.values), num_warps=chosen.num_warps, num_stages=chosen.num_stages)

    @property
    def compiled_constants(self) -> Mapping[str | tuple[int, ...], Any]:
        """Everything that was constant when the kernel was compiled, by name or index path."""
        chosen = self.configuration
        values = dict(self.generated.constants)
        values.update(chosen.values)
        for option in _OPTIONS_AS_CONSTANTS:
            if option in self.constexprs:
                values.setdefault(option, getattr(chosen, option))
        return values


def generated_kernel(text: KernelText, file: str) -> GeneratedKernel:
    """Reads the source of a kernel.

    Args:
        text: the kernel.
        file: what messages call the module.

    Raises:
        InvalidFileError: it is no source of a kernel as Inductor writes it; says what is missing.
    """
    return _SourceReader(text, file).read()


@dataclass(frozen=True)
class _SourceReader:
    """Reads one kernel."""

    text: KernelText
    file: str

    def read(self) -> GeneratedKernel:
        function = self._function()
        heuristic, options = self._decorator(function)
        triton_meta, inductor_meta = (self._mapping(options.pop(name, None), name) for name in _META)
        parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        configs: Any = triton_meta.get("configs") or ({},)
        return GeneratedKernel(
            name=self.text.name,
            function=self.text.function,
            line=self.text.line,
            heuristic=heuristic,
            argument_names=tuple(parameter.arg for parameter in parameters),
            constexprs=tuple(parameter.arg for parameter in parameters if _is_constexpr(parameter)),
            signature=self._mapping(triton_meta.get("signature"), "triton_meta['signature']"),
            constants=self._mapping(triton_meta.get("constants") or {}, "triton_meta['constants']"),
            attributes=self._mapping(configs[0], "triton_meta['configs'][0]"),
            inductor_meta=inductor_meta,
            options=options,
            digest=self._digest(function, triton_meta),
        )

    def _digest(self, function: ast.FunctionDef, triton_meta: Mapping[str, Any]) -> str:
        """Of the function without its name, comments and decorators, and of what it is specialized for."""
        bare = copy.copy(function)
        bare.name, bare.decorator_list = "kernel", []
        specialized = {part: repr(triton_meta.get(part)) for part in ("signature", "constants", "configs")}
        return content_key(function=ast.unparse(bare), **specialized)[:DIGEST_DIGITS]

    def _function(self) -> ast.FunctionDef:
        try:
            tree = ast.parse(self.text.source)
        except (SyntaxError, ValueError) as error:
            raise self._problem(f"its source is no Python: {error}") from error
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == self.text.function:
                return statement
        raise self._problem(f"its source defines no function {self.text.function!r}")

    def _decorator(self, function: ast.FunctionDef) -> tuple[str, dict[str, Any]]:
        """The name of the heuristic, and its keyword arguments."""
        for decorator in function.decorator_list:
            match decorator:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=heuristic)) if module == _HEURISTICS:
                    try:
                        return heuristic, {k.arg: literal(k.value) for k in decorator.keywords if k.arg is not None}
                    except (TypeError, ValueError) as error:
                        what = f"the arguments of {_HEURISTICS}.{heuristic}"
                        raise self._problem(f"{what} cannot be read: {error}") from error
        raise self._problem(f"its function has no decorator of {_HEURISTICS}")

    def _mapping(self, value: object, what: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise self._problem(f"its {what} is {value!r}, not a mapping that stands in the source")
        return value

    def _problem(self, problem: str) -> InvalidFileError:
        return InvalidFileError(
            self.file,
            f"line {self.text.line}",
            f"kernel {self.text.name!r}: {problem}",
            "Let Inductor generate it anew",
        )


def _is_constexpr(parameter: ast.arg) -> bool:
    return parameter.annotation is not None and ast.unparse(parameter.annotation).split(".")[-1] == "constexpr"


_CONSTRUCTORS: Mapping[str, Callable[..., Any]] = {
    "float": float,
    "set": frozenset,
    "OrderedSet": tuple,
}


def literal(node: ast.expr) -> Any:
    """The value of an expression of literals, and of the few calls with which Inductor prints values.

    Parts that are something else become `Opaque`; nothing is evaluated.

    Raises:
        TypeError, ValueError: there is no such value, as of `float('x')`.
    """
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Dict(keys=keys, values=values) if all(keys):
            return {literal(k): literal(v) for k, v in zip(keys, values, strict=True) if k is not None}
        case ast.Tuple(elts=items):
            return tuple(map(literal, items))
        case ast.List(elts=items):
            return [*map(literal, items)]
        case ast.Set(elts=items):
            return frozenset(map(literal, items))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _CONSTRUCTORS:
            values = [*map(literal, arguments)]
            if not any(isinstance(value, Opaque) for value in values):
                return _CONSTRUCTORS[name](*values)
    return Opaque(ast.unparse(node))
