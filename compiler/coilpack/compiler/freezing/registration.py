"""Binds the kernels that a generated module assigns to what Inductor compiled and chose for them.

A bundle holds more than its module needs: losers of tuning, and candidates that Inductor benchmarked for a fusion and
dropped. Whether such an entry may be left out is decided by its name alone:

- A kernel that the module assigns is bound to the one entry of its name, and to one configuration of it.
- An entry that the module never names is ignored. Candidates of fusions are such entries: they are still called
  `Placeholder.DESCRIPTIVE_NAME`.
- An entry that the module names, but assigns no kernel to, is an error: something was meant by it.

A module names an entry if the name is an identifier that stands in its text as a whole word: as code, within a string
(the source of another kernel, a key of `globals()`) or in a comment. Reading less than the whole text could take a
kernel that is reached in an unusual way for a leftover, and leave it out; a part of a longer name (`add_1` in `add_12`)
is none. What is no identifier names nothing that Python could assign or launch, so the placeholder is ignored wherever
its text stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from coilpack.compiler.freezing.kernel_bundle import Autotuner, CompiledConfiguration, KernelArtifact, KernelBundle
from coilpack.compiler.standalone.generated_module import KernelText, ModuleKernels, read_kernels
from coilpack.runtime.errors import CoilpackError

if TYPE_CHECKING:
    from coilpack.compiler._torch_compat import TritonBundle

_GENERATED = "the generated module"
_NOTHING = KernelArtifact(ptx=None, cubin=None, metadata={})
_ANEW = "compile the model anew, with Inductor's caches empty"
_RUN = "run the compiled model once on the GPU, and make the bundle after that"
_OTHER = "give the bundle of the same compilation as the module"


class Misfit(Enum):
    """A way in which a bundle does not fit its module: what is wrong with the kernels named, and what to do."""

    UNASSIGNED = ("the module launches kernels that it does not assign", _ANEW)
    UNBOUND = ("entries of the bundle that the module names, but assigns no kernel to", _OTHER)
    NO_ENTRY = ("kernels of the module without an entry in the bundle", _OTHER + f"; otherwise {_ANEW}")
    SEVERAL_ENTRIES = ("kernels of the module with more than one entry in the bundle", _ANEW)
    OTHER_SOURCE = ("entries that were compiled from another source than the module's", _OTHER)
    NO_RESULT = ("entries without a compiled result", _ANEW)
    NO_WINNER = ("entries with several results and no known winner", _RUN)
    UNKNOWN_WINNER = ("entries whose winner is not exactly one of their results", _RUN)
    NO_PTX = ("winners whose PTX is missing", _ANEW)
    NO_CUBIN = ("winners whose cubin is missing", _ANEW)
    NO_METADATA = ("winners of which Triton's description is missing", _ANEW)

    @property
    def problem(self) -> str:
        """What is wrong with the kernels."""
        return str(self.value[0])

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return str(self.value[1])


class RegistrationError(CoilpackError):
    """A bundle does not fit its module; the message names every kernel that is concerned.

    Args:
        misfits: what was found, and the kernels' names (with details, in parentheses).
    """

    def __init__(self, misfits: Mapping[Misfit, Sequence[str]]) -> None:
        self.misfits = {misfit: tuple(names) for misfit, names in misfits.items()}
        parts = (f"{misfit.problem}: {', '.join(names)} ({misfit.remedy})" for misfit, names in self.misfits.items())
        super().__init__("the kernel bundle does not fit the module: " + "; ".join(parts))


@dataclass(frozen=True)
class Bound:
    """A kernel of a module with the one configuration that it runs in.

    Attributes:
        autotuner: its entry, with this configuration as the only result.
        configuration: what tuning chose, or the only one there was.
        artifact: what Triton compiled it to; its PTX, its cubin and its metadata are there.
    """

    autotuner: Autotuner
    configuration: CompiledConfiguration
    artifact: KernelArtifact


@dataclass(frozen=True)
class Registration:
    """The kernels of a module, bound.

    Attributes:
        bound: by the module's name for the kernel, in the order of the module.
        bundle: what was bound, and nothing else: registering it with the module gives the same again.
        ignored: names of the entries that the module never names, one for each entry.
    """

    bound: Mapping[str, Bound]
    bundle: KernelBundle
    ignored: tuple[str, ...]


def register(module_source: str, bundle: KernelBundle | TritonBundle) -> Registration:
    """Binds every kernel that a module of Inductor's assigns to one autotuner with one configuration.

    The module is read, never run. An entry's winner is bound, or its only result. Losers may lack their artifacts.

    Args:
        module_source: the text of the generated module.
        bundle: what Inductor compiled for it; one of torch's is read by `bundle_of`, and knows of no winners.

    Raises:
        RegistrationError: the bundle does not fit the module; see `Misfit` for what can be wrong.
        InvalidFileError: the text is no Python source, lacks the source of a kernel, or assigns a name twice.
        UnsupportedError: the module assigns something else than Triton kernels.
    """
    if not isinstance(bundle, KernelBundle):
        from coilpack.compiler.freezing.from_inductor import bundle_of

        bundle = bundle_of(bundle)
    module = read_kernels(module_source, _GENERATED)
    entries: dict[str, list[Autotuner]] = {}
    for entry in bundle.autotuners:
        entries.setdefault(entry.kernel_name, []).append(entry)
    identifiers = frozenset(re.findall(r"\b[^\W\d]\w*", module_source))
    found = [
        *((Misfit.UNASSIGNED, f"{name!r} (line {line})") for name, line in module.unassigned().items()),
        *((Misfit.UNBOUND, repr(name)) for name in _unbound(module, entries, identifiers)),
        *(misfit for text in module.assigned.values() for misfit in _kernel_misfits(text, entries, bundle.artifacts)),
    ]
    if found:
        raise RegistrationError(_grouped(found))
    bound = {name: _bind(entries[name][0], bundle.artifacts) for name in module.assigned}
    ignored = (entry.kernel_name for entry in bundle.autotuners if entry.kernel_name not in bound)
    return Registration(bound, _cut_down(bound), tuple(ignored))


def _grouped(found: Sequence[tuple[Misfit, str]]) -> dict[Misfit, list[str]]:
    """The names by what is wrong with them, the gravest first."""
    groups = {misfit: [name for kind, name in found if kind is misfit] for misfit in Misfit}
    return {misfit: names for misfit, names in groups.items() if names}


def _unbound(module: ModuleKernels, entries: Iterable[str], identifiers: frozenset[str]) -> Iterator[str]:
    """The entries that the module names, as this module's docstring says, without a kernel of that name."""
    for name in entries:
        if name not in module.assigned and name in identifiers:
            yield name


