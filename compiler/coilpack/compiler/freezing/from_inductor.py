"""Reads a kernel bundle from what Inductor compiled: its static launcher bundle, and the autotuners that ran.

The bundle is made when the graph is compiled, before anything is tuned: it says which configurations there are, and
holds what Triton wrote for them. Which one won, the autotuners of the generated module know once it has run. A winner
that was searched for in steps (coordinate descent) is in Triton's cache folder alone. Torch leaves kernels out of its
bundle that it cannot launch statically (users' kernels, cooperative ones); their autotuners say what was compiled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coilpack.compiler import _torch_compat as compat
from coilpack.compiler.freezing.kernel_bundle import (
    Autotuner,
    CompiledConfiguration,
    ConstantValue,
    KernelArtifact,
    KernelBundle,
)
from coilpack.runtime.errors import CoilpackError, NotFoundError

_GROUP = "__grp__"  # begins the name of the file in which Triton lists the others
_NOT_SEARCHED = ("TEMPLATE", "USER_AUTOTUNE", "FIXED")  # kinds of kernels for which torch searches no configurations


def bundle_of(
    triton_bundle: compat.TritonBundle, tuned: Mapping[str, compat.CachingAutotuner] | None = None
) -> KernelBundle:
    """The kernels that Inductor compiled for one graph, as plain data.

    Args:
        triton_bundle: the static launcher bundle of the compiled graph (`CompiledFxGraph._triton_bundle`).
        tuned: autotuners of its generated module after a run, by the module's name for the kernel (`live_autotuners`).
            They say which configurations won, and stand in for entries that the bundle lacks.

    Raises:
        CoilpackError: a file of Triton's is damaged.
    """
    entries = [_autotuner(entry.kernel_name, entry.kernel) for entry in triton_bundle.static_autotuners]
    artifacts: dict[str, KernelArtifact] = {}
    for kernel in triton_bundle.kernel_artifacts:
        files = {file.filename: file.payload for file in kernel.artifacts}
        artifacts[kernel.kernel_hash] = _completed(
            artifacts.get(kernel.kernel_hash), _artifact(kernel.kernel_hash, files)
        )
    for entry in triton_bundle.static_autotuners:
        _add_raw_cubins(entry.kernel, artifacts)
    for name, tuner in (tuned or {}).items():
        _add_live(name, tuner, entries, artifacts)
    return KernelBundle(tuple(entries), artifacts)


def live_autotuners(compiled: compat.CompiledFxGraph) -> dict[str, compat.CachingAutotuner]:
    """The autotuners that the generated module of a compiled graph launches, by its names for the kernels.

    Raises:
        NotFoundError: the module is not loaded: the graph was not compiled, or restored, in this process.
    """
    loaded: list[Any] = list(compat.PyCodeCache.modules)
    for module in reversed(loaded):  # a module that was loaded again for other constants comes later
        if getattr(module, "key", None) == compiled.cache_key:
            return {name: value for name, value in vars(module).items() if isinstance(value, compat.CachingAutotuner)}
    known = (str(getattr(module, "key", module.__name__)) for module in loaded)
    raise NotFoundError("generated module", compiled.cache_key, "this process", known)


def unsettled(tuned: Mapping[str, compat.CachingAutotuner]) -> tuple[str, ...]:
    """The kernels whose configuration the next run of their module would still choose or change."""
    return tuple(name for name, tuner in tuned.items() if not _is_settled(tuner))


def _is_settled(tuner: Any) -> bool:
    if len(tuner.launchers) != 1:
        return False
    searched = tuner.inductor_meta.get("coordinate_descent_tuning") and tuner.heuristic_type.name not in _NOT_SEARCHED
    return not searched or bool(getattr(tuner.launchers[0].config, "found_by_coordesc", False))


def _add_live(name: str, tuner: Any, entries: list[Autotuner], artifacts: dict[str, KernelArtifact]) -> None:
    """Completes the entries of a kernel with what its autotuner chose, or adds one."""
    places = [place for place, entry in enumerate(entries) if entry.kernel_name == name]
    if not places:
        places = [len(entries)]
        entries.append(_autotuner(name, tuner))
    if len(tuner.launchers) != 1:
        return
    (launcher,) = tuner.launchers
    _add_from_folder(tuner, launcher.cache_hash, artifacts)
    for place in places:
        entries[place] = _with_winner(entries[place], launcher, artifacts)


def _with_winner(entry: Autotuner, launcher: Any, artifacts: Mapping[str, KernelArtifact]) -> Autotuner:
    """The same entry with the configuration of a launcher as its winner, and among its results."""
    results = entry.results
    if launcher.cache_hash not in (result.kernel_hash for result in results):
        artifact = artifacts.get(launcher.cache_hash)
        named = artifact.metadata.get("name") if artifact is not None else None
        symbol = str(named or (results[0].symbol if results else entry.kernel_name))
        results = (*results, _configuration(launcher.cache_hash, symbol, launcher.config))
    return replace(entry, results=results, winner=launcher.cache_hash)


def _autotuner(name: str, tuner: Any) -> Autotuner:
    """An autotuner with what was compiled for it so far, and no winner."""
    results = (
        _configuration(compat.triton_hash_to_path_key(result.kernel.hash), result.kernel.name, result.config)
        for result in tuner.compile_results or ()
    )
    return Autotuner(name, tuple(results), source=getattr(tuner.fn, "src", None))


def _configuration(kernel_hash: str, symbol: str, config: Any) -> CompiledConfiguration:
    values = {name: _constant(value) for name, value in config.kwargs.items()}
    return CompiledConfiguration(kernel_hash, symbol, values, config.num_warps, config.num_stages)


def _constant(value: Any) -> ConstantValue:
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


# --- what Triton wrote ---


def _artifact(kernel_hash: str, files: Mapping[str, bytes]) -> KernelArtifact:
    """Picks what is needed among the files of a kernel, by name."""
    parts = {Path(name).suffix: data for name, data in files.items() if not name.startswith(_GROUP)}
    try:
        ptx = parts[".ptx"].decode() if ".ptx" in parts else None
        metadata = json.loads(parts.get(".json", b"{}"))
    except ValueError as error:
        raise CoilpackError(
            f"kernel {kernel_hash}: what Triton wrote is damaged ({error}); empty Inductor's caches, and compile anew"
        ) from error
    return KernelArtifact(ptx, parts.get(".cubin"), metadata)


def _completed(first: KernelArtifact | None, second: KernelArtifact) -> KernelArtifact:
    """The first, with what it lacks taken from the second."""
    if first is None:
        return second
    return KernelArtifact(first.ptx or second.ptx, first.cubin or second.cubin, first.metadata or second.metadata)


def _add_raw_cubins(tuner: Any, artifacts: dict[str, KernelArtifact]) -> None:
    """Adds the machine code that kernels of the static launcher carry themselves, where it is nowhere else."""
    for result in tuner.compile_results or ():
        if cubin := getattr(result.kernel, "cubin_raw", None):
            key = compat.triton_hash_to_path_key(result.kernel.hash)
            artifacts[key] = _completed(artifacts.get(key), KernelArtifact(None, cubin, {}))


def _add_from_folder(tuner: Any, kernel_hash: str, artifacts: dict[str, KernelArtifact]) -> None:
    """Adds what Triton's cache folder holds for a kernel of an autotuner, where it is nowhere else."""
    known = artifacts.get(kernel_hash)
    folder = Path(compat.triton_cache_dir(tuner.triton_meta.get("device") or 0)) / kernel_hash
    if (known is None or not (known.ptx and known.cubin and known.metadata)) and folder.is_dir():
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        artifacts[kernel_hash] = _completed(known, _artifact(kernel_hash, files))
