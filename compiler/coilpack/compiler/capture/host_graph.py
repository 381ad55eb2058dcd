"""Runs Inductor on a retraced graph and takes its host program as an FX graph, its kernels as tuners.

Inductor's FX wrapper hands over the host program; the subclasses here change what it does with kernels (nothing is
compiled or launched while capturing) and refuse what is no Triton kernel. In the resulting graph a launch is a call of
`dispatch(kernel_name, grid, operands)`, and sizes are expressions of the IR wherever torch would have nodes for them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

import torch

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.capture.choices import StaticChoices
from coilpack.compiler.capture.configuration import tuner_configuration
from coilpack.compiler.capture.inductor_run import compile_graph
from coilpack.compiler.capture.launch_binding import Grid, LaunchedKernel, bind_launch
from coilpack.compiler.capture.library_calls import is_product, library_product, product_arguments, sums_apart
from coilpack.compiler.capture.retrace import Retraced
from coilpack.compiler.capture.size_expressions import expression
from coilpack.compiler.capture.source_location import UNKNOWN, first_known, portable_location
from coilpack.compiler.capture.template_candidates import TemplateCandidates
from coilpack.runtime.errors import UnsupportedError

SETTINGS: Mapping[str, Any] = {
    "fx_wrapper": True,
    "compile_threads": 1,
    "alignment_asserts": False,
    "size_asserts": False,
    "nan_asserts": False,
    "scalar_asserts": False,
    "shape_padding": False,  # would benchmark real tensors
    "joint_graph_constant_folding": False,  # would run kernels
    "assert_indirect_indexing": False,  # leaves no device assertion in the PTX
    "allow_buffer_reuse": False,  # the arena is planned over the whole function instead
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "TRITON",
    "max_autotune_conv_backends": "TRITON",
    "autotune_fallback_to_aten": False,
    "benchmark_epilogue_fusion": False,
    "force_disable_caches": True,  # our own cache holds finished kernels; this one would hide changed hooks
}

_GENERATED_PREFIX, _NEUTRAL_NAME = "triton_", "triton_kernel"  # of Inductor's own kernels, not of users'

# What a kernel's source says of how many configurations it shall have. It is changed there, after the fact, so that
# nothing else that is compiled depends on how many candidates are kept.
_FEW_CONFIGS, _MANY_CONFIGS = "'max_autotune_pointwise': False", "'max_autotune_pointwise': True"


@dataclass(frozen=True)
class CapturedKernel:
    """A Triton kernel as Inductor generated it, in one configuration.

    `alternatives` are the same kernel in other configurations, the preferred one first, under names of their own.
    Of a template each configuration has a `source` of its own.
    """

    name: str
    tuner: Any
    config: Any
    source: str = ""
    alternatives: tuple[CapturedKernel, ...] = ()

    @property
    def configuration(self) -> str:
        """The configuration as text, `XBLOCK=256 num_warps=4 num_stages=1`."""
        return tuner_configuration(self.tuner, self.config)

    @property
    def signature(self) -> Mapping[str, str]:
        """Argument names to Triton types, `constexpr` included, in declaration order."""
        return dict(self.tuner.triton_meta["signature"])

    @property
    def constants(self) -> Mapping[str, Any]:
        """Values of arguments that are the same at each launch."""
        return dict(self.tuner.triton_meta.get("constants") or {})

    @property
    def constexprs(self) -> Collection[str]:
        """The parameters that the source declares `constexpr`."""
        return [parameter.name for parameter in self.tuner.fn.params if parameter.is_constexpr]

    @property
    def inductor_meta(self) -> Mapping[str, Any]:
        """What Inductor notes for its launcher."""
        return dict(self.tuner.inductor_meta)


Kernel = TypeVar("Kernel", bound=LaunchedKernel)


@dataclass
class HostGraph(Generic[Kernel]):
    """The captured program: `graph` launches `kernels`; `constants` are tensors that Inductor added."""

    graph: torch.fx.Graph
    kernels: dict[str, Kernel]
    constants: dict[str, torch.Tensor]


def dispatch(
    kernel: str, grid: Grid, operands: Mapping[str, Any], alternatives: tuple[tuple[str, Grid], ...] = ()
) -> None:
    """Marks a launch in the host graph, and the kernels that could take its place; never called."""
    raise AssertionError(f"{kernel}: dispatch nodes are data ({grid}, {operands}, {alternatives})")


def random_seeds(count: int) -> None:
    """Marks the drawing of seeds in the host graph; never called."""
    raise AssertionError(f"random_seeds nodes are data ({count})")


def run_inductor(
    retraced: Retraced, choices: StaticChoices, fused_buffers: int | None = None
) -> HostGraph[CapturedKernel]:
    """Compiles the retraced graph with Inductor up to its host program.

    Must run inside `offline.target_device` of the target that the choices are for.

    Args:
        retraced: the graph.
        choices: of templates and their tiles.
        fused_buffers: how many buffers one kernel may bring together by fusion; None for any number.

    Raises:
        UnsupportedError: an operation does not become a Triton kernel; names the operation and its source line.
    """
    sink = _Sink(choices)
    settings = {**SETTINGS, "max_fusion_unique_io_buffers": fused_buffers}
    if choices.library_products:
        settings["max_autotune_gemm_backends"] = "ATEN,TRITON"
    with (
        _wrapper_installed(sink),
        sink.templates.kept() if choices.candidates > 1 else nullcontext(),
        sums_apart() if choices.library_products else nullcontext(),
        compat.V.set_choices_handler(choices),
    ):
        compile_graph(retraced, settings, fx_wrapper=True)
    return sink.result or unchanged(retraced.graph_module.graph)


def unchanged(graph: torch.fx.Graph) -> HostGraph[Any]:
    """The host program of a graph without operations, for which Inductor makes none."""
    (output,) = graph.find_nodes(op="output")
    output.args = (tuple(output.args[0]),)
    return HostGraph(graph, {}, {})


@dataclass
class _Sink:
    """What one capture collects."""

    choices: StaticChoices
    templates: TemplateCandidates = field(default_factory=TemplateCandidates)
    kernels: dict[str, CapturedKernel] = field(default_factory=dict)
    result: HostGraph[CapturedKernel] | None = None


@contextmanager
def _wrapper_installed(sink: _Sink) -> Iterator[None]:
    compat.init_backend_registration()
    codegens = compat.device_codegens["cuda"]
    before = codegens.fx_wrapper_codegen

    class Wrapper(_Wrapper):
        capture_sink = sink

    codegens.fx_wrapper_codegen = Wrapper
    try:
        yield
    finally:
        codegens.fx_wrapper_codegen = before


@dataclasses.dataclass
class _ZeroLine(compat.WrapperLine):
    """Zeroing a buffer as a line of its own; upstream writes it as a raw string, which its FX converter refuses."""

    wrapper: Any
    name: str

    def codegen(self, code: Any) -> None:
        code.writeline(f"{self.name}.zero_()")

    @staticmethod
    def codegen_fx(converter: Any) -> Callable[[Any], None]:
        def emit(line: _ZeroLine) -> None:
            converter.gm.graph.call_function(torch.ops.aten.zero_.default, (converter.buffer_to_node[line.name],))

        return emit


class _Wrapper(compat.WrapperFxCodegen):
    """Hands the wrapper's lines to the converter below and keeps its graph."""

    capture_sink: _Sink

    def _generate(self, is_inference: bool) -> tuple[Any, None]:
        self.run_wrapper_ir_passes(is_inference)
        untyped: Any = self  # torch's decorator hides from type checkers that `is_subgraph` is a property
        converter = _Converter(
            lines=self.lines,
            prologue="",
            graph_inputs=self.get_fx_graph_inputs(),
            graph_outputs=self.get_graph_outputs(),
            subgms=self.subgms,
            is_subgraph=bool(untyped.is_subgraph),
        )
        converter.sink = self.capture_sink
        graph_module = converter.generate()
        self.capture_sink.result = HostGraph(
            graph_module.graph, self.capture_sink.kernels, dict(compat.V.graph.constants)
        )
        return compat.FileBackedGraphModule(graph_module, self.compile_graph(graph_module)), None

    def compile_graph(self, gm: torch.fx.GraphModule) -> Callable[..., Any]:
        return gm.forward

    def make_zero_buffer(self, name: str) -> _ZeroLine:
        return _ZeroLine(self, name)


