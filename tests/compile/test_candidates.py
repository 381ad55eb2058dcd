"""Candidates of kernels: which are kept, in which order, and that each computes what the first does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from in_process import compile_in_process, write  # noqa: E402
from small_models import Lambda  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.library import triton_op, wrap_triton  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.compiler.driver import CompileOptions, compile_kernels, compile_package  # noqa: E402
from coilpack.compiler.passes.common_candidates import launchable_kernels, with_common_candidates  # noqa: E402
from coilpack.runtime.errors import CoilpackError, InputError, TargetMismatchError  # noqa: E402
from coilpack.runtime.executable import read_executable  # noqa: E402
from coilpack.runtime.package import Package  # noqa: E402
from coilpack.runtime.package.select import select_candidates  # noqa: E402
from coilpack.runtime.program import ir  # noqa: E402
from coilpack.runtime.program.select import dispatches  # noqa: E402
from coilpack.runtime.tuning.report import Candidate, KernelChoice, TuningReport  # noqa: E402
from coilpack.runtime.tuning.tune import tune  # noqa: E402

KEPT = 4
FEWER = {"convolution": 3, "attention": 2}  # of large tiles, over which the emulator is slow


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64}, num_warps=2),
        triton.Config({"BLOCK": 64}, num_warps=2, num_stages=2),  # the same code as the one before
        triton.Config({"BLOCK": 1 << 21}, num_warps=1),  # more elements than Triton takes
        triton.Config({"BLOCK": 256}, num_warps=4),
    ],
    key=["n"],
)
@triton.jit
def halved(x, out, n, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 0.5, mask=at < n)


@triton_op("coilpack_test::halved", mutates_args={})
def halve(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(halved)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


only_too_wide = triton.autotune(configs=[triton.Config({"BLOCK": 1 << 21}, num_warps=1)], key=["n"])(halved.fn)


@triton_op("coilpack_test::halved_too_wide", mutates_args={})
def halve_too_wide(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(only_too_wide)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _halved(x: torch.Tensor) -> torch.Tensor:
    """By the kernel, or by torch in double precision, where its result is compared with that."""
    return x / 2 if x.dtype == torch.float64 else halve(x)


# A model, the shapes that it is exported with, which of their dimensions are dynamic, and other shapes to call it with.
Row = tuple[Callable[..., Any], tuple[tuple[int, ...], ...], tuple[dict[int, Any], ...], tuple[tuple[int, ...], ...]]
N = Dim("n")
MODELS: dict[str, Row] = {
    "transpose": (lambda x, y: torch.relu(x).t() + y, ((70, 33), (33, 70)), ({}, {}), ((70, 33), (33, 70))),
    "softmax": (lambda x: (x * 2).softmax(-1), ((9, 700),), ({},), ((9, 700),)),
    "dynamic": (lambda x: x.exp() * x.sum(1, keepdim=True), ((37, 20),), ({0: N},), ((200, 20),)),
    "products": (
        lambda x, y: torch.nn.functional.gelu(x @ y).mT + 1,
        ((3, 37, 40), (3, 40, 24)),
        ({1: N}, {}),
        ((3, 70, 40), (3, 40, 24)),
    ),
    "convolution": (
        lambda x, w: torch.relu(torch.nn.functional.conv2d(x, w, padding=1)),
        ((1, 8, 9, 7), (24, 8, 3, 3)),
        ({}, {}),
        ((1, 8, 9, 7), (24, 8, 3, 3)),
    ),
    "attention": (
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v),
        ((1, 2, 48, 32),) * 3,
        ({}, {}, {}),
        ((1, 2, 48, 32),) * 3,
    ),
    "autotuned": (_halved, ((900,),), ({},), ((900,),)),
}


def _export(name: str) -> torch.export.ExportedProgram:
    function, shapes, dynamic, _ = MODELS[name]
    inputs = tuple(torch.randn(shape) for shape in shapes)
    return torch.export.export(Lambda(function).eval(), inputs, dynamic_shapes=(dynamic,))


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Callable[[str], Package]:
    """The packages of models with candidates, each compiled once."""
    folder, made = tmp_path_factory.mktemp("candidates"), dict[str, Path]()

    def package(name: str) -> Package:
        if name not in made:
            bundle = compile_in_process({"main": _export(name)}, candidates=FEWER.get(name, KEPT))
            made[name] = write(bundle, folder / f"{name}.coil")
        return Package.open(made[name])

    return package


def _dispatches(package: Package) -> list[ir.Dispatch]:
    return list(dispatches(package.program.targets[0]))


def _selections(package: Package) -> Iterator[dict[str, str]]:
    """Choices that take each kernel's first, second, third candidate, and so on while any kernel has another."""
    launched = _dispatches(package)
    for number in range(max(len(dispatch.alternatives) for dispatch in launched)):
        yield {
            d.kernel.export_name: d.alternatives[min(number, len(d.alternatives) - 1)].kernel.export_name
            for d in launched
            if d.alternatives
        }


