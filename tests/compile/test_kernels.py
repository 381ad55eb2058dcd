"""From Triton functions to PTX and cubins, with the real compiler and assembler."""

import dataclasses
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.compiler
pytest.importorskip("triton")

import kernels_under_test as kernels  # noqa: E402 (needs triton)

from coilpack.compiler import _triton_compat  # noqa: E402
from coilpack.compiler.cache import Cache  # noqa: E402
from coilpack.compiler.kernels.assemble import assemble, find_ptxas  # noqa: E402
from coilpack.compiler.kernels.lower import KernelCompiler, lower_many  # noqa: E402
from coilpack.compiler.kernels.lowered import LoweredKernel, ResourceError, block_registers  # noqa: E402
from coilpack.compiler.kernels.pool import WorkerError, WorkerPool  # noqa: E402
from coilpack.compiler.kernels.source import KernelSource  # noqa: E402
from coilpack.compiler.targets import TARGETS  # noqa: E402
from coilpack.runtime.errors import CoilpackError, InputError, UnsupportedError  # noqa: E402

ADD, SCALARS = kernels.SOURCES["add"], kernels.SOURCES["scalars"]
SM_80 = TARGETS["sm_80"]


@pytest.fixture(scope="module", params=["sm_80", "sm_90", "sm_100", "sm_120"])
def lowered(request):
    target = TARGETS[request.param]
    return target, dict(zip(kernels.SOURCES, lower_many(list(kernels.SOURCES.values()), target), strict=True))


def test_every_kernel_compiles_and_its_symbol_is_in_ptx_and_cubin(lowered):
    target, found = lowered
    for name, kernel in found.items():
        assert kernel.kernel_name == kernels.SOURCES[name].kernel_name
        assert re.findall(r"\.entry (\w+)\(", kernel.ptx) == [kernel.kernel_name]
        assert f".target {target.ptx_name}\n" in kernel.ptx
        assert kernel.cubin.startswith(b"\x7fELF")
        assert b".text." + kernel.kernel_name.encode() + b"\0" in kernel.cubin
        assert kernel.ptx.count(".reqntid") == 1
        assert f".reqntid {kernel.block_dims[0]}\n" in kernel.ptx


def test_parameters_are_those_of_the_ptx_in_its_order(lowered):
    _, found = lowered
    expected = {
        "add": ["x: *fp32 16", "y: *fp32 16", "out: *fp32 16", "n: i32 1"],
        "softmax": ["x: *bf16 16", "out: *bf16 16", "columns: i32 1"],
        "matmul": ["a: *fp16 16", "b: *fp16 16", "c: *fp16 16", "m: i32 1", "n: i32 16", "k: i32 16"],
        "scalars": ["out: *fp32 16", "small: i32 1", "large: i64 1", "scale: fp32 1", "half: fp16 1", "flag: i1 1"],
        "row_max": ["x: *fp32 16", "out: *fp32 16"],
    }
    for name, kernel in found.items():
        assert [f"{p.name}: {p.type} {p.divisibility}" for p in kernel.parameters] == expected[name]
        declared = re.findall(rf"\.param .*{kernel.kernel_name}_param_(\d+)", kernel.ptx)
        assert declared == [str(i) for i in range(len(kernel.parameters))]
    assert [k.iree_compatible for k in found.values()] == [True, True, True, False, True]


def test_resources_are_reported(lowered):
    target, found = lowered
    assert found["add"].shared_memory_bytes == 0
    assert found["softmax"].shared_memory_bytes > 0
    assert found["matmul"].shared_memory_bytes >= 2 * 64 * 32 * 2
    assert (found["matmul"].tensor_memory_columns > 0) == (target.tensor_memory_columns > 0)


def test_the_form_in_the_cache_keeps_everything_but_the_cubin_and_what_it_says(lowered):
    for kernel in lowered[1].values():
        assert LoweredKernel.from_bytes(kernel.to_bytes()) == dataclasses.replace(kernel, cubin=None, registers=0)