@dataclass(frozen=True)
class _KernelLoader:
    """Stands in for `async_compile` in the definition of a kernel: loads its source, compiles nothing.

    `wide` gives Inductor's own kernels the configurations that it would try only when it tunes.
    """

    wide: bool = False

    def triton(self, name: str, source: str, device_str: str = "cuda") -> Any:  # noqa: ARG002 (upstream's signature)
        if name.startswith(_GENERATED_PREFIX):
            # Inductor numbers its kernels anew in each function; under one name, equal kernels have equal source.
            source, name = re.sub(rf"\b{name}\b", _NEUTRAL_NAME, source), _NEUTRAL_NAME
        if self.wide:
            source = source.replace(_FEW_CONFIGS, _MANY_CONFIGS)
        return getattr(compat.PyCodeCache.load(source), name)


def _loaded(code: str, kernel_name: str, *, wide: bool = False) -> Any:
    """The tuner that the definition of a kernel makes."""
    namespace: dict[str, Any] = {"async_compile": _KernelLoader(wide)}
    exec(code, namespace)  # noqa: S102 (Inductor's own output, as torch runs it)
    return namespace[kernel_name]


class _Converter(compat.FxConverter):
    """Turns wrapper lines into the host graph; what it does not know is an error, never skipped."""

    sink: _Sink

    def generate(self) -> torch.fx.GraphModule:
        self._computed_sizes: dict[Any, Any] = {}
        self._location = ""
        self._generate_graph_inputs()
        self._generate_graph_constants()
        self._generate_subgm_getattrs()
        for line in self.lines:
            if isinstance(line, compat.WrapperLine):
                line.codegen_fx(self)(line)
            elif isinstance(line, compat.LineContext):
                self._location = portable_location(line.context)
            else:
                raise UnsupportedError(f"Inductor's host program has a line of raw code: {str(line).strip()!r}")
        self.gm.graph.output(tuple(self._generate_buffer(node) for node in self.graph_outputs))
        return self.gm

    def _generate_graph_inputs(self) -> None:
        """Placeholders of all inputs. An integer's is never used: what depends on it is an expression."""
        for name, ir_node in self.graph_inputs.items():
            node = self.gm.graph.placeholder(name)
            if isinstance(ir_node, compat.TensorBox):
                buffer = self._get_buffer(ir_node)
                node.meta["val"] = buffer.get_example()
                self._record_allocation(buffer, node)

    def _generate_sym_node(self, s: Any) -> Any:
        return self._operand(s)

    def _generate_symbolic_call_arg(self, line: Any) -> None:
        self._computed_sizes[line.arg.inner] = line.arg.inner_expr

    def _lookup_args(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            self.buffer_to_node[arg] if isinstance(arg, str) else self._operand(getattr(arg, "inner_expr", arg))
            for arg in args
        )

    def _operand(self, value: Any) -> Any:
        """Numbers and expressions of sympy as those of the IR; nodes, None and Python's numbers as they are."""
        if isinstance(value, torch.fx.Node | float | bool | int) or value is None:
            return value
        if getattr(value, "is_Float", False):
            return float(value)
        while not self._computed_sizes.keys().isdisjoint(value.free_symbols):
            value = value.xreplace(self._computed_sizes)
        try:
            return expression(value)
        except UnsupportedError as error:
            raise UnsupportedError(f"at {self._location or UNKNOWN}: {error}") from error

    def _generate_buffer(self, node: Any) -> Any:
        if isinstance(node, compat.ShapeAsConstantBuffer):
            return self._operand(node.expr)
        return super()._generate_buffer(node)

    def _import_kernel(self, code: str, kernel_name: str) -> Any:
        tuner = _loaded(code, kernel_name)
        choices = self.sink.choices
        wider = _loaded(code, kernel_name, wide=True) if choices.candidates > 1 else None
        first, *configs = choices.configs_of(tuner, wider)
        others = [(tuner, config, "") for config in configs]
        for source in self.sink.templates.sources(kernel_name):
            other = _KernelLoader().triton(_GENERATED_PREFIX, source)
            others.extend((other, config, source) for config in choices.configs_of(other))
        alternatives = [CapturedKernel(f"{kernel_name}.c{n}", *other) for n, other in enumerate(others, 1)]
        self.sink.kernels[kernel_name] = CapturedKernel(kernel_name, tuner, first, alternatives=tuple(alternatives))
        return tuner

    def _generate_triton_call(self, line: Any) -> None:
        kernel = self.sink.kernels[line.kernel_name]
        args = tuple(self._argument(line, n) for n in range(len(line.call_args)))
        operands, grid = bind_launch(kernel, args)
        alternatives = tuple(self._alternatives(kernel, line, args))
        launch: Any = (kernel.name, grid, operands, alternatives)  # expressions are data like any other to torch
        self._located(self.gm.graph.call_function(dispatch, launch))

    def _alternatives(self, kernel: CapturedKernel, line: Any, args: tuple[Any, ...]) -> Iterator[tuple[str, Grid]]:
        """The kernels that could take the place of a launched one, and their grids."""
        grids = self.sink.templates.grids(kernel.name, line.call_args)
        for other in kernel.alternatives:
            if not other.source:
                yield other.name, bind_launch(other, args)[1]
            elif (own := grids.get(other.source)) is not None:
                passed = args[: len(args) - len(own)]
                yield other.name, bind_launch(other, (*passed, *self._lookup_args(own)))[1]

    def _located(self, node: torch.fx.Node) -> torch.fx.Node:
        node.meta["location"] = self._location
        return node

    def _argument(self, line: Any, number: int) -> Any:
        """What stands for an argument of a launch; a user's kernel may get a view, which has no name of its own."""
        argument = line.call_args[number]
        if isinstance(argument, str) and argument not in self.buffer_to_node:
            view = line.raw_args[number]
            if not isinstance(view, compat.ReinterpretView):
                raise UnsupportedError(
                    f"kernel {line.kernel_name}: its argument {line.raw_keys[number]!r} is a {type(view).__name__}, "
                    "which a package cannot pass; pass tensors and numbers"
                )
            return self._generate_buffer(view)
        (found,) = self._lookup_args((argument,))
        return found

    def _refuse(self, ir_node: Any) -> NoReturn:
        op = getattr(ir_node, "op_overload", None) or getattr(ir_node, "python_kernel_name", None) or type(ir_node)
        raise UnsupportedError(
            f"{op} at {first_known(ir_node.get_origins())} has no Triton kernel: Inductor would call a library for it. "
            "Express it with operations that Inductor fuses, or keep it outside the exported model"
        )

    def _generate_extern_kernel_common(self, kernel: Any, out_ir_node: Any) -> None:
        if isinstance(kernel, compat.RandomSeeds):
            # The seeds are there when the program runs, in memory of their own.
            allocated = self.buffer_to_node[out_ir_node.codegen_reference()]
            count = self._operand(kernel.get_size()[0])
            seeds = self._located(self.gm.graph.call_function(random_seeds, (count,)))
            allocated.replace_all_uses_with(seeds)
            self.buffer_to_node[out_ir_node.codegen_reference()] = seeds
            self.gm.graph.erase_node(allocated)
            return
        if not (self.sink.choices.library_products and is_product(kernel)):
            self._refuse(kernel)
        inputs = tuple(self._generate_buffer(node) for node in kernel.inputs)
        arguments = product_arguments(kernel, inputs, bool(torch.backends.cuda.matmul.allow_tf32))
        target = self.buffer_to_node[out_ir_node.codegen_reference()]
        self._located(self.gm.graph.call_function(library_product, (target, *arguments)))

    def _generate_fallback_call(self, ir_node: Any, args: Any = None, kwargs: Any = None) -> None:  # noqa: ARG002
        self._refuse(ir_node)

    def _generate_conditional(self, line: Any) -> None:
        self._refuse(line.node)

    def _generate_dynamic_scalar(self, line: Any) -> None:
        self._refuse(line.node)
