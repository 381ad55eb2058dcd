"""Freezing without a GPU: packages of modules and bundles as Inductor makes them, run in the emulator."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from frozen_models import MODELS as FROZEN  # noqa: E402
from generated_modules import Generated, generate  # noqa: E402
from in_process import TARGET, export, write  # noqa: E402
from small_models import Lambda  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.cli.main import main  # noqa: E402
from coilpack.compiler.capture.offline import target_device  # noqa: E402
from coilpack.compiler.freezing import freeze as freezing  # noqa: E402
from coilpack.compiler.freezing.freeze import _function, _load_cache, freeze, freeze_products  # noqa: E402
from coilpack.compiler.freezing.inductor_product import InductorProduct, _values, cuda_target  # noqa: E402
from coilpack.compiler.freezing.kernel_bundle import (  # noqa: E402
    Autotuner,
    KernelArtifact,
    KernelBundle,
)
from coilpack.compiler.freezing.recorded_bundle import read_bundle  # noqa: E402
from coilpack.compiler.freezing.registration import RegistrationError  # noqa: E402
from coilpack.compiler.freezing.settings import inductor_settings  # noqa: E402
from coilpack.compiler.freezing.size_inputs import add_size_inputs  # noqa: E402
from coilpack.compiler.function_source import function_sources  # noqa: E402
from coilpack.compiler.kernels.lower import KernelCompiler  # noqa: E402
from coilpack.compiler.program_kernels import tuner_source  # noqa: E402
from coilpack.compiler.targets import parse_target  # noqa: E402
from coilpack.compiler.weights import Weights  # noqa: E402
from coilpack.runtime.devices.base import ComputeCapability  # noqa: E402
from coilpack.runtime.devices.emulator.device import Emulator  # noqa: E402
from coilpack.runtime.errors import CoilpackError, InputError, TargetMismatchError, UnsupportedError  # noqa: E402
from coilpack.runtime.package import Package  # noqa: E402
from coilpack.runtime.program import ir  # noqa: E402

DEVICE = parse_target(TARGET)


def product_of(name: str, program: torch.export.ExportedProgram, weights: Weights) -> InductorProduct:
    """What Inductor would make of a program on a GPU, with the configurations that are chosen without one."""
    generated = generate(program, TARGET)
    with target_device(DEVICE):
        (source,) = function_sources({name: program}, weights).values()
        traced = source.trace(fuse_attention=True)
        signature, bindings = traced.outside()
    graph = traced.retraced.graph_module.graph
    bindings = (*bindings, *(None for _ in generated.placeholder_values[len(bindings) :]))
    bundle = bundle_of_generated(generated)
    values, constants = generated.placeholder_values, generated.constants
    return InductorProduct(name, generated.source, bundle, values, signature, bindings, constants, graph)


def bundle_of_generated(generated: Generated) -> KernelBundle:
    entries: list[Autotuner] = []
    artifacts: dict[str, KernelArtifact] = {}
    with target_device(DEVICE), KernelCompiler(DEVICE, jobs=1) as compiler:
        kernels = generated.captured.kernels
        made = compiler.compile([tuner_source(k.tuner, k.config, f"{name}_own") for name, k in kernels.items()])
    for (name, chosen), code in zip(generated.chosen.items(), made, strict=True):
        entries.append(Autotuner(name, (replace(chosen, kernel_hash=f"H{name}", symbol=code.kernel_name),)))
        facts = {"num_warps": code.num_warps, "shared": code.shared_memory_bytes, "num_ctas": 1, "tmem_size": None}
        artifacts[f"H{name}"] = KernelArtifact(code.ptx, code.cubin, facts)
    return KernelBundle(tuple(entries), artifacts)


def _model() -> torch.nn.Module:
    """A reduction, a product of matrices with something fused to it, and a reduction."""
    nn = torch.nn
    return nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 48), nn.GELU(), nn.Softmax(-1))


@pytest.fixture(scope="module")
def small() -> tuple[InductorProduct, Weights, tuple[Any, ...], np.ndarray]:
    torch.manual_seed(0)
    module, inputs = _model(), (torch.randn(20, 32),)
    weights = Weights(frozenset())
    product = product_of("main", export(module, inputs), weights)
    with torch.no_grad():
        expected = module.double()(*(value.double() for value in inputs)).numpy()
    return product, weights, inputs, expected


def _run(path: Path, inputs: tuple[Any, ...]) -> list[np.ndarray]:
    with runtime.open(path, "emulator") as program:
        results = program(*(value.numpy() for value in inputs))
        return [result.numpy() for result in (results if isinstance(results, tuple) else (results,))]


def test_a_frozen_package_computes_what_the_model_does(small, tmp_path) -> None:
    product, weights, inputs, expected = small
    frozen = freeze_products({"main": product}, DEVICE, weights)
    assert not frozen.reassembled
    path = write(frozen.bundle, tmp_path / "m.coil")
    with Package.open(path) as package:
        kernels = package.program.targets[0].kernels
        assert len(kernels) == len(frozen.registrations["main"].bound)
        assert all(len(k.source) == 16 and "num_warps=" in k.configuration for k in kernels)
    first, second = _run(path, inputs), _run(path, inputs)
    np.testing.assert_allclose(first[0], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(first[0], second[0])


_FRESH = """
import io, os, sys
written = []
def audit(event, arguments):
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        written.append(str(arguments[0]))
import numpy as np
from coilpack import runtime
sys.addaudithook(audit)
with runtime.open(sys.argv[1], "emulator") as program:
    result = io.BytesIO()
    np.save(result, program(np.load(io.BytesIO(sys.stdin.buffer.read()))).numpy())
    sys.stdout.buffer.write(result.getvalue())