def load_copy(folder):
    """The module of the kernels, from a copy of its source in `folder`."""
    folder.mkdir()
    path = shutil.copy(Path(kernels.__file__), folder / "copied_kernels.py")
    specification = importlib.util.spec_from_file_location("copied_kernels", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_two_builds_in_different_folders_give_identical_bytes_without_paths(tmp_path):
    builds = []
    for folder in ("one", "another"):
        module = load_copy(tmp_path / folder)
        builds.append(lower_many([module.SOURCES["softmax"], module.matmul_source()], TARGETS["sm_90"], jobs=1))
    assert builds[0] == builds[1]
    for kernel in builds[0]:
        for trace in (str(tmp_path), "copied_kernels", "/tmp", str(Path.home())):
            assert trace not in kernel.ptx
            assert trace.encode() not in kernel.cubin


def test_the_second_run_is_served_from_the_cache(tmp_path):
    sources = [ADD, SCALARS]
    with KernelCompiler(SM_80, cache=Cache(tmp_path)) as first:
        made = first.compile(sources)
    assert (first.compiled, first.assembled, first.cached) == (2, 2, 0)
    with KernelCompiler(SM_80, cache=Cache(tmp_path)) as second:
        assert second.compile(sources) == made
    assert (second.compiled, second.assembled, second.cached) == (0, 0, 4)


def test_whatever_changes_the_code_misses_the_cache(tmp_path):
    cache = Cache(tmp_path)
    lower_many([ADD], SM_80, cache=cache, cubin=False)
    variants = [
        dataclasses.replace(ADD, options={"num_warps": 4}),
        dataclasses.replace(ADD, constants={"BLOCK": 128}),
        dataclasses.replace(ADD, signature={**ADD.signature, "x": "*fp16"}),
        dataclasses.replace(ADD, attributes={}),
        dataclasses.replace(ADD, kernel_name="other"),
    ]
    with KernelCompiler(SM_80, cache=cache, cubin=False) as compiler:
        compiler.compile(variants)
    assert (compiler.compiled, compiler.cached) == (len(variants), 0)
    for other in (
        KernelCompiler(SM_80, cache=cache, cubin=False, ptx_version=(8, 4)),
        KernelCompiler(TARGETS["sm_86"], cache=cache, cubin=False),
    ):
        with other:
            other.compile([ADD])
        assert (other.compiled, other.cached) == (1, 0)


def test_a_function_that_the_kernel_calls_is_part_of_its_identity(tmp_path):
    text = (
        "import triton\nimport triton.language as tl\nSCALE = tl.constexpr(2)\n\n"
        "@triton.jit\ndef helper(x):\n    return x + 1\n\n"
        "@triton.jit\ndef kernel(out):\n    tl.store(out, helper(SCALE))\n"
    )
    identities = []
    for index, changed in enumerate((text, text, text.replace("+ 1", "+ 3"), text.replace("(2)", "(5)"))):
        path = tmp_path / f"m{index}" / "called.py"
        path.parent.mkdir()
        path.write_text(changed)
        specification = importlib.util.spec_from_file_location("called", path)
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        identities.append(KernelSource(module.kernel, "k", {"out": "*i32"}).identity())
    assert identities[0] is not None
    assert [i == identities[0] for i in identities] == [True, True, False, False]


def test_a_damaged_cache_is_compiled_again(tmp_path):
    (made,) = lower_many([ADD], SM_80, cache=Cache(tmp_path))
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) == 2
    for file in files:
        file.write_bytes(file.read_bytes()[:-5])
    with KernelCompiler(SM_80, cache=Cache(tmp_path)) as compiler:
        assert compiler.compile([ADD]) == [made]
    assert (compiler.compiled, compiler.assembled, compiler.cached) == (1, 1, 0)


