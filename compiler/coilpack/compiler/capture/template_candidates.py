"""Keeps other configurations of Inductor's templates, generated with the same operations fused into them.

Inductor decides on a template's configuration before it knows what is fused, and generates one kernel. To have more of
them, this does what Inductor does to benchmark fusions: it makes the kernel anew in the place of the first, with the
same operations before and after, and takes the source alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from coilpack.compiler import _torch_compat as compat

# How a launch of a kernel is recognised: its name, and what it passes, as text.
_Launch = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class TemplateSource:
    """The source of a template in another configuration, and the arguments that give a launch of it its grid."""

    source: str
    grid: tuple[Any, ...]


@dataclass
class TemplateCandidates:
    """What one run of Inductor keeps besides the templates that it takes."""

    _others: dict[Any, list[Any]] = field(default_factory=dict)  # by what renders the one that was taken
    _by_launch: dict[_Launch, tuple[TemplateSource, ...]] = field(default_factory=dict)

    def sources(self, kernel_name: str) -> list[str]:
        """The sources of a template in its other configurations, the preferred one first."""
        found = (kept for (name, _), kept in self._by_launch.items() if name == kernel_name)
        return [other.source for other in next(found, ())]

    def grids(self, kernel_name: str, call_args: Sequence[Any]) -> Mapping[str, tuple[Any, ...]]:
        """For a launch of a template, by source: what gives the other configurations their grids."""
        kept = self._by_launch.get(_launch(kernel_name, call_args), ())
        return {other.source: other.grid for other in kept}

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Within it, Inductor takes the first template of several without benchmarking, and the others are kept."""
        codegens, selector = compat.device_codegens["cuda"], compat.get_algorithm_selector_cache()
        before = codegens.scheduling

        class Scheduling(_Scheduling):
            candidates = self

        codegens.scheduling = Scheduling
        selector.preprocessing_fns.append(self._first)
        try:
            yield
        finally:
            selector.preprocessing_fns.remove(self._first)
            codegens.scheduling = before

    def _first(self, choices: list[Any]) -> list[Any]:
        if len(choices) < 2 or not isinstance(choices[0], compat.TritonTemplateCaller):
            return choices
        first: Any = choices[0]
        self._others[first.get_make_kernel_render()] = [c for c in choices[1:] if _same_operands(first, c)]
        return [first]

    def generate(
        self, scheduling: _Scheduling, generate: Callable[[], Any], template: Any, epilogue: Any, prologue: Any
    ) -> Any:
        """Generates a template as `generate` does, and before that its other configurations."""
        buffer = template.node
        taken: Any = getattr(buffer, "make_kernel_render", None)
        others = self._others.get(taken)
        if not others:
            return generate()
        nodes = [*prologue, template, *epilogue]
        generated = []
        for other in others:
            with _rendering(buffer, other.get_make_kernel_render()) as kernels:
                generated.append((scheduling.generate_kernel_code_from_nodes(nodes), kernels[-1]))
        with _rendering(buffer, taken) as kernels:
            result = generate()
        (kernel,) = kernels
        passed, grid = _arguments(kernel)
        self._by_launch[_launch(kernel.kernel_name, (*passed, *grid))] = tuple(
            TemplateSource(source, _arguments(other)[1])
            for source, other in generated
            if _arguments(other)[0] == passed and bool(_arguments(other)[1]) == bool(grid)
        )
        return result


class _Scheduling(compat.CUDACombinedScheduling):
    """Generates the other configurations of a template along with the one that was taken."""

    candidates: TemplateCandidates

    def codegen_template(self, template_node: Any, epilogue_nodes: Sequence[Any], prologue_nodes: Sequence[Any]) -> Any:
        def generate() -> Any:
            return super(_Scheduling, self).codegen_template(template_node, epilogue_nodes, prologue_nodes)

        return self.candidates.generate(self, generate, template_node, epilogue_nodes, prologue_nodes)


@contextmanager
def _rendering(buffer: Any, render: Callable[..., Any]) -> Iterator[list[Any]]:
    """Within it, a template is made by `render`; gives the kernels that are made."""
    made: list[Any] = []

    def noted(*args: Any, **options: Any) -> Any:
        kernel, renderer = render(*args, **options)
        made.append(kernel)
        return kernel, renderer

    before, buffer.make_kernel_render = buffer.make_kernel_render, noted
    try:
        yield made
    finally:
        buffer.make_kernel_render = before


def _same_operands(first: Any, other: Any) -> bool:
    """Whether one template can stand where the other does: same operands, same result, same fusion before it."""
    return (
        isinstance(other, compat.TritonTemplateCaller)
        and other.layout == first.layout
        and other.allowed_prologue_inps == first.allowed_prologue_inps
        and [node.get_name() for node in other.input_nodes] == [node.get_name() for node in first.input_nodes]
    )


def _arguments(kernel: Any) -> tuple[list[Any], tuple[Any, ...]]:
    """What a launch of a generated template passes: what the kernel takes, and what its grid is made of."""
    _, passed, *_ = kernel.args.python_argdefs()
    return passed, tuple(kernel.additional_call_args_and_types()[0])


def _launch(kernel_name: str, call_args: Sequence[Any]) -> _Launch:
    return kernel_name, tuple(map(str, call_args))
