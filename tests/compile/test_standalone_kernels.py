"""Kernels without a model: bare Triton functions and the modules that Inductor generates, compiled, then launched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import TARGET  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.cli.main import main  # noqa: E402
from coilpack.compiler._triton_compat import offline_driver  # noqa: E402
from coilpack.compiler.driver import CompileOptions, compile_kernels  # noqa: E402
from coilpack.compiler.kernel_options import KernelOptions  # noqa: E402
from coilpack.compiler.kernels.lower import KernelCompiler  # noqa: E402
from coilpack.compiler.kernels.lowered import ResourceError  # noqa: E402
from coilpack.compiler.standalone import compile as standalone  # noqa: E402
from coilpack.compiler.standalone.triton_function import read_function  # noqa: E402
from coilpack.compiler.targets import TARGETS  # noqa: E402
from coilpack.runtime.dtypes import DType  # noqa: E402
from coilpack.runtime.errors import InputError, InvalidFileError, NotFoundError, UnsupportedError  # noqa: E402
from coilpack.runtime.package import Package, write_package  # noqa: E402
from coilpack.runtime.program import ir  # noqa: E402

FILE = Path(__file__).parent / "single_kernels.py"
MODULE = Path(__file__).parent / "data" / "generated_module_torch_2_13.txt"
PTX = (ir.ImageKind.PTX,)

FUNCTIONS = {
    "add": KernelOptions("*fp32:16, *fp32, *fp32:16, i32, 128", "cdiv(n, BLOCK)", num_warps=2),
    "affine": KernelOptions("*fp32, *fp32, 128, i32, fp64, None, i32:1, True, i32", "cdiv(n, 128), 1, 1"),
    "widths": KernelOptions("*fp64, i32, fp16, bf16, fp32, fp64", "1"),
    "matmul": KernelOptions("*fp16:16, *fp16:16, *fp32, i32, i32:16, i32:16, False", "cdiv(p3, BM), cdiv(n, BN)"),
}


@pytest.fixture(scope="module")
def compiled():
    """All functions, compiled at once for one target, and the messages."""
    messages: list[str] = []
    target = TARGETS[TARGET]
    with (
        KernelCompiler(target, cubin=False, jobs=1) as compiler,
        offline_driver(80, target.shared_memory_per_block_optin, 108, 65536),
    ):
        kernels = [read_function(FILE, name, options) for name, options in FUNCTIONS.items()]
        bundle = standalone.compile_kernels(kernels, compiler, PTX, messages.append)
    return bundle, messages


@pytest.fixture(scope="module")
def opened(compiled, tmp_path_factory):
    """Loads all functions on a device, once."""
    path = tmp_path_factory.mktemp("functions") / "kernels.coil"
    write_package(path, compiled[0].program, compiled[0].executables, [])
    found: dict[str, runtime.LoadedExecutable] = {}

    def load(device):
        if device.name not in found:
            found[device.name] = runtime.load_executable(path, device)
        return found[device.name]

    yield load
    for executable in found.values():
        executable.close()


@pytest.fixture
def loaded(opened, device):
    return opened(device)


def on(device, *arrays):
    return [runtime.to_device(array, device) for array in arrays]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# --- functions ---


def test_add(loaded, device) -> None:
    x, y = random(300), random(300, seed=1)
    arrays = on(device, x, y, np.zeros(300, np.float32))
    loaded.lookup("add").launch(None, [*arrays, 300])
    np.testing.assert_array_equal(arrays[2].numpy(), x + y)


def test_constants_none_and_one_are_no_parameters(loaded, device) -> None:
    """Cases 9 and 10: bound by name, and the signature's fp64 is honoured."""
    kernel = loaded.lookup("affine").kernel
    assert [p.dtype.name for p in kernel.parameters] == ["f32", "f32", "i32", "f64", "i32"]
    x = random(300)
    source, out = on(device, x, np.zeros(300, np.float32))
    loaded.lookup("affine").launch(None, [source, out, 300, 0.1, 7])
    expected = -(x.astype(np.float64) * 0.1 + 7)
    np.testing.assert_allclose(out.numpy(), expected, rtol=2**-23)