def test_too_much_shared_memory_is_an_error_of_its_own_also_from_the_cache(tmp_path):
    large = kernels.matmul_source("large", block=(128, 128, 64), num_stages=5, num_warps=8)
    for compiled in (1, 0):
        with KernelCompiler(TARGETS["sm_120"], cache=Cache(tmp_path)) as compiler:
            with pytest.raises(ResourceError, match=r"kernel 'large' needs [\d,]+ bytes of shared memory") as caught:
                compiler.compile([large])
            assert caught.value.limit == 101_376 < caught.value.needed
        assert (compiler.compiled, compiler.assembled) == (compiled, 0)
    (fits,) = lower_many([large], SM_80, cubin=False)
    assert fits.shared_memory_bytes == caught.value.needed


def test_too_many_threads():
    with pytest.raises(ResourceError, match="needs 2,048 threads"):
        lower_many([dataclasses.replace(ADD, options={"num_warps": 64})], SM_80)


def test_more_registers_than_there_are_and_the_next_configuration():
    """1,024 threads of 65 registers each cannot start; only machine code says how many there are."""
    greedy = kernels.powers_source(num_warps=32, maxnreg=255)
    modest = kernels.powers_source(num_warps=4)
    messages = []
    with KernelCompiler(SM_80, jobs=1) as compiler:
        with pytest.raises(ResourceError, match=r"needs 73,728 registers of the register file per block.* has 65,536"):
            compiler.compile([greedy])
        ((first, add), (second, chosen)) = compiler.compile_first_fitting([[ADD], [greedy, modest]], messages.append)
    assert (first, second, add.kernel_name) == (0, 1, "add")
    assert 0 < block_registers(chosen) <= SM_80.registers_per_multiprocessor
    assert [message.endswith("trying the next configuration") for message in messages] == [True]


def test_a_kernel_that_needs_scratch_memory_is_refused_by_name_and_size():
    with pytest.raises(UnsupportedError, match="kernel 'descriptor' needs 128 bytes of global scratch"):
        lower_many([kernels.NEEDS_SCRATCH], TARGETS["sm_90"])


def test_the_ptx_version_asked_for_is_the_one_written():
    (kernel,) = lower_many([ADD], TARGETS["sm_90"], ptx_version=(8, 4))
    assert kernel.ptx.startswith(".version 8.4\n.target sm_90a\n")
    with pytest.raises(InputError, match=r"8\.4 does not know sm_100a"):
        KernelCompiler(TARGETS["sm_100"], ptx_version=(8, 4))


def test_ptx_newer_than_the_assembler_names_both_and_ptx_alone_works():
    if find_ptxas(SM_80).version >= (13, 1):
        pytest.skip("this assembler reads PTX 9.1")
    with pytest.raises(
        UnsupportedError, match=r"kernel 'add' is PTX 9\.1, and ptxas 1\d\.\d+\.\d+ \(.*\) reads PTX up to"
    ):
        lower_many([ADD], SM_80, ptx_version=(9, 1))
    (kernel,) = lower_many([ADD], SM_80, ptx_version=(9, 1), cubin=False)
    assert kernel.cubin is None
    assert kernel.ptx.startswith(".version 9.1\n")


def test_an_architecture_that_the_assembler_lacks_names_tool_and_architecture():
    (kernel,) = lower_many([ADD], SM_80, cubin=False)
    future = dataclasses.replace(TARGETS["sm_90"], name="sm_990", ptx_name="sm_990a")
    with pytest.raises(UnsupportedError, match=r"ptxas [\d.]+ \(.*\) cannot assemble for sm_990a; ask for PTX images"):
        assemble(kernel.ptx, future, kernel_name="add")


def test_assembly_that_is_refused_carries_the_log_and_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    source = KernelSource(kernels.bad_assembly_kernel, "bad", {"out": "*i32"}, location="model.py:7")
    with pytest.raises(CoilpackError, match=r"kernel 'bad': ptxas .* refuses its PTX for sm_80:\n(?s:.)*nonsense"):
        lower_many([source], SM_80)
    assert list(tmp_path.iterdir()) == []


