"""Kernel bundles out of torch's own objects: autotuners that were compiled here, and torch's bundler.

Only the loading of machine code needs a GPU; it is left out, and everything else is what torch makes.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

import triton  # noqa: E402
from frozen_models import affine_op  # noqa: E402
from generated_modules import generate  # noqa: E402
from in_process import TARGET, export  # noqa: E402
from torch._inductor import config as inductor_config  # noqa: E402
from torch._inductor.triton_bundler import TritonBundler  # noqa: E402

from coilpack.compiler import _torch_compat as compat  # noqa: E402
from coilpack.compiler import register  # noqa: E402
from coilpack.compiler.capture.offline import target_device  # noqa: E402
from coilpack.compiler.freezing.from_inductor import bundle_of, live_autotuners, unsettled  # noqa: E402
from coilpack.compiler.freezing.registration import Misfit, RegistrationError  # noqa: E402
from coilpack.compiler.python_file import import_module  # noqa: E402
from coilpack.compiler.standalone.generated_module import read_kernels  # noqa: E402
from coilpack.compiler.targets import parse_target  # noqa: E402
from coilpack.runtime.errors import CoilpackError, NotFoundError  # noqa: E402


class Model(torch.nn.Module):
    """A reduction, which Inductor compiles in several configurations, and a kernel of the author's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return affine_op(torch.softmax(x, -1), 0.5, True)


@dataclass(frozen=True)
class Compiled:
    """A generated module with its autotuners, before they were tuned.

    Attributes:
        source: the module.
        tuners: by the module's names for the kernels: the reduction's, and the author's.
        bundle: what torch's bundler made of them, with every artifact.
        folder: Triton's cache.
    """

    source: str
    tuners: dict[str, Any]
    bundle: Any
    folder: Path

    @property
    def reduction(self) -> str:
        """The kernel with several configurations; torch launches it statically."""
        return next(name for name in self.tuners if "softmax" in name)

    @property
    def users(self) -> str:
        """The author's kernel, which is not in torch's bundle."""
        return next(name for name in self.tuners if name != self.reduction)


@contextmanager
def offline(folder: Path) -> Iterator[None]:
    """Within it, Triton compiles into `folder`, and torch bundles what it compiled."""
    settings = {
        "bundle_triton_into_fx_graph_cache": True,
        "use_static_triton_launcher": True,
        "static_launch_user_defined_triton_kernels": False,
    }
    with pytest.MonkeyPatch.context() as patch, inductor_config.patch(settings), target_device(parse_target(TARGET)):
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        yield


def bundled(tuners: dict[str, Any], winners: tuple[str, ...] = ()) -> Any:
    """What torch's bundler makes of compiled autotuners."""
    TritonBundler.begin_compile()
    for name, tuner in tuners.items():
        tuner._precompile_worker()
        if tuner.is_statically_launchable():
            TritonBundler.put_static_autotuner(name, tuner)
    for winner in winners:
        TritonBundler.put_winner(winner)
    bundle, _ = TritonBundler.collect()
    return bundle


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Compiled:
    source = generate(export(Model(), (torch.randn(64, 3000),)), TARGET).source
    sources, folder = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("triton")
    tuners = {}
    with offline(folder):
        for name, text in read_kernels(source, "module").assigned.items():
            (sources / f"{name}.py").write_text(text.source)
            tuners[name] = getattr(import_module(sources / f"{name}.py"), text.function)
        return Compiled(source, tuners, bundled(tuners), folder)


@pytest.fixture
def compiled(made, tmp_path) -> Iterator[Compiled]:
    """The compiled module with a cache and autotuners of its own."""
    folder = Path(shutil.copytree(made.folder, tmp_path / "triton"))
    tuners = {name: copy.copy(tuner) for name, tuner in made.tuners.items()}
    with offline(folder):
        yield replace(made, tuners=tuners, folder=folder)


def launcher(result: Any) -> Any:
    """The launcher that torch makes of a compiled configuration, without its machine code in a GPU."""
    result = copy.copy(result)
    result.kernel = copy.copy(result.kernel)
    if hasattr(result.kernel, "load_kernel"):
        result.kernel.load_kernel = lambda device: None  # noqa: ARG005
        result.kernel.n_regs = result.kernel.n_spills = 0
        return result.make_launcher()
    key = compat.triton_hash_to_path_key(result.kernel.hash)
    return SimpleNamespace(config=result.config, cache_hash=key)


def settle(tuner: Any, index: int = 0) -> str:
    """Lets an autotuner choose one of its results, as a run would; the name of what it chose."""
    tuner.launchers = [launcher(tuner.compile_results[index])]
    return tuner.launchers[0].cache_hash


def settle_all(compiled: Compiled) -> dict[str, str]:
    return {name: settle(tuner, -1) for name, tuner in compiled.tuners.items()}


