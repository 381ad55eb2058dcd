"""Freezing on the GPU: what Inductor tuned becomes a package that runs alone, with the same code and results."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from frozen_models import MODELS, FrozenModel

from coilpack import runtime
from coilpack.runtime.package import Package
from coilpack.runtime.program import ir

torch = pytest.importorskip("torch", reason="freezing needs torch")

pytestmark = [pytest.mark.gpu, pytest.mark.compiler]


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    """Caches of the test's own; Inductor's are asked for their folder each time, Triton's by the environment."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    torch._dynamo.reset()
    return tmp_path


def freeze(model: FrozenModel, output, **options):
    from coilpack.compiler import freeze

    options = {"mode": model.mode, "options": model.options, "progress": print, **options}
    return freeze(model.module(), model.inputs(), output=output, dynamic_shapes=model.dynamic_shapes, **options)


def results(program, inputs) -> list[torch.Tensor]:
    returned = program(*(value.cuda() for value in inputs))
    return [torch.from_dlpack(r) for r in (returned if isinstance(returned, tuple) else (returned,))]


def expected(model: FrozenModel, inputs) -> list[torch.Tensor]:
    """In double precision, but for users' kernels, which take what they are given."""
    module, given = model.module().cuda(), [value.cuda() for value in inputs]
    if model is not MODELS["user_kernels"]:
        module, given = module.double(), [value.double() for value in given]
    with torch.no_grad():
        returned = module(*given)
    return list(returned) if isinstance(returned, tuple) else [returned]


def fresh(model: FrozenModel) -> list[torch.Tensor]:
    return [torch.randn_like(value) for value in model.inputs()]


def assert_right(found, wanted) -> None:
    for one, other in zip(found, wanted, strict=True):
        tolerance = 2e-2 if one.dtype is torch.bfloat16 else 2e-5
        error = (one.double() - other).norm() / other.norm()
        assert error < tolerance, error


@pytest.mark.parametrize("name", MODELS)
def test_a_frozen_model_computes_what_the_model_does(name, tmp_path):
    model = MODELS[name]
    report = freeze(model, tmp_path / "m.coil")
    assert report.bound >= len(report.program.targets[0].kernels) > 0
    assert report.reassembled == ()
    with runtime.open(tmp_path / "m.coil", "cuda:0") as program:
        for _ in range(2):
            inputs = fresh(model)
            first = results(program, inputs)
            assert_right(first, expected(model, inputs))
            for _ in range(3):  # step by step, then as a graph
                assert all(torch.equal(a, b) for a, b in zip(first, results(program, inputs), strict=True))


def test_epilogues_are_in_the_templates(tmp_path):
    """A product of matrices, the sum with a row, GELU and a factor are one kernel."""
    report = freeze(MODELS["epilogue"], tmp_path / "m.coil")
    (kernel,) = report.program.targets[0].kernels
    assert "triton_tem" in kernel.export_name
    assert "BLOCK_M=" in kernel.configuration


def test_other_sizes_than_it_was_tuned_for(tmp_path):
    model = MODELS["reductions"]
    freeze(model, tmp_path / "m.coil")
    with runtime.open(tmp_path / "m.coil", "cuda:0") as program:
        for rows in (2, 3, 100, 4096):
            inputs = [torch.randn(rows, 300) for _ in range(2)]
            assert_right(results(program, inputs), expected(model, inputs))


LOADING = """
import os, sys
written = []
def watch(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        written.append(args[0])
sys.addaudithook(watch)
import numpy as np
from coilpack import runtime
with runtime.open(sys.argv[1], "cuda:0") as program:
    inputs = [np.load(path) for path in sys.argv[2:]]
    for _ in range(3):
        found = program(*inputs)
    np.asarray(found.numpy() if not isinstance(found, tuple) else found[0].numpy())
assert not {"torch", "triton"} & set(sys.modules), sorted(sys.modules)
assert not [path for path in written if not str(path).startswith("/dev/")], written
"""


def test_opening_neither_compiles_nor_measures(tmp_path):
    model = MODELS["convolution"]
    freeze(model, tmp_path / "m.coil")
    paths = []
    for number, value in enumerate(model.inputs()):
        paths.append(str(tmp_path / f"{number}.npy"))
        np.save(paths[-1], value.numpy())
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LOADING, str(tmp_path / "m.coil"), *paths]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def products(model: FrozenModel):
    """What Inductor makes of a model, with the weights that a package of it needs."""
    from coilpack.compiler.freezing.freeze import Function, compile_products
    from coilpack.compiler.freezing.settings import inductor_settings
    from coilpack.compiler.weights import Weights

    weights = Weights(frozenset())
    function = Function(model.export(), list(model.inputs()))
    settings = inductor_settings(model.mode, model.options)
    return compile_products({"main": function}, weights, settings, print), weights


def package(products, weights, path):
    from coilpack.compiler.emit import emit_package
    from coilpack.compiler.freezing.freeze import freeze_products
    from coilpack.compiler.freezing.inductor_product import cuda_target

    frozen = freeze_products(products, cuda_target("cuda:0"), weights)
    emit_package([], [frozen.bundle], frozen.bundle.program, path)
    return frozen