def test_scalars_of_every_width_and_defaults(loaded, device) -> None:
    """Case 8: each scalar has the width of its type; what has a default and no item is a constant."""
    (out,) = on(device, np.zeros(1))
    kernel = loaded.lookup("widths").kernel
    assert [p.dtype.name for p in kernel.parameters] == ["f64", "i32", "f16", "bf16", "f32", "f64"]
    loaded.lookup("widths").launch(None, [out, -3, 1.5, 0.25, 0.1, 0.1])
    np.testing.assert_array_equal(out.numpy(), [(1.5 + 0.25 + float(np.float32(0.1)) + 0.1) * 2.0 - 3])


def test_the_first_configuration_that_fits_is_taken(compiled, loaded, device) -> None:
    bundle, messages = compiled
    (refused,) = [message for message in messages if "shared memory" in message]
    assert "kernel 'matmul' needs" in refused
    assert refused.endswith("trying the next configuration")
    kernel = next(k for k in bundle.program.targets[0].kernels if k.export_name == "matmul")
    assert loaded.lookup("matmul").export.block_dims == (64, 1, 1)
    a, b = random(40, 32).astype(np.float16), random(32, 48, seed=1).astype(np.float16)
    arrays = on(device, a, b, np.zeros((40, 48), np.float32))
    loaded.lookup("matmul").launch(None, [*arrays, 40, 48, 32])
    np.testing.assert_allclose(arrays[2].numpy(), a.astype(np.float64) @ b.astype(np.float64), atol=1e-4)
    assert kernel.grid is not None


def test_no_configuration_fits() -> None:
    options = KernelOptions("*fp16:16, *fp16:16, *fp32, i32:16")
    compiler = KernelCompiler(TARGETS[TARGET], cubin=False, jobs=1)
    with compiler, pytest.raises(ResourceError, match=r"kernel 'too_large' needs .* bytes of shared memory per block"):
        standalone.compile_function(FILE, "too_large", options, compiler, PTX, print)