@pytest.mark.parametrize("name", [name for name in MODELS if name != "attention"])
def test_every_candidate_computes_what_the_model_does(name, packages, tmp_path) -> None:
    function, _, _, shapes = MODELS[name]
    values = [_floats(*shape) for shape in shapes]
    expected = function(*(torch.from_numpy(value.astype(np.float64)) for value in values))
    with packages(name) as package:
        choices = list(_selections(package))
        assert choices
        for number, choice in enumerate(choices):
            path = tmp_path / f"{number}.coil"
            select_candidates(package, path, "sm_80", choice)
            with runtime.open(path, device="emulator") as program:
                np.testing.assert_allclose(program(*values).numpy(), expected.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["transpose", "dynamic", "products", "convolution", "attention"])
def test_candidates_come_behind_what_is_chosen_without_them(name, packages) -> None:
    alone = compile_in_process({"main": _export(name)}).program.targets[0]
    with packages(name) as package:
        launched = _dispatches(package)
    assert [d.kernel for d in dispatches(alone)] == [d.kernel for d in launched]
    assert [d.grid for d in dispatches(alone)] == [d.grid for d in launched]
    candidates = [[d.kernel, *(alternative.kernel for alternative in d.alternatives)] for d in launched]
    assert 2 <= max(map(len, candidates)) <= KEPT
    for kernels in candidates:
        assert len({(kernel.source, kernel.configuration) for kernel in kernels}) == len(kernels)
        assert all(len(kernel.source) == 16 for kernel in kernels)