def test_what_triton_refuses_carries_its_message_and_the_location():
    source = KernelSource(kernels.undefined_name_kernel, "bad", {"out": "*i32"}, location="model.py:7")
    with pytest.raises(
        UnsupportedError, match=r"kernel 'bad' \(model.py:7\): Triton cannot (?s:.)*not_defined_anywhere"
    ):
        lower_many([source], SM_80)


def test_a_reference_that_triton_cannot_follow_is_an_error_of_ours_with_a_cache_too(tmp_path):
    source = KernelSource(kernels.calls_python_kernel, "bad", {"out": "*i32"})
    for cache in (None, Cache(tmp_path)):
        with pytest.raises(
            UnsupportedError, match=r"kernel 'bad': Triton cannot compile it for sm_80(?s:.)*not_a_triton"
        ):
            lower_many([source], SM_80, cache=cache)


def test_something_without_a_stable_text_has_no_identity():
    source = dataclasses.replace(ADD, attributes={**ADD.attributes, (3,): [["tt.divisibility", 16], [object(), 1]]})
    assert source.identity() is None
    assert ADD.identity() is not None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_warps": 3}, UnsupportedError, "power of 2"),
        ({"num_ctas": 2}, UnsupportedError, "num_ctas > 1"),
        ({"num_wraps": 4}, UnsupportedError, "'num_wraps' is not an option"),
        ({"num_warps": [4]}, InputError, r"option num_warps is \[4\]"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=f"kernel 'add'.*{message}"):
        lower_many([dataclasses.replace(ADD, options=options)], SM_80)


def test_a_failing_kernel_leaves_the_compiler_usable():
    bad = KernelSource(kernels.undefined_name_kernel, "bad", {"out": "*i32"})
    with KernelCompiler(SM_80, cubin=False, jobs=1) as compiler:
        futures = [compiler.submit(source) for source in (ADD, bad, SCALARS)]
        assert futures[0].result().kernel_name == "add"
        assert isinstance(futures[1].exception(), UnsupportedError)
        assert futures[2].result().kernel_name == "scalars"


def test_a_kernel_that_ends_the_worker_is_reported_with_the_log_and_the_worker_replaced():
    deadly = KernelSource(kernels.deadly_kernel, "deadly", {"out": "*i32"})
    with KernelCompiler(SM_80, cubin=False, jobs=1) as compiler:
        futures = [compiler.submit(source) for source in (ADD, deadly, SCALARS)]
        with pytest.raises(UnsupportedError, match=r"(?s)kernel 'deadly'.*process ended by .*constraint 'Z'"):
            futures[1].result()
        assert [futures[i].result().kernel_name for i in (0, 2)] == ["add", "scalars"]


def test_the_log_of_one_request_is_not_that_of_another():
    request = {"ir": "garbage", "options": {}, "compute_capability": 80}
    pool = WorkerPool()
    try:
        for text in ("garbage", "rubbish", "garbage"):
            with pytest.raises(WorkerError, match=rf"(?s)RuntimeError.*custom op '{text}'") as caught:
                pool.run({**request, "ir": text})
            assert str(caught.value).count("custom op") == 1
    finally:
        pool.close()


def test_a_script_without_a_main_guard_can_compile(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(kernels.__file__).parent)!r})\n"
        "import kernels_under_test as kernels\n"
        "from coilpack.compiler.kernels.lower import lower_many\n"
        "from coilpack.compiler.targets import TARGETS\n"
        "print(lower_many([kernels.SOURCES['add']], TARGETS['sm_80'], cubin=False)[0].kernel_name)\n"
        "print('torch' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["add", "False"]


def test_the_installed_triton_is_a_supported_one():
    assert tuple(map(int, _triton_compat.VERSION.split(".")[:2])) in _triton_compat.SUPPORTED_VERSIONS