@pytest.mark.parametrize(
    ("name", "signature", "grid", "error", "message"),
    [
        ("subtract", "", None, InputError, r"no Triton function 'subtract' .* it has \['add', 'affine', 'matmul'"),
        ("not_a_kernel", "", None, InputError, "no Triton function 'not_a_kernel'"),
        ("add", "*fp32, *fp32, *fp32, i32", None, InputError, "the signature lacks BLOCK"),
        ("add", "*fp32, *fp32, *fp32, i32, 1, 2", None, InputError, "more items than the 5 arguments"),
        ("add", "*fp32, *fp32, *fp32, i32, i32", None, InputError, "'BLOCK' is a constexpr; give its value"),
        ("add", "*fp32, *fp32, *fp32, int, 128", None, InputError, "'int' in the signature is neither a type"),
        (
            "add",
            "tensordesc<fp32[16,16]>, *fp32, *fp32, i32, 128",
            None,
            UnsupportedError,
            r"'tensordesc<fp32\[16,16\]>' in the signature is a tensor descriptor",
        ),
        ("add", "*fp32:8, *fp32, *fp32, i32, 128", None, InputError, "a multiple of 16, and an integer 1"),
        ("add", "*fp32, *fp32, *fp32, n=i32, 128", None, InputError, "stands behind named ones"),
        ("add", "*fp32, *fp32, *fp32, i32, SIZE=128", None, NotFoundError, "SIZE"),
        ("add", "*fp32, *fp32, *fp32, i32, n=i32", None, InputError, "gives the argument 'n' twice"),
        ("matmul", "*fp16, *fp16, *fp32, i32, i32, i32", None, InputError, "the signature lacks EVEN"),
        ("add", "*fp32, *fp32, *fp32, i32, 128", "cdiv(x, 128)", InputError, r"`x` .* may use \['BLOCK', 'n', 'p3'\]"),
        ("add", "*fp32, *fp32, *fp32, i32, 128", "1, 1, 1, 1", InputError, "must be one to three sizes"),
        ("add", "*fp32, *fp32, *fp32, i32, 128", "cdiv(n,", InputError, "cannot be read"),
    ],
)
def test_wrong_requests(name: str, signature: str, grid: str | None, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        read_function(FILE, name, KernelOptions(signature, grid))


def test_items_by_name_and_strings_with_commas() -> None:
    kernel = read_function(FILE, "widths", KernelOptions('*fp64, i32, fp16, bf16, fp32, double=fp64, KIND="a, b"'))
    constants = kernel.candidates[0].source.constants
    assert constants == {"factor": 2.0, "KIND": "a, b"}


# --- generated modules ---


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The package of the kernels of a generated module."""
    folder = tmp_path_factory.mktemp("generated")
    source = folder / "output_code.py"
    source.write_text(MODULE.read_text())
    report = compile_kernels(str(source), folder / "kernels.coil", CompileOptions(image="ptx", jobs=1))
    return report.output


def test_every_kernel_of_the_module_is_there(generated) -> None:
    with Package.open(generated) as package:
        kernels = {kernel.export_name: kernel for kernel in package.program.targets[0].kernels}
    assert list(kernels) == [
        "triton_per_fused_native_layer_norm_0",
        "triton_tem_fused_gelu_mm_native_layer_norm_1",
        "affine_0",
        "triton_red_fused_sum_2",
        "triton_per_fused__softmax_add_gelu_prepare_softmax_online_3",
    ]
    ruled = [name for name, kernel in kernels.items() if kernel.grid is not None]
    assert len(ruled) == 3  # the host program computes the grids of a template and of a user's kernel
    last = kernels["triton_per_fused__softmax_add_gelu_prepare_softmax_online_3"]
    accesses = [p.access for p in last.parameters if isinstance(p, ir.PointerParameter)]
    assert accesses == [ir.Access.READ | ir.Access.WRITE, ir.Access.READ, ir.Access.READ]


def test_its_kernels_compute_the_model(generated, device) -> None:
    """The launches of the module's `call`, by the package's rules; a user's kernel gets no None and no 1."""
    rows, x, weight = 50, random(50, 64), random(64, 64, seed=1)
    first, second = on(device, x, weight)
    buf3, buf4, buf5, buf6 = on(device, *[np.zeros((rows, 64), np.float32)] * 4)
    (buf10,) = on(device, np.zeros((1, 64), np.float32))
    with runtime.load_executable(generated, device) as loaded:

        def launch(name: str, grid, *arguments) -> None:
            (found,) = [export.name for export in loaded.exports if name in export.name]
            loaded.lookup(found).launch(grid, arguments)

        launch("layer_norm_0", None, first, buf3, rows, 64)
        launch("mm", 2 * ((31 + rows) // 32), buf3, second, buf4, buf6, rows)
        launch("affine", (127 + 64 * rows) // 128, buf6, buf5, 64 * rows, 0.1, 7)
        launch("sum_2", None, first, buf10, 64, rows)
        launch("softmax", None, buf4, buf5, buf10, rows, 64)
    x64, weight64 = torch.tensor(x, dtype=torch.float64), torch.tensor(weight, dtype=torch.float64)
    y = torch.nn.functional.gelu(torch.nn.functional.layer_norm(x64, (64,)) @ weight64)
    expected = (-(y * 0.1 + 7) + y).softmax(-1) + x64.sum(0, keepdim=True)
    np.testing.assert_allclose(buf4.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


BROKEN = {
    "a kernel without source": (
        "del async_compile",
        "del async_compile\ndef more(x):\n    triton_poi_gone_7.run(x, 16, stream=0)\n",
        InvalidFileError,
        "it launches 'triton_poi_gone_7', which has no source in the module",
    ),
    "a source that is elsewhere": (
        "async_compile.triton('affine', '''",
        "async_compile.triton('affine', SOURCE, '''",
        InvalidFileError,
        "the source of kernel 'affine_0' is not in the module",
    ),
    "something else than Triton": (
        "async_compile.wait(",
        "cpp_fused_0 = async_compile.cpp_pybinding(['float*'], '''x''')\nasync_compile.wait(",
        UnsupportedError,
        "cpp_fused_0 is made by async_compile.cpp_pybinding; only Triton kernels are compiled",
    ),
    "a kernel without a name": (
        "async_compile.wait(",
        "[async_compile.triton('a', '''x''')]\nasync_compile.wait(",
        InvalidFileError,
        "the result of async_compile.triton is not assigned to a name",
    ),
    "a workspace": (
        "'in_out_ptr0': '*fp32', 'in_ptr0'",
        "'ws_ptr': '*fp32', 'in_ptr0'",
        UnsupportedError,
        r"kernel 'triton_per_fused__softmax.*' takes a workspace \(ws_ptr\)",
    ),
    "a source that cannot run": (
        "triton_helpers.set_driver_to_gpu()",
        "import absent_module",
        InputError,
        "kernel_0.py cannot be imported: ModuleNotFoundError: No module named 'absent_module'",
    ),
    "no Python": ("import math", "import math math", InvalidFileError, "it is no Python source: invalid syntax"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_a_module_must_not_hold(case: str, tmp_path) -> None:
    old, new, error, message = BROKEN[case]
    text = MODULE.read_text()
    assert old in text
    source = tmp_path / "output_code.py"
    source.write_text(text.replace(old, new, 1))
    with pytest.raises(error, match=message):
        compile_kernels(str(source), tmp_path / "x.coil", CompileOptions(image="ptx", jobs=1))
    assert not (tmp_path / "x.coil").exists()


# --- the command ---


def test_the_command_writes_an_executable(tmp_path, capsys, device) -> None:
    path = tmp_path / "add.cda1"
    arguments = ["--signature", "*fp32, *fp32, *fp32, i32, 128", "--num-warps", "2", "--no-cache"]
    assert main(["compile", f"{FILE}:add", *arguments, "-o", str(path), "--target", TARGET]) == 0
    assert capsys.readouterr().out == f"{path}: {path.stat().st_size} bytes, 1 kernels for sm_80\n"
    x, y = random(300), random(300, seed=1)
    arrays = on(device, x, y, np.zeros(300, np.float32))
    with runtime.load_executable(path, device) as loaded:
        loaded.lookup("add").launch(3, arrays, [300])
    np.testing.assert_array_equal(arrays[2].numpy(), x + y)


def test_an_executable_of_a_kernel_with_scalars_of_all_widths(tmp_path, device) -> None:
    path = tmp_path / "widths.cda1"
    arguments = ["--signature", "*fp64, i32, fp16, bf16, fp32, fp64"]
    assert main(["compile", f"{FILE}:widths", *arguments, "-o", str(path), "--target", TARGET, "--no-cache"]) == 0
    (out,) = on(device, np.zeros(1))
    small, half, brain, single = (
        int.from_bytes(np.array(value, dtype).tobytes(), "little")
        for value, dtype in ((-3, "i4"), (1.5, "f2"), (0.25, DType.bf16.numpy), (0.1, "f4"))
    )
    double = np.array([0.1]).view("u4").tolist()  # the lower half first
    with runtime.load_executable(path, device) as loaded:
        kernel = loaded.lookup("widths")
        assert (kernel.export.binding_count, kernel.export.constant_count) == (1, 6)
        kernel.launch(1, [out], [small, half, brain, single, *double])
    np.testing.assert_array_equal(out.numpy(), [(1.5 + 0.25 + float(np.float32(0.1)) + 0.1) * 2 - 3])


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([f"{FILE}:add", "--grid", "1"], 2, "belong to a Triton function, with --signature"),
        ([str(FILE), "--signature", "i32"], 1, "a signature is one function's"),
        ([str(FILE)], 1, "assigns no kernels by `async_compile.triton(...)`"),
        ([f"{FILE}:add"], 1, "is a Triton kernel; give --signature"),
        (["absent.py"], 1, "'absent.py' cannot be read"),
        (["absent.py:add", "--signature", "i32"], 1, "there is no file 'absent.py'"),
        (
            [f"{FILE}:widths", "--signature", "*fp64, i32, fp16, bf16, fp32, fp64", "--image", "cubin"],
            1,
            "kernel 'widths' has 6 parameters that are not at most 16 pointers",
        ),
    ],
)
def test_wrong_commands(arguments: list[str], status: int, words: str, tmp_path, capsys) -> None:
    assert main(["compile", *arguments, "-o", str(tmp_path / "x.cda1"), "--no-cache"]) == status
    assert words in capsys.readouterr().err
    assert not (tmp_path / "x.cda1").exists()
