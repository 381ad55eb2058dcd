"""Models run by this project's runtime and by IREE's, from the same exported files; both agree with torch.

On a GPU, and without one in the emulator, which then is the driver of IREE's runtime, too. With `--prepared DIR`, the
files are those of `tests/compile/iree_prepared.py`; else they are made here, by the release of IREE that is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from emulated_driver import COMPILER, EmulatedDriver, emulated_driver  # noqa: E402
from iree_models import CASES, MODELS, NAMES  # noqa: E402
from iree_prepared import Prepared, prepare, write_inputs  # noqa: E402
from iree_releases import Release, installed  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.cli.main import main  # noqa: E402
from coilpack.runtime.executable import read_executable  # noqa: E402
from coilpack.runtime.vmfb import read_vmfb  # noqa: E402

COMPILED_SLOWLY = ("perceptron", "convolutional")
RUN_SLOWLY = (*COMPILED_SLOWLY, "transformer")  # by the emulator
SCRATCH = 1 << 20  # bytes of each buffer that a kernel is tried on: more than one workgroup of any reaches


@dataclass(frozen=True)
class Place:
    """Where kernels run."""

    device: str
    environment: Mapping[str, str] | None
    driver: EmulatedDriver | None

    def run(self, release: Release, tool: str, *arguments: object) -> str:
        """What a tool of IREE's prints, without the lines of the driver."""
        failed = self.driver.errors if self.driver else []
        try:
            output = release.checked(tool, "--device=cuda", *arguments, environment=self.environment)
        finally:
            assert not failed
        lines = output.splitlines()
        return "\n".join(x for x in lines if not x.startswith(("function ", "attribute ", "launch ")))


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("needs a C compiler")
    with emulated_driver(tmp_path_factory.mktemp("driver")) as (driver, environment):
        yield Place("emulator", environment, driver)


@pytest.fixture(params=["emulator", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def place(request):
    return request.getfixturevalue("emulator") if request.param == "emulator" else Place(request.param, None, None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "release" in metafunc.fixturenames:
        folder = metafunc.config.getoption("--prepared")
        releases = Prepared(folder).releases if folder else installed()
        skipped = pytest.param(None, marks=pytest.mark.skip("needs IREE's compiler and tools (extra `iree`)"))
        metafunc.parametrize("release", [pytest.param(r, id=r.version) for r in releases] or [skipped])


@pytest.fixture(scope="module")
def prepared(request, tmp_path_factory) -> Callable[[str], Prepared]:
    """The folder of prepared files, with a model in it."""
    given = request.config.getoption("--prepared")
    folder = given or tmp_path_factory.mktemp("prepared")
    ready: set[str] = set(MODELS) if given else set()

    def with_model(model: str) -> Prepared:
        if model not in ready:
            prepare(folder, installed(), [model])
            ready.add(model)
        return Prepared(folder)

    return with_model


@pytest.fixture(autouse=True)
def ieee_products():
    """Without TF32, and without torch's fused encoder layer (its "fast path"), which rounds more."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def params(calls: Iterable[tuple[object, ...]], slow: Sequence[str]):
    """Parameters of which those of slow models are left out without `--slow`, on a GPU too."""
    return [pytest.param(*call, marks=[pytest.mark.slow] if call[0] in slow else []) for call in calls]


calls = pytest.mark.parametrize(
    ("model", "size"),
    params(((model, size) for model, case in CASES.items() for size in case.sizes), slow=COMPILED_SLOWLY),
)
names = pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))


def check(place: Place, model: str, size: int, found: list[np.ndarray]) -> None:
    """Compares results with those in float64, and on a GPU with those that torch computes there."""
    case = CASES[model]
    case.check(found, case.expected(size))
    if place.device != "emulator":
        case.check(found, case.computed(size, place.device), slack=2)  # torch rounds, too


@calls
def test_models_in_our_runtime(prepared, place, model, size):
    with runtime.open(prepared(model).package(model), device=place.device) as program:
        for _ in range(1 if place.driver else 3):  # on a GPU launches, then a graph
            inputs = (x if place.driver else x.to(place.device) for x in CASES[model].inputs(size))
            results = program(*inputs)
            results = results if isinstance(results, tuple) else (results,)
            check(place, model, size, [result.numpy() for result in results])


@calls
def test_models_in_irees_runtime(prepared, place, release, tmp_path, model, size):
    inputs = write_inputs(CASES[model].inputs(size), tmp_path)
    expected = CASES[model].expected(size)
    outputs = [tmp_path / f"output{index}.bin" for index in range(len(expected))]
    files = prepared(model)
    written = [f"--output=@{path}" for path in outputs]
    place.run(release, "iree-run-module", *files.call(model, "main", release, inputs), *written)
    dtype = CASES[model].numpy_dtype
    found = [np.fromfile(o, dtype).reshape(e.shape) for o, e in zip(outputs, expected, strict=True)]
    check(place, model, size, found)


@names
def test_names_in_our_runtime(prepared, place, name):
    x = np.array([1, 2, 3, 4], np.float32)
    with runtime.open(prepared("names").package("names"), device=place.device) as program:
        np.testing.assert_array_equal(program(x, function=name).numpy(), x * x + NAMES.index(name) + 1)


@names
def test_names_in_irees_runtime(prepared, place, release, name):
    module = prepared("names").module("names", release)
    output = place.run(release, "iree-run-module", f"--module={module}", f"--function={name}", "--input=4xf32=1,2,3,4")
    values = " ".join(str(x * x + NAMES.index(name) + 1) for x in (1, 2, 3, 4))
    assert output.splitlines() == [f"EXEC @{name}", "result[0]: hal.buffer_view", f"4xf32={values}"]


@pytest.mark.parametrize("model", params(((model,) for model in MODELS), slow=RUN_SLOWLY))
def test_irees_tools_take_modules_and_their_executables(prepared, place, release, tmp_path, model, capsys):
    module = prepared(model).module(model, release)
    dumped = release.checked("iree-dump-module", module)
    for function in NAMES if model == "names" else ("main",):
        assert function in dumped
    assert main(["extract", str(module), "-o", str(tmp_path)]) == 0
    capsys.readouterr()
    files = list(tmp_path.glob("*.cda1"))
    extracted = {export for path in files for export in read_executable(path.read_bytes()).exports}
    executables = read_vmfb(module.read_bytes()).executables
    assert len(files) == len(executables)
    assert extracted == {export for executable in executables for export in executable.exports}
    for path in files:
        launch_all(place, release, path)


def launch_all(place: Place, release: Release, path: Path) -> None:
    """Has `iree-benchmark-executable` load an executable, and launch one workgroup of each of its kernels."""
    for export in read_executable(path.read_bytes()).exports:
        place.run(
            release,
            "iree-benchmark-executable",
            "--executable_format=cuda-nvptx-fb",
            f"--executable_file={path}",
            f"--entry_point={export.ordinal}",
            *[f"--binding={SCRATCH}xi8"] * export.binding_count,
            *["--constant=1"] * export.constant_count,
            "--workgroup_count=1,1,1",
            "--batch_size=1",
            "--benchmark_min_time=1x",
        )