# --- what was compiled ---


def test_a_bundle_before_a_run_says_what_was_compiled_and_no_winner(compiled) -> None:
    bundle = bundle_of(compiled.bundle)
    (entry,) = bundle.autotuners
    tuner = compiled.tuners[compiled.reduction]
    assert (entry.kernel_name, entry.winner, len(entry.results)) == (compiled.reduction, None, 2)
    for result, own in zip(entry.results, tuner.compile_results, strict=True):
        assert result.values == own.config.kwargs
        assert (result.num_warps, result.num_stages) == (own.config.num_warps, own.config.num_stages)
        artifact = bundle.artifacts[result.kernel_hash]
        assert f".entry {result.symbol}(" in artifact.ptx
        assert artifact.cubin == next((compiled.folder / result.kernel_hash).glob("*.cubin")).read_bytes()
        assert artifact.metadata["num_warps"] == own.config.num_warps
        assert artifact.metadata["hash"] == own.kernel.hash
    backwards = [replace(kernel, artifacts=kernel.artifacts[::-1]) for kernel in compiled.bundle.kernel_artifacts]
    assert bundle_of(replace(compiled.bundle, kernel_artifacts=backwards)) == bundle
    with pytest.raises(RegistrationError) as caught:
        register(compiled.source, compiled.bundle)
    assert caught.value.misfits == {
        Misfit.NO_ENTRY: (repr(compiled.users),),
        Misfit.NO_WINNER: (repr(compiled.reduction),),
    }


def test_what_a_run_chose_is_bound(compiled) -> None:
    chosen = settle_all(compiled)
    done = register(compiled.source, bundle_of(compiled.bundle, compiled.tuners))
    assert {name: one.configuration.kernel_hash for name, one in done.bound.items()} == chosen
    assert set(done.bundle.artifacts) == set(chosen.values())
    assert done.bound[compiled.users].configuration.symbol == "affine"
    assert done.ignored == ()


@pytest.mark.parametrize("index", [0, 1])
def test_each_of_several_results_can_win(compiled, index) -> None:
    settle_all(compiled)
    tuner = compiled.tuners[compiled.reduction]
    chosen = settle(tuner, index)
    assert chosen == compat.triton_hash_to_path_key(tuner.compile_results[index].kernel.hash)
    done = register(compiled.source, bundle_of(compiled.bundle, compiled.tuners))
    assert done.bound[compiled.reduction].configuration.kernel_hash == chosen


def test_a_kernel_that_torch_does_not_launch_statically_comes_from_its_autotuner(compiled) -> None:
    assert [entry.kernel_name for entry in compiled.bundle.static_autotuners] == [compiled.reduction]
    settle_all(compiled)
    alone = {compiled.users: compiled.tuners[compiled.users]}
    bundle = bundle_of(compat.TritonBundle([], []), alone)
    (entry,) = bundle.autotuners
    assert (entry.kernel_name, len(entry.results)) == (compiled.users, 1)
    assert entry.source.startswith("def affine(")
    assert set(bundle.artifacts) == {entry.winner}


def test_a_kernel_of_the_author_that_torch_launches_statically_is_bound_under_the_modules_name(
    compiled, tmp_path
) -> None:
    (tmp_path / "k.py").write_text(read_kernels(compiled.source, "module").assigned[compiled.users].source)
    with inductor_config.patch(static_launch_user_defined_triton_kernels=True):
        tuner = import_module(tmp_path / "k.py").affine
        static = bundled({compiled.users: tuner})
    assert [entry.kernel_name for entry in static.static_autotuners] == [compiled.users]
    settle_all(compiled)
    both = replace(compiled.bundle, static_autotuners=compiled.bundle.static_autotuners + static.static_autotuners)
    compiled.tuners[compiled.users] = tuner
    chosen = settle(tuner)
    done = register(compiled.source, bundle_of(both, compiled.tuners))
    assert done.bound[compiled.users].configuration.kernel_hash == chosen


# --- what torch leaves out ---


@pytest.mark.skipif(not hasattr(TritonBundler, "put_winner"), reason="this torch bundles losers, too")
def test_losers_that_torch_leaves_out_are_not_missed(compiled, made) -> None:
    chosen = settle_all(compiled)
    untuned = {name: copy.copy(tuner) for name, tuner in made.tuners.items()}
    for tuner in untuned.values():
        tuner.launchers = []
    slim = bundled(untuned, (chosen[compiled.reduction],))
    assert [kernel.kernel_hash for kernel in slim.kernel_artifacts] == [chosen[compiled.reduction]]
    bundle = bundle_of(slim, compiled.tuners)
    assert len(bundle.autotuners[0].results) == 2
    whole = register(compiled.source, bundle_of(compiled.bundle, compiled.tuners))
    assert register(compiled.source, bundle) == whole