def _kernel_misfits(
    text: KernelText, entries: Mapping[str, Sequence[Autotuner]], artifacts: Mapping[str, KernelArtifact]
) -> Iterator[tuple[Misfit, str]]:
    """What keeps one kernel of the module from being bound."""
    name, own = repr(text.name), entries.get(text.name, ())
    if len(own) != 1:
        yield (Misfit.SEVERAL_ENTRIES, f"{name} ({len(own)})") if own else (Misfit.NO_ENTRY, name)
        return
    (entry,) = own
    if entry.source is not None and entry.source.strip() not in text.source:
        yield Misfit.OTHER_SOURCE, name
    chosen = _chosen(entry)
    if isinstance(chosen, Misfit):
        yield chosen, name
        return
    artifact = artifacts.get(chosen.kernel_hash, _NOTHING)
    for misfit, part in (
        (Misfit.NO_PTX, artifact.ptx),
        (Misfit.NO_CUBIN, artifact.cubin),
        (Misfit.NO_METADATA, artifact.metadata),
    ):
        if not part:
            yield misfit, f"{name} ({chosen.kernel_hash})"


def _chosen(entry: Autotuner) -> CompiledConfiguration | Misfit:
    """The one configuration that an entry stands for, or why there is none."""
    results = [result for i, result in enumerate(entry.results) if result not in entry.results[:i]]
    if not results:
        return Misfit.NO_RESULT
    if entry.winner is not None:
        results = [result for result in results if result.kernel_hash == entry.winner]
        return results[0] if len(results) == 1 else Misfit.UNKNOWN_WINNER
    return results[0] if len(results) == 1 else Misfit.NO_WINNER


def _bind(entry: Autotuner, artifacts: Mapping[str, KernelArtifact]) -> Bound:
    """An entry without misfits, cut down to its winner."""
    chosen = _chosen(entry)
    assert isinstance(chosen, CompiledConfiguration)
    only = replace(entry, results=(chosen,), winner=chosen.kernel_hash)
    return Bound(only, chosen, artifacts[chosen.kernel_hash])


def _cut_down(bound: Mapping[str, Bound]) -> KernelBundle:
    """A bundle of nothing but what was bound."""
    return KernelBundle(
        autotuners=tuple(one.autotuner for one in bound.values()),
        artifacts={one.configuration.kernel_hash: one.artifact for one in bound.values()},
    )