assert not {"torch", "triton", "coilpack.compiler"} & sys.modules.keys()
assert not written, written
"""


def test_it_runs_in_a_process_without_torch_triton_or_a_file_written(small, tmp_path) -> None:
    product, weights, inputs, expected = small
    path = write(freeze_products({"main": product}, DEVICE, weights, "ptx").bundle, tmp_path / "m.coil")
    given = io.BytesIO()
    np.save(given, inputs[0].numpy())
    command = [sys.executable, "-B", "-c", _FRESH, str(path)]
    done = subprocess.run(command, input=given.getvalue(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    np.testing.assert_allclose(np.load(io.BytesIO(done.stdout)), expected, rtol=1e-4, atol=1e-6)


# --- recorded on a GPU ---

RECORDED = Path(__file__).parent / "data" / "bundles"
HOPPER = parse_target("sm_90")


def recorded(name: str) -> tuple[InductorProduct, Weights]:
    """What Inductor made of a model on an H200, as if it had just been compiled."""
    source, bundle = read_bundle(RECORDED / name)
    weights = Weights()
    with target_device(DEVICE):  # what is traced is the same for all
        (function,) = function_sources({"main": FROZEN[name].export()}, weights).values()
        traced = function.trace(fuse_attention=True)
        added = add_size_inputs(traced.retraced)
        signature, bindings = traced.outside()
    values, graph = traced.retraced.inputs, traced.retraced.graph_module.graph
    bindings = (*bindings, *(None for _ in added))
    return InductorProduct("main", source, bundle, values, signature, bindings, {}, graph), weights


@pytest.mark.parametrize("name", ["convolution", "epilogue", "reductions", "user_kernels"])
def test_a_recorded_model_computes_what_the_model_does(name: str, tmp_path: Path) -> None:
    product, weights = recorded(name)
    frozen = freeze_products({"main": product}, HOPPER, weights, "ptx")
    assert frozen.registrations["main"].ignored == (("Placeholder.DESCRIPTIVE_NAME",) if name == "epilogue" else ())
    path = write(frozen.bundle, tmp_path / "m.coil")
    inputs = FROZEN[name].inputs()
    with runtime.open(path, Emulator(compute_capability=ComputeCapability(9, 0))) as program:
        results = program(*(value.numpy() for value in inputs))
    results = results if isinstance(results, tuple) else (results,)
    for found, expected in zip(results, _reference(name, inputs), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def _reference(name: str, inputs: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
    with torch.no_grad():
        if name == "user_kernels":
            return [((inputs[0].double() + 1) * -0.125).sum(-1).numpy()]
        results = FROZEN[name].module().double()(*(value.double() for value in inputs))
    return [result.numpy() for result in (results if isinstance(results, tuple) else (results,))]


def test_a_recorded_transformer_keeps_its_fused_templates(tmp_path: Path) -> None:
    product, weights = recorded("transformer")
    path = write(freeze_products({"main": product}, HOPPER, weights, "ptx").bundle, tmp_path / "m.coil")
    with Package.open(path) as package:
        package.verify()
        (target,) = package.program.targets
        launched = [op.kernel for op in target.functions[0].operations if isinstance(op, ir.Dispatch)]
    assert target.name == "sm_90a"
    assert len(launched) == product.module_source.count(".run(")
    assert set(launched) == set(target.kernels)
    fused = next(kernel for kernel in launched if "_tem_fused_addmm_gelu" in kernel.export_name)
    assert re.fullmatch(r"BLOCK_M=\d+ BLOCK_N=\d+ .*num_warps=\d+ num_stages=\d+", fused.configuration)


# --- what a bundle may hold ---


def _more(product: InductorProduct, *entries: Autotuner) -> InductorProduct:
    return replace(product, bundle=replace(product.bundle, autotuners=(*product.bundle.autotuners, *entries)))


def test_an_entry_that_the_module_never_names_changes_nothing(small) -> None:
    product, weights, _, _ = small
    spare = replace(product.bundle.autotuners[0], kernel_name="Placeholder.DESCRIPTIVE_NAME")
    plain = freeze_products({"main": product}, DEVICE, weights, "ptx")
    more = freeze_products({"main": _more(product, spare, spare)}, DEVICE, weights, "ptx")
    assert more.registrations["main"].ignored == ("Placeholder.DESCRIPTIVE_NAME",) * 2
    assert more.bundle.to_bytes() == plain.bundle.to_bytes()


def test_an_entry_that_the_module_names_and_nothing_binds_is_refused(small) -> None:
    product, weights, _, _ = small
    left = replace(product.bundle.autotuners[0], kernel_name="left_over")
    named = replace(_more(product, left), module_source=f"{product.module_source}\nleft_over = None\n")
    with pytest.raises(RegistrationError, match="left_over"):
        freeze_products({"main": named}, DEVICE, weights)


def test_two_functions_share_equal_kernels_and_weights(small) -> None:
    product, weights, _, _ = small
    other = replace(product, name="other", signature=replace(product.signature, name="other"))
    (target,) = freeze_products({"main": product, "other": other}, DEVICE, weights, "ptx").bundle.program.targets
    assert [function.name for function in target.functions] == ["main", "other"]
    assert len(target.kernels) == len(product.bundle.autotuners)


def test_kernels_for_another_architecture_are_refused(small) -> None:
    product, weights, _, _ = small
    with pytest.raises(TargetMismatchError, match="was compiled for sm_80, and the package is for sm_90a"):
        freeze_products({"main": product}, parse_target("sm_90"), weights)


def test_machine_code_that_comes_out_otherwise_is_reported(small) -> None:
    product, weights, _, _ = small
    first, *rest = product.bundle.autotuners
    wrong = product.bundle.artifacts[f"H{rest[0].kernel_name}"].cubin
    artifacts = dict(product.bundle.artifacts)
    artifacts[f"H{first.kernel_name}"] = replace(artifacts[f"H{first.kernel_name}"], cubin=wrong)
    changed = replace(product, bundle=replace(product.bundle, artifacts=artifacts))
    (name,) = freeze_products({"main": changed}, DEVICE, weights).reassembled
    assert name.endswith(first.kernel_name)


def test_a_description_without_a_number_is_refused(small) -> None:
    product, weights, _, _ = small
    name = product.bundle.autotuners[0].kernel_name
    broken = replace(product.bundle.artifacts[f"H{name}"], metadata={"num_warps": "4"})
    artifacts = {**product.bundle.artifacts, f"H{name}": broken}
    changed = replace(product, bundle=replace(product.bundle, artifacts=artifacts))
    with pytest.raises(CoilpackError, match=f"kernel '{name}': Triton's description gives num_warps='4'"):
        freeze_products({"main": changed}, DEVICE, weights)


def test_a_function_that_computes_nothing(tmp_path) -> None:
    weights = Weights()
    product = product_of("main", export(torch.nn.Identity(), (torch.ones(3),)), weights)
    assert not product.module_source
    path = write(freeze_products({"main": product}, DEVICE, weights, "ptx").bundle, tmp_path / "m.coil")
    (result,) = _run(path, (torch.arange(3.0),))
    np.testing.assert_array_equal(result, [0, 1, 2])


# --- what can be asked for ---


def test_without_a_gpu_it_says_what_does_without(tmp_path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    output = tmp_path / "m.coil"
    with pytest.raises(UnsupportedError, match=r"torch .* CUDA.*`coilpack compile --candidates N`.*`coilpack tune`"):
        freeze(torch.nn.Identity(), (torch.ones(3),), output=output)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graph_partition": True}, "freezing needs graph_partition=False of Inductor, not True: the host program"),
        ({"triton.cudagraphs": True}, "the runtime makes its own graphs; leave it out"),
        ({"use_static_triton_launcher": False}, "freezing needs use_static_triton_launcher=True"),
        ({"max_autotune_gem": True}, "Inductor has no setting 'max_autotune_gem'; did you mean max_autotune_gemm"),
    ],
)
def test_settings_that_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        inductor_settings("max-autotune", options)


def test_settings_of_a_mode_and_of_the_user() -> None:
    settings = inductor_settings("max-autotune", {"coordinate_descent_tuning": False, "size_asserts": False})
    assert settings["max_autotune"] is True
    assert settings["coordinate_descent_tuning"] is False
    assert settings["triton.cudagraphs"] is False
    with torch._inductor.config.patch(**settings):
        assert torch._inductor.config.max_autotune_gemm_backends == "TRITON"
    with pytest.raises(InputError, match="there is no mode 'fast'; there are default, reduce-overhead"):
        inductor_settings("fast", {})


class _Doubled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = torch.nn.Dropout()

    def forward(self, x: torch.Tensor, *, factor: torch.Tensor) -> torch.Tensor:
        return self.drop(x) * factor


def _given(model: Any, inputs: Any = None, dynamic: Any = None) -> list[Any]:
    return [value.tolist() for value in _function("main", model, inputs, dynamic, Path()).inputs]


def test_models_of_every_kind(tmp_path) -> None:
    x, module = torch.ones(3), torch.nn.Dropout()
    assert _given(module, (x,)) == [[1] * 3]
    assert module.training  # it was exported in eval mode all the same
    assert _given(lambda x, y: x + y, (x, x), ({0: torch.export.Dim.AUTO}, None)) == [[1] * 3] * 2
    program = torch.export.export(_Doubled().eval(), (x,), {"factor": x + 1})
    assert _given(program) == [[1] * 3, [2] * 3]
    torch.export.save(program, tmp_path / "m.pt2")
    assert _given(tmp_path / "m.pt2") == [[1] * 3, [2] * 3]
    program.example_inputs = None
    doubled = export(Lambda(lambda x: x * 2), (x,))
    (laid_out,) = _function("main", doubled, (torch.ones(1).expand(3),), None, Path()).inputs
    assert laid_out.is_contiguous()  # as it was exported
    for model, inputs, dynamic, message in (
        (program, None, None, "has no example inputs in its export"),
        (program, (x,), {}, "is exported already"),
        (program, (x,), None, "function 'main' does not take these example inputs"),
        (doubled, (torch.ones(4),), None, "function 'main' does not take these example inputs"),
        (
            doubled,
            (x.half(),),
            None,
            "example input 0 of function 'main' is torch.float16; the export takes torch.float32",
        ),
        (module, None, None, "is not exported yet; give example inputs"),
        (module, x, None, "the example inputs of function 'main' are a Tensor; give a tuple"),
        (module, (x, x), None, "cannot be exported by torch.export"),
        (3, (x,), None, "function 'main' is a int; give a module"),
        (tmp_path / "m.mlir", None, None, "give a .pt2 file or module.py:callable"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            _given(model, inputs, dynamic)


def test_a_device_that_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for device, message in (
        ("cpu", "freezing runs on cuda:0, not on 'cpu'"),
        ("cuda:1", "CUDA_VISIBLE_DEVICES"),
        ("gpu", "'gpu' names no device"),
    ):
        with pytest.raises(InputError, match=message):
            cuda_target(device)
    with target_device(DEVICE), pytest.raises(InputError, match="has compiled for sm_80 without its device"):
        cuda_target("cuda:0")


def test_inputs_of_several_functions_have_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freezing, "cuda_target", lambda device: DEVICE)  # noqa: ARG005
    models = {"a": torch.nn.Identity(), "b": torch.nn.Identity()}
    for inputs in ((torch.ones(3),), {"c": (torch.ones(3),)}):
        with pytest.raises(InputError, match="give example_inputs of several functions by their names, which are a, b"):
            freeze(models, inputs, output=tmp_path / "m.coil")
    with pytest.raises(InputError, match="function 'b' is not exported yet"):
        freeze(models, {"a": (torch.ones(3),)}, output=tmp_path / "m.coil")


def test_what_cannot_be_written_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freezing, "cuda_target", lambda device: DEVICE)  # noqa: ARG005
    output, artifact = tmp_path / "m.coil", tmp_path / "artifact.bin"
    artifact.write_bytes(b"")
    model = torch.nn.Identity()
    for models, options, message in (
        ({}, {}, "there is no function to freeze"),
        ({"f": artifact}, {}, "is neither a .pt2 file nor module.py:callable"),
        ({"f": model}, {"output": artifact, "cache_artifact": artifact}, "is the input too"),
        ({"f": model}, {"save_cache_artifact": tmp_path / "." / "m.coil"}, "both the package and the cache artifact"),
        ({"f": model}, {"save_bundle": artifact}, "bundles cannot be saved in"),
        ({"f": model}, {"save_bundle": tmp_path / "none" / "bundles"}, "in a folder that is there"),
        ({"../f": model}, {"save_bundle": tmp_path / "bundles"}, "function '../f' cannot name a folder"),
    ):
        with pytest.raises(InputError, match=message):
            freeze(models, **{"output": output, **options})
    assert list(tmp_path.iterdir()) == [artifact]


def test_sizes_that_no_input_shows_are_worked_out_also_beside_an_input_that_is_none() -> None:
    n = torch.export.Dim("n", min=2)
    inputs = (None, torch.ones(12, 2))
    program = torch.export.export(Lambda(lambda bias, x: x * 2), inputs, dynamic_shapes=((None, {0: 4 * n}),))  # noqa: ARG005
    with target_device(DEVICE):
        (source,) = function_sources({"main": program}, Weights()).values()
        traced = source.trace(fuse_attention=True)
        added = add_size_inputs(traced.retraced)
        signature, _ = traced.outside()
    assert _values(added, signature, inputs) == [3]


def test_a_file_that_is_no_cache_artifact(tmp_path: Path) -> None:
    (tmp_path / "cache.bin").write_bytes(b"no artifact")
    for name, message in (("cache.bin", "holds no artifacts that torch .* can load"), ("none.bin", "cannot be read")):
        with pytest.raises(InputError, match=message):
            _load_cache(tmp_path / name)


def test_the_command_passes_what_it_is_given_and_tells_what_was_made(
    small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    product, weights, _, _ = small
    asked = {}

    def compiled(given: Any, own: Any, settings: Any, progress: Any) -> dict[str, InductorProduct]:  # noqa: ARG001
        asked.update(settings, inputs=[value.tolist() for value in given["f"].inputs])
        asked["precision"] = torch.get_float32_matmul_precision()
        return {"f": replace(product, name="f", signature=replace(product.signature, name="f"), cached=True)}

    monkeypatch.setattr(freezing, "cuda_target", lambda device: DEVICE)  # noqa: ARG005
    monkeypatch.setattr(freezing, "compile_products", compiled)
    monkeypatch.setattr(freezing, "Weights", lambda elsewhere: weights)  # noqa: ARG005
    source, output = tmp_path / "m.pt2", tmp_path / "m.coil"
    torch.export.save(export(torch.nn.Identity(), (torch.ones(2),)), source)
    options = ["--option", "max_autotune_gemm_backends=ATEN", "--option", "epilogue_fusion=False", "--image", "ptx"]
    assert (
        main(["freeze", "--function", f"f={source}", "-o", str(output), "--mode", "default", "--tf32", *options]) == 0
    )
    printed = capsys.readouterr().out
    count = len(product.bundle.autotuners)
    assert f"{output}: {output.stat().st_size} bytes, {count} kernels for sm_80" in printed
    assert f"{count} kernels of generated modules bound, 0 entries ignored" in printed
    assert "from Inductor's cache: f" in printed
    assert (asked["max_autotune_gemm_backends"], asked["epilogue_fusion"]) == ("ATEN", False)
    assert asked["inputs"] == [[1, 1]]
    assert (asked["precision"], torch.get_float32_matmul_precision()) == ("high", "highest")
    assert main(["freeze", str(source), "-o", str(output), "--option", "fast"]) == 2
    assert "--option fast: it is not of the form NAME=VALUE" in capsys.readouterr().err
    monkeypatch.undo()
    if not torch.cuda.is_available():
        assert main(["freeze", str(source), "-o", str(tmp_path / "other.coil")]) == 1
        assert "freezing compiles and measures on the device itself" in capsys.readouterr().err
        assert not (tmp_path / "other.coil").exists()