def test_a_searched_configuration_is_added_from_the_cache_of_triton(compiled) -> None:
    settle_all(compiled)
    tuner = compiled.tuners[compiled.reduction]
    config = triton.Config({**tuner.compile_results[0].config.kwargs, "R0_BLOCK": 512}, num_warps=2, num_stages=1)
    config.found_by_coordesc = True
    found = tuner._precompile_config(config)
    tuner.launchers = [launcher(found)]
    key = tuner.launchers[0].cache_hash
    bundle = bundle_of(compiled.bundle, compiled.tuners)
    assert key not in {kernel.kernel_hash for kernel in compiled.bundle.kernel_artifacts}
    assert [result.kernel_hash for result in bundle.autotuners[0].results][2:] == [key]
    bound = register(compiled.source, bundle).bound[compiled.reduction]
    assert bound.configuration.values == config.kwargs
    assert (bound.configuration.num_warps, bound.artifact.metadata["num_warps"]) == (2, 2)
    assert f".entry {bound.configuration.symbol}(" in bound.artifact.ptx

    shutil.rmtree(compiled.folder / key)
    with pytest.raises(RegistrationError) as caught:
        register(compiled.source, bundle_of(compiled.bundle, compiled.tuners))
    what = (f"{compiled.reduction!r} ({key})",)
    assert caught.value.misfits == dict.fromkeys([Misfit.NO_PTX, Misfit.NO_CUBIN, Misfit.NO_METADATA], what)


def test_machine_code_that_a_kernel_carries_itself_serves_where_its_file_is_missing(compiled, tmp_path) -> None:
    chosen = settle_all(compiled)
    carried = copy.deepcopy(compiled.bundle)
    for entry in carried.static_autotuners:
        for result, own in zip(
            entry.kernel.compile_results, compiled.tuners[entry.kernel_name].compile_results, strict=True
        ):
            result.kernel.cubin_raw = own.kernel.cubin_raw
    without = [
        replace(kernel, artifacts=[file for file in kernel.artifacts if not file.filename.endswith(".cubin")])
        for kernel in carried.kernel_artifacts
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path / "empty"))
        key = chosen[compiled.reduction]
        given = {compiled.reduction: compiled.tuners[compiled.reduction]}
        bundle = bundle_of(replace(carried, kernel_artifacts=without), given)
        cubin = next((compiled.folder / key).glob("*.cubin")).read_bytes()
        assert bundle.artifacts[key].cubin == cubin
        lost = bundle_of(replace(compiled.bundle, kernel_artifacts=without), given)
        assert lost.artifacts[key].cubin is None


# --- autotuners and modules of this process ---


def test_what_the_next_run_would_still_choose_is_unsettled(compiled) -> None:
    tuner = compiled.tuners[compiled.reduction]
    tuner.launchers = [launcher(result) for result in tuner.compile_results]
    settle(compiled.tuners[compiled.users])
    assert unsettled(compiled.tuners) == (compiled.reduction,)
    assert bundle_of(compiled.bundle, compiled.tuners).autotuners[0].winner is None
    settle(tuner)
    assert unsettled(compiled.tuners) == ()
    for one in compiled.tuners.values():
        one.inductor_meta = {**one.inductor_meta, "coordinate_descent_tuning": True}
    assert unsettled(compiled.tuners) == (compiled.reduction,)  # torch searches nothing for the author's kernel
    (only,) = tuner.launchers
    only.config = copy.copy(only.config)
    only.config.found_by_coordesc = True
    assert unsettled(compiled.tuners) == ()


def test_a_module_is_found_by_the_key_of_its_graph(compiled, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(compat.PyCodeCache, "modules", [])
    path = tmp_path / "module.py"
    path.write_text("import math\n")
    attributes = {**compiled.tuners, "constant": torch.zeros(1)}
    compat.PyCodeCache.load_by_key_path("older", str(path), attrs={})
    compat.PyCodeCache.load_by_key_path("own", str(path), attrs=attributes)
    assert live_autotuners(SimpleNamespace(cache_key="own")) == compiled.tuners
    assert live_autotuners(SimpleNamespace(cache_key="older")) == {}
    with pytest.raises(NotFoundError, match="generated module") as caught:
        live_autotuners(SimpleNamespace(cache_key="gone"))
    assert "own" in str(caught.value)


def test_damaged_files_of_triton_are_refused(compiled) -> None:
    kernel = compiled.bundle.kernel_artifacts[0]
    files = [
        replace(file, payload=b"{") if file.filename.endswith(".json") else file  # also the one that lists the others
        for file in kernel.artifacts
    ]
    damaged = replace(compiled.bundle, kernel_artifacts=[replace(kernel, artifacts=files)])
    with pytest.raises(CoilpackError, match=f"kernel {kernel.kernel_hash}: what Triton wrote is damaged"):
        bundle_of(damaged)