def test_equal_images_and_configurations_that_do_not_compile_are_no_candidates(packages) -> None:
    with packages("autotuned") as package:
        (dispatch,) = _dispatches(package)
        kernels = [dispatch.kernel, *(alternative.kernel for alternative in dispatch.alternatives)]
    assert [kernel.configuration for kernel in kernels] == [
        "BLOCK=64 num_warps=2 num_stages=3",
        "BLOCK=256 num_warps=4 num_stages=3",
    ]
    assert [dispatch.grid[0], dispatch.alternatives[0].grid[0]] == [-(-900 // 64), -(-900 // 256)]


def test_what_failed_as_a_candidate_of_one_function_is_an_error_as_the_first_of_another() -> None:
    other = torch.export.export(Lambda(halve_too_wide), (torch.randn(900),))
    with pytest.raises(CoilpackError, match=r"numel \(2097152\) exceeds"):
        compile_in_process({"main": _export("autotuned"), "other": other}, candidates=KEPT)


def _code(bundle_or_package: Any) -> list[tuple[str, str, str]]:
    """Source, configuration and PTX of each kernel, in order, its symbol aside."""
    target = bundle_or_package.program.targets[0]
    (image,) = target.images
    held = isinstance(bundle_or_package, Package)
    data = bundle_or_package.image(image.entry) if held else bundle_or_package.executables[image.entry]
    executable = read_executable(bytes(data))
    exports = {export.export_name: export for export in executable.exports}
    found = []
    for kernel in target.kernels:
        export = exports[kernel.export_name]
        ptx = bytes(executable.modules[export.module_ordinal]).decode().replace(export.kernel_name, "kernel")
        found.append((kernel.source, kernel.configuration, ptx))
    return found


def _last_wins(package: Package, source: str = "") -> TuningReport:
    """What a tuning run reports in which the last candidate of each kernel wins."""
    choices = []
    for dispatch in _dispatches(package):
        kernels = [dispatch.kernel, *(alternative.kernel for alternative in dispatch.alternatives)]
        candidates = [Candidate(k.export_name, source or k.source, k.configuration, 1.0) for k in kernels]
        choices.append(KernelChoice(kernels[0].export_name, 1, tuple(candidates), len(kernels) - 1))
    return TuningReport("coilpack", "", "cuda:0", "", "sm_80", "us", (), tuple(choices))


@pytest.mark.parametrize("name", ["products", "autotuned"])
def test_a_report_gives_the_kernels_of_the_tuned_package_again(name, packages, tmp_path) -> None:
    with packages(name) as package:
        report = _last_wins(package)
        assert any(choice.choice for choice in report.kernels)
        select_candidates(package, tmp_path / "tuned.coil", "sm_80", report.choices)
    again = compile_in_process({"main": _export(name)}, tuning=report)
    with Package.open(tmp_path / "tuned.coil") as tuned:
        assert _code(again) == _code(tuned)
        assert [d.grid for d in dispatches(again.program.targets[0])] == [d.grid for d in _dispatches(tuned)]
    assert not any(dispatch.alternatives for dispatch in dispatches(again.program.targets[0]))


def test_what_was_measured_is_what_is_compiled(packages, tmp_path, capsys) -> None:
    with packages("dynamic") as package:
        path, (size,) = package.path, package.program.signatures[0].symbols
    report = tune(path, tmp_path / "tuned.coil", "emulator", sizes=[{size.name: 40}])
    again = compile_in_process({"main": _export("dynamic")}, tuning=report)
    with Package.open(tmp_path / "tuned.coil") as tuned:
        assert _code(again) == _code(tuned)
    assert (
        f"{len(report.kernels)} of {len(report.kernels)} kernels for sm_80 are as they were tuned"
        in capsys.readouterr().out
    )


def test_a_kernel_that_is_not_in_the_report_is_the_cost_models_choice(packages, capsys) -> None:
    model = Lambda(lambda x, y: MODELS["transpose"][0](x, y).exp().cumsum(0)).eval()
    shapes = MODELS["transpose"][1]
    other = torch.export.export(model, tuple(torch.randn(shape) for shape in shapes))
    with packages("transpose") as package:
        report = _last_wins(package)
        with pytest.raises(InputError, match=r"none of the \d kernels for sm_80 is in the tuning report"):
            compile_in_process({"main": _export("transpose")}, tuning=_last_wins(package, source="0" * 16))
    both = compile_in_process({"main": _export("transpose"), "other": other}, tuning=report)
    assert both.program.targets[0].kernels[0].configuration == report.kernels[0].winner.configuration
    assert "is not in the tuning report; the cost model chose its configuration" in capsys.readouterr().out


def test_a_report_is_of_one_target_and_leaves_no_candidates(packages, tmp_path) -> None:
    path = tmp_path / "report.json"
    with packages("autotuned") as package:
        path.write_text(_last_wins(package).to_json())
    with pytest.raises(TargetMismatchError, match="for sm_80; compiled is sm_86, sm_90a"):
        compile_package({"main": "m.py:f"}, tmp_path / "x", CompileOptions(targets=("sm_86", "sm_90"), tuning=path))
    with pytest.raises(InputError, match="or for candidates"):
        compile_package({"main": "m.py:f"}, tmp_path / "x", CompileOptions(candidates=2, tuning=path))
    with pytest.raises(InputError, match="cannot be read: No such file"):
        compile_package({"main": "m.py:f"}, tmp_path / "x", CompileOptions(tuning=tmp_path / "none.json"))


def test_all_dispatches_of_a_kernel_have_the_candidates_that_each_of_them_has() -> None:
    first, *others = (ir.Kernel(name, ()) for name in "kabc")

    def function(name: str, *candidates: ir.Kernel) -> ir.Function:
        alternatives = tuple(ir.Alternative(kernel, (number, 1, 1)) for number, kernel in enumerate(candidates, 1))
        return ir.Function(ir.Signature(name, (), ()), (), (ir.Dispatch(first, (9, 1, 1), (), alternatives),))

    a, b, c = others
    made = with_common_candidates([function("f", a, b, c), function("g", c, a)])
    found = [[(x.kernel.export_name, x.grid[0]) for x in f.operations[0].alternatives] for f in made]
    assert found == [[("a", 1), ("c", 3)], [("a", 2), ("c", 1)]]
    assert launchable_kernels(made) == {"k", "a", "c"}


@pytest.mark.parametrize("emit", ["cda1", "iree"])
def test_candidates_are_kept_where_there_are_dispatches_to_choose_for(emit, tmp_path) -> None:
    options = CompileOptions(emit=emit, image="ptx", candidates=2)
    with pytest.raises(InputError, match=f"--emit {emit} has one kernel for each launch"):
        compile_package({"main": "model.py:make"}, tmp_path / "out", options)
    with pytest.raises(InputError, match="ask for 1 to 64"):
        compile_package({"main": "model.py:make"}, tmp_path / "out", CompileOptions(candidates=65))
    with pytest.raises(InputError, match="kernels of a model"):
        compile_kernels("output_code.py", tmp_path / "out", CompileOptions(candidates=2))
