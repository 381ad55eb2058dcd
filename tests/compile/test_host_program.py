"""Host programs read from modules that Inductor generated: recorded ones, and ones that are also captured."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from core_operations import OPERATIONS  # noqa: E402
from generated_modules import Generated, generate, operations  # noqa: E402
from in_process import TARGET, export  # noqa: E402
from inductor_kernels import KERNELS  # noqa: E402
from small_models import MODELS  # noqa: E402

from coilpack.compiler.capture.host_graph import dispatch, random_seeds  # noqa: E402
from coilpack.compiler.capture.size_expressions import expression  # noqa: E402
from coilpack.compiler.capture.sympy_source import printed_sizes  # noqa: E402
from coilpack.compiler.freezing.host_program import read_host_program  # noqa: E402
from coilpack.compiler.freezing.kernel_bundle import CompiledConfiguration  # noqa: E402
from coilpack.compiler.freezing.kernel_text import Opaque, generated_kernel  # noqa: E402
from coilpack.compiler.standalone.generated_module import read_kernels  # noqa: E402
from coilpack.runtime.errors import InputError, InvalidFileError, UnsupportedError  # noqa: E402
from coilpack.runtime.program.expr import evaluate, symbols  # noqa: E402

RECORDED = Path(__file__).parent / "data" / "generated"
ROWS = {**MODELS, **KERNELS, **OPERATIONS}


class _Averaged(torch.nn.Module):
    """State that changes in place, noise, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(64))
        self.weight = torch.nn.Parameter(torch.randn(64, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.9).add_(x.mean(0) * 0.1)
        return (x - self.mean + torch.rand_like(x)) @ self.weight


class _Groups(torch.nn.Module):
    """Groups of four rows: its input shows four times the size that the sizes in it are made of."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return scale(x.view(-1, 4, 300)[:, -1] + 1, 0.5), torch.cat([x[::4] * 2, x])


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):  # noqa: N803 (constants are in capitals)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@torch.library.triton_op("test_host_program::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    out, n = torch.empty_like(x), x.numel()
    torch.library.wrap_triton(scale_kernel)[lambda config: (triton.cdiv(n, config["BLOCK"]),)](x, out, n, factor)
    return out


def _groups() -> torch.export.ExportedProgram:
    rows = 4 * torch.export.Dim("groups")
    return torch.export.export(_Groups(), (torch.randn(8, 300),), dynamic_shapes=({0: rows},))


def _averaged() -> torch.export.ExportedProgram:
    return export(_Averaged(), (torch.randn(48, 64),))


FEW = {
    "constant": (lambda: export(*ROWS["constant"]()), {"size_asserts": True, "alignment_asserts": True}),
    "view_with_offset": (lambda: export(*ROWS["view_with_offset"]()), {}),
    "encoder_layer": (lambda: export(*ROWS["encoder_layer"]()), {}),
    "state_and_noise": (_averaged, {"graph_partition": True}),
    "library": (_averaged, {"library_products": True}),
    "groups": (_groups, {}),
}


def _assert_same(program: torch.export.ExportedProgram, **options: bool) -> Generated:
    generated = generate(program, TARGET, **options)
    host = read_host_program(generated.source, generated.chosen, generated.placeholder_values, generated.constants)
    assert operations(host) == operations(generated.captured)
    assert host.kernels.keys() == generated.captured.kernels.keys()
    assert host.constants.keys() == generated.captured.constants.keys()
    return generated


@pytest.mark.parametrize("name", FEW)
def test_a_module_does_what_was_captured_of_the_same_graph(name: str) -> None:
    make, options = FEW[name]
    generated = _assert_same(make(), **options)
    assert "dispatch" in {kind for kind, *_ in operations(generated.captured)}
    assert len(generated.size_inputs) == (1 if name == "groups" else 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_every_module_does_what_was_captured_of_the_same_graph(name: str) -> None:
    _assert_same(export(*ROWS[name]()))


# --- recorded on a GPU ---


def _module(name: str) -> str:
    return (RECORDED / f"{name}.py.txt").read_text()


def _chosen(source: str, block: int = 64) -> dict[str, CompiledConfiguration]:
    """One configuration of each kernel, in which everything that a tuner chooses is `block`."""
    texts = read_kernels(source, "module").assigned
    kernels = {name: generated_kernel(text, "module") for name, text in texts.items()}
    return {
        name: CompiledConfiguration("", name, {n: block for n in k.constexprs if n not in k.constants}, 4, 2)
        for name, k in kernels.items()
    }


def _launches(host) -> list[tuple]:
    return [node.args[:3] for node in host.graph.find_nodes(op="call_function", target=dispatch)]


def test_a_recorded_transformer_is_read_whole() -> None:
    source = _module("two_layers")
    values = [torch.empty(1, dtype=torch.bfloat16, device="meta") for _ in range(25)]
    host = read_host_program(source, _chosen(source), values, {})
    launches = _launches(host)
    assert len(launches) == source.count(".run(")
    assert list(host.kernels) == list(dict.fromkeys(name for name, _, _ in launches))
    name, grid, operands = launches[1]
    assert name == "triton_tem_fused_addmm_native_layer_norm_t_view_1"
    assert grid == (96, 1, 1)
    assert {key: node.name for key, node in operands.items()} == {
        "in_ptr0": "arg1_1",
        "arg_A": "buf3",
        "arg_B": "arg0_1",
        "out_ptr0": "buf4",
    }


class _Added(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def _any_rows() -> list:
    """Two fake tensors of 300 columns and any number of rows, the same for both."""
    rows, example = {0: torch.export.Dim("rows")}, torch.empty(8, 300)
    program = torch.export.export(_Added(), (example, example.clone()), dynamic_shapes=(rows, rows))
    return [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]


def test_sizes_are_those_of_the_arguments_whatever_the_module_calls_them() -> None:
    rows = _any_rows()
    source = _module("dynamic_rows").replace("s17", "s999")
    host = read_host_program(source, _chosen(source), rows, {})
    (_, column_grid, columns), (_, row_grid, _), (_, last_grid, last) = _launches(host)
    (name,) = symbols(columns["r0_numel"])
    assert name == str(rows[0].shape[0])
    assert column_grid == (5, 1, 1)  # 300 columns in blocks of 64
    assert [evaluate(row_grid[0], {name: n}) for n in (0, 1, 64, 65)] == [0, 1, 1, 2]
    assert evaluate(last["r0_numel"], {name: 7}) == 2100
    assert last_grid == (1, 1, 1)
    (allocated,) = [
        n for n in host.graph.find_nodes(op="call_function", target=torch.empty_strided) if n.name == "buf3"
    ]
    assert [evaluate(size, {name: 7}) for size in allocated.args[0]] == [7, 300]


@pytest.mark.parametrize(
    "size",
    [
        "1 + a*(b // 2)",
        "-((-a) // 128)",
        "max(1, a*b, 3) - min(a, b)",
        "math.ceil(a / 64) + math.floor(b / 3)",
        "((a // 4) % 7) * a**2",
        "(a if a < b else b)",
        "(a if a >= 8 and not (b == 3) else (4 if b <= 2 or a != 5 else 7))",
        "abs(a - b) + int(a)",
    ],
)
def test_sizes_are_computed_as_python_would(size: str) -> None:
    a, b = _sizes_of(torch.export.Dim("a", min=0), torch.export.Dim("b", min=0))
    read = expression(printed_sizes({"a": a, "b": b}).value(size))
    for values in itertools.product((0, 1, 2, 3, 5, 8, 64, 129, 300), repeat=2):
        names = dict(zip((str(a), str(b)), values, strict=True))
        want = eval(size, {"math": math}, dict(zip("ab", values, strict=True)))
        assert evaluate(read, names) == want, f"a, b = {values}"


def _sizes_of(*dims: object) -> list:
    """The symbols of torch's for dimensions of an input."""
    program = torch.export.export(
        _Added(), (torch.empty(8, 9), torch.empty(8, 9)), dynamic_shapes=(dict(enumerate(dims)),) * 2
    )
    (value, _) = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
    return [size.node.expr for size in value.shape]


def test_seeds_take_the_place_of_their_buffer() -> None:
    source = _module("dropout")
    host = read_host_program(source, _chosen(source), [torch.empty(64, 64)], {})
    (seeds,) = host.graph.find_nodes(op="call_function", target=random_seeds)
    assert seeds.args == (2,)
    ((_, _, operands),) = _launches(host)
    assert operands["in_ptr0"] is seeds
    assert operands["in_out_ptr0"].target is torch.empty_strided
    assert (operands["load_seed_offset"], operands["load_seed_offset1"]) == (0, 1)


def test_a_buffer_that_is_taken_over_stays_the_same_memory() -> None:
    source = _module("convolution")
    host = read_host_program(source, _chosen(source, block=16), [torch.empty(1)] * 3, {})
    launches = {name: operands for name, _, operands in _launches(host)}
    product, changed = launches["triton_tem_fused_convolution_2"], launches["triton_poi_fused_convolution_relu_3"]
    assert changed["in_out_ptr0"] is product["out_ptr0"]
    (grid,) = [grid for name, grid, _ in _launches(host) if name == "triton_tem_fused_convolution_2"]
    assert grid == (29, 1, 1)


# --- what is no part of a package ---

_LAST = "        return (buf3, )"
_REFUSED = {
    "library": ("buf4 = torch.ops.aten.sort.default(buf3)", "`torch.ops.aten.sort.default(buf3)`"),
    "host": ("buf3.copy_(arg0_1, False)", "there is no Triton kernel for `buf3.copy_`"),
    "other library": ("extern_kernels.convolution(buf3, arg0_1, out=buf3)", "Inductor calls a library for it"),
    "assertion": ("assert buf3.isnan().any().item()", "none of the statements"),
    "condition": ("if not 2 >= 1: raise RuntimeError('no')", "none of the statements"),
    "loop": ("while True: pass", "none of the statements"),
    "item": ("u0 = buf3.item()", "buf3.item()"),
    "pool": ("buf4 = alloc_from_pool(buf3, 0, torch.float32, (2, ), (1, ))", "alloc_from_pool"),
    "host memory": ("buf4 = empty_strided_cpu((2, ), (1, ), torch.float32)", "empty_strided_cpu"),
    "other device": ("torch.cuda.set_device(1)", "runs on one device"),
    "unknown name": ("del buf9", "there is no buf9"),
    "other kernel": ("triton_poi_fused_other.run(buf3, stream=stream0)", "no source of 'triton_poi_fused_other'"),
    "other stream": ("NAME.run(buf3, buf3, buf3, 0, 1, 4096, stream=1)", "on the stream of the program"),
    "other arguments": ("NAME.run(buf3, 4096, stream=stream0)", "launched with 2 arguments"),
    "other seeds": ("aten.randint.low_out(0, 10, [2], out=buf3)", "something else than seeds"),
    "other product": (
        "extern_kernels.mm(buf3, buf3, out_dtype=torch.float32, out=buf3)",
        "numbers as `alpha` and `beta`",
    ),
    "too many factors": ("extern_kernels.mm(buf3, buf3, buf3, out=buf3)", "takes no 3 tensors"),
    "integer product": ("extern_kernels.mm(buf0, buf0, out=buf0)", "multiplies torch.int64"),
    "element type": ("buf4 = empty_strided_cuda((2, ), (1, ), float)", "`float` is no element type"),
    "view": ("buf4 = reinterpret_tensor(3, (2, ), (1, ), 0)", "`3` is no tensor"),
    "fraction": ("buf4 = empty_strided_cuda((2.5, ), (1, ), torch.float32)", "2.5 is no size"),
    "more": ("return (buf3, )\n        return (buf3, )", "after the program has returned"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_no_package_carries_out_is_refused_with_its_line(name: str) -> None:
    statement, reason = _REFUSED[name]
    source = _module("dropout").replace("            del buf0\n", "")
    (kernel,) = read_kernels(source, "module").assigned
    statement = statement.replace("NAME", kernel)
    changed = source.replace(_LAST, f"        {statement}\n{_LAST}")
    line = changed[: changed.index(statement)].count("\n") + 1 + statement.count("\n")
    with pytest.raises(UnsupportedError, match=rf"module\.py:{line}: ") as refused:
        read_host_program(changed, _chosen(source), [torch.empty(64, 64)], {}, "module.py")
    assert reason in str(refused.value)


def test_a_graph_in_partitions_is_refused_with_what_to_do() -> None:
    source = _module("dropout") + "\ndef partition_0(args):\n    pass\n"
    with pytest.raises(UnsupportedError, match="`graph_partition` off"):
        read_host_program(source, _chosen(source), [torch.empty(64, 64)], {})


def test_what_is_given_must_fit_the_module() -> None:
    source = _module("dropout")
    with pytest.raises(InputError, match="takes 1 arguments, and 2 were given"):
        read_host_program(source, _chosen(source), [None, None], {})
    with pytest.raises(InputError, match="no configuration was chosen for kernel 'triton_poi_fused_add_native"):
        read_host_program(source, {}, [torch.empty(64, 64)], {})
    with pytest.raises(InvalidFileError, match="neither a function"):
        read_host_program(source.replace("def call(self, args)", "def other(self, args)"), {}, [], {})
    with pytest.raises(UnsupportedError, match="returns nothing"):
        read_host_program(source.replace(_LAST, ""), _chosen(source), [torch.empty(64, 64)], {})


# --- kernels ---


def test_a_kernels_source_says_what_a_launch_needs() -> None:
    texts = read_kernels(_module("two_layers"), "module").assigned
    norm = generated_kernel(texts["triton_per_fused_native_layer_norm_0"], "module")
    assert norm.heuristic == "persistent_reduction"
    assert norm.argument_names == ("in_ptr0", "in_ptr1", "in_ptr2", "out_ptr2", "xnumel", "r0_numel", "XBLOCK")
    assert norm.constexprs == ("XBLOCK",)
    assert norm.signature["in_ptr0"] == "*bf16"
    assert norm.attributes[(0,)] == [["tt.divisibility", 16]]
    assert norm.inductor_meta["grid_type"] == "Grid1D"
    assert norm.inductor_meta["autotune_hints"] == frozenset()
    assert norm.options["reduction_hint"] == Opaque("ReductionHint.INNER")
    product = generated_kernel(texts["triton_tem_fused_addmm_t_transpose_view_5"], "module")
    assert (product.heuristic, product.constexprs) == ("template", ())
    assert isinstance(product.options["num_warps"], int)


def test_a_digest_is_of_what_is_compiled_and_not_of_names() -> None:
    def digest(source: str) -> str:
        (text,) = read_kernels(source, "module").assigned.values()
        return generated_kernel(text, "module").digest

    source = _module("dropout")
    kernel = digest(source)
    assert len(kernel) == 16
    assert digest(source.replace("triton_poi_fused_add_native_dropout_rand_like_0", "other")) == kernel
    assert digest(source.replace("xoffset = ", "# where it begins\n    xoffset = ")) == kernel
    assert digest(source.replace("tl.program_id(0) * XBLOCK", "tl.program_id(0) * XBLOCK + 1")) != kernel
    assert digest(source.replace("'in_ptr1': '*fp32'", "'in_ptr1': '*fp16'")) != kernel


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("@triton_heuristics.pointwise(", "@other.pointwise(", "no decorator of triton_heuristics"),
        ("triton_meta={", "triton_meta=dict(), other={", "not a mapping that stands in the source"),
        ("def triton_poi_fused_add_native_dropout_rand_like_0(", "def other(", "defines no function"),
        ("@triton.jit\n", "@triton.jit\n  x", "is no Python"),
    ],
)
def test_a_source_that_is_none_of_inductors_is_refused(old: str, new: str, reason: str) -> None:
    source = _module("dropout").replace(old, new, 1)
    with pytest.raises(InvalidFileError, match=reason):
        read_host_program(source, {}, [torch.empty(64, 64)], {})