def test_candidates_that_the_module_never_names_are_left_out(tmp_path):
    from coilpack.compiler.freezing.registration import RegistrationError

    model = MODELS["transformer"]
    made, weights = products(model)
    product = made["main"]
    package(made, weights, tmp_path / "without.coil")
    template = product.bundle.autotuners[1]
    left = dataclasses.replace(template, kernel_name="Placeholder.DESCRIPTIVE_NAME")
    more = dataclasses.replace(product.bundle, autotuners=(*product.bundle.autotuners, left))
    frozen = package({"main": dataclasses.replace(product, bundle=more)}, weights, tmp_path / "with.coil")
    registration = frozen.registrations["main"]
    assert registration.ignored.count("Placeholder.DESCRIPTIVE_NAME") >= 1
    assert left not in registration.bundle.autotuners
    assert (tmp_path / "with.coil").read_bytes() == (tmp_path / "without.coil").read_bytes()
    with runtime.open(tmp_path / "with.coil", "cuda:0") as program:
        inputs = fresh(model)
        assert_right(results(program, inputs), expected(model, inputs))

    named = "# see also triton_poi_fused_forgotten_77\n" + product.module_source
    entry = dataclasses.replace(template, kernel_name="triton_poi_fused_forgotten_77")
    more = dataclasses.replace(product.bundle, autotuners=(*product.bundle.autotuners, entry))
    broken = dataclasses.replace(product, bundle=more, module_source=named)
    with pytest.raises(RegistrationError, match="triton_poi_fused_forgotten_77"):
        package({"main": broken}, weights, tmp_path / "broken.coil")
    assert not (tmp_path / "broken.coil").exists()


def executables(path):
    package = Package.open(path)
    try:
        kinds = [image.entry for image in package.program.targets[0].images]
        return {kind: bytes(package.image(kind)) for kind in kinds}
    finally:
        package.close()


def test_a_second_time_comes_from_the_cache(tmp_path):
    model = MODELS["epilogue"]
    first = freeze(model, tmp_path / "1.coil")
    second = freeze(model, tmp_path / "2.coil")
    assert (first.cached, second.cached) == ((), ("main",))
    assert executables(tmp_path / "1.coil") == executables(tmp_path / "2.coil")


ARTIFACT = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from frozen_models import MODELS
from coilpack.compiler import freeze
from torch._dynamo.utils import counters
model = MODELS["epilogue"]
role = {"save": "save_cache_artifact", "load": "cache_artifact"}[sys.argv[2]]
report = freeze(model.module(), model.inputs(), model.mode, output=sys.argv[3], **{role: sys.argv[4]})
print(json.dumps([report.cached, counters["inductor"]["select_algorithm_autotune"]]))
"""


def test_a_saved_cache_artifact_serves_a_machine_with_empty_caches(tmp_path):
    found = []
    for role in ("save", "load"):
        own = {name: str(tmp_path / role / name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        output = str(tmp_path / f"{role}.coil")
        command = [sys.executable, "-c", ARTIFACT, json.dumps(sys.path), role, output, str(tmp_path / "artifact")]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **own}, check=False)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert found[0][0] == []
    assert found[1][0] == ["main"]
    assert executables(tmp_path / "save.coil") == executables(tmp_path / "load.coil")


class Counter(torch.nn.Module):
    """Adds up what it is given, over all calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x.sum(0)
        return self.total * 2


def test_state_and_several_functions(tmp_path):
    from coilpack.compiler import freeze

    x = torch.randn(3, 8)
    with torch.no_grad():
        one = torch.export.export(Counter(), (x,))
    report = freeze({"a": one, "b": one}, output=tmp_path / "m.coil", mode="default")
    assert [item.name for item in report.program.globals] == ["total"]
    with runtime.open(tmp_path / "m.coil", "cuda:0") as program:
        for turn in range(1, 4):
            found = program(x.numpy(), function="ab"[turn % 2]).numpy()
            np.testing.assert_allclose(found, 2 * turn * x.sum(0).numpy(), rtol=1e-5)


class Noise(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5, True) + torch.rand_like(x)


def test_random_numbers_are_those_of_the_compiled_model(tmp_path):
    from coilpack.compiler import freeze

    x = torch.ones(64, 64)
    freeze(Noise(), (x,), output=tmp_path / "m.coil", mode="default")
    with runtime.open(tmp_path / "m.coil", "cuda:0") as program:
        first, again, other = (program(x.numpy(), seed=seed).numpy() for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert 0.4 < (first >= 2).mean() < 0.6


def test_nothing_is_written_where_something_is_wrong(tmp_path):
    from coilpack.compiler import freeze
    from coilpack.runtime.errors import InputError

    for wrong, match in (
        ({"options": {"graph_partition": True}}, "freezing needs graph_partition=False"),
        ({"options": {"max_autotunes": True}}, "did you mean max_autotune"),
        ({"mode": "fastest"}, "there is no mode 'fastest'"),
        ({"device": "cuda:7"}, "freezing runs on cuda:0"),
    ):
        with pytest.raises(InputError, match=match):
            freeze(Counter(), (torch.ones(3, 8),), output=tmp_path / "m.coil", **wrong)
    assert not (tmp_path / "m.coil").exists()


@pytest.mark.slow
def test_every_small_model(tmp_path):
    """What can be compiled can be frozen."""
    from small_models import MODELS as SMALL

    from coilpack.compiler import freeze
    from coilpack.runtime.errors import CoilpackError

    failed = {}
    for name, make in SMALL.items():
        module, inputs = make()
        with torch.no_grad():
            wanted = module.eval()(*inputs)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        try:
            freeze(module, inputs, output=tmp_path / "m.coil", mode="default")
            with runtime.open(tmp_path / "m.coil", "cuda:0") as program:
                found = results(program, inputs)
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one.cpu(), other, rtol=2e-2, atol=2e-2, equal_nan=True)
        except (CoilpackError, AssertionError) as error:
            failed[name] = str(error).splitlines()[0]
    assert not failed, json.dumps(failed, indent=1)


def test_kernels_say_what_they_are(tmp_path):
    report = freeze(MODELS["reductions"], tmp_path / "m.coil")
    kernels: tuple[ir.Kernel, ...] = report.program.targets[0].kernels
    assert all(kernel.source and "num_warps=" in kernel.configuration for kernel in kernels)
