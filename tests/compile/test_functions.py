"""Packages of several functions: what they share, and what they are compiled from."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import compile_in_process, export, write  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.cli.main import main  # noqa: E402
from coilpack.compiler.capture import choices  # noqa: E402
from coilpack.compiler.frontends import export_callable, load_program  # noqa: E402
from coilpack.runtime.errors import InputError  # noqa: E402
from coilpack.runtime.executable import read_executable  # noqa: E402
from coilpack.runtime.package import Package  # noqa: E402
from coilpack.runtime.program import ir  # noqa: E402


class Layer(torch.nn.Module):
    """A layer with a tail of its own kind, so that two layers share some kernels and not others."""

    def __init__(self, tail: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.tail = torch.nn.Linear(16, 16), getattr(torch, tail)

    def forward(self, x):
        return self.tail(torch.softmax(self.linear(x), -1)).sum(-1)


def _dispatched(function: ir.Function) -> list[str]:
    return [op.kernel.export_name for op in function.operations if isinstance(op, ir.Dispatch)]


def test_equal_kernels_of_functions_are_one_and_each_function_runs(device, tmp_path) -> None:
    modules = {"one": Layer("tanh"), "two": Layer("exp"), "three": Layer("tanh")}
    bundle = compile_in_process({name: export(module, (torch.zeros(4, 16),)) for name, module in modules.items()})
    (target,) = bundle.program.targets
    one, two, three = map(_dispatched, target.functions)
    assert one == three
    assert [a == b for a, b in zip(one, two, strict=True)] == [True, False]  # the product; the rest with its tail
    assert [k.export_name for k in target.kernels] == [*one, two[1]]
    assert two[1].startswith("two_dispatch_1_")
    (data,) = bundle.executables.values()
    executable = read_executable(data)
    assert len(executable.modules) == len(executable.exports) == 3
    assert len(bundle.program.storages) == 2

    x = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    with runtime.open(write(bundle, tmp_path / "model.coil"), device=device.name) as program:
        for name, module in modules.items():
            expected = module.double()(torch.from_numpy(x).double()).detach().numpy()
            np.testing.assert_allclose(program(x, function=name).numpy(), expected, rtol=1e-5)


def _symbols(bundle) -> dict[str, str]:
    (data,) = bundle.executables.values()
    return {export.name: export.kernel_name for export in read_executable(data).exports}


def test_functions_whose_names_meet_in_one_symbol_both_work(tmp_path) -> None:
    layers = {}
    for seed, name in enumerate(("a$b", "a_b")):
        torch.manual_seed(seed)
        layers[name] = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.GELU())
    inputs = {"a$b": torch.randn(4, 32), "a_b": torch.randn(5, 32)}
    programs = {name: export(layer, (inputs[name],)) for name, layer in layers.items()}
    bundle = compile_in_process(programs)
    assert [s.name for s in bundle.program.signatures] == ["a$b", "a_b"]
    assert len(bundle.program.storages) == 4
    names = [kernel.export_name for kernel in bundle.program.targets[0].kernels]
    assert [name.partition("_dispatch_")[0] for name in names] == ["a$b", "a_b"]
    symbols = _symbols(bundle)
    assert list(symbols) == names
    assert symbols[names[1]] == names[1]
    assert symbols[names[0]].startswith(f"{names[1]}_")
    executable = read_executable(*bundle.executables.values())
    for export_ in executable.exports:
        assert list(executable.images[export_.module_ordinal].entries) == [export_.kernel_name]
    with runtime.open(write(bundle, tmp_path / "both.coil"), device="emulator") as program:
        for name, layer in layers.items():
            result = program(inputs[name].numpy(), function=name).numpy()
            np.testing.assert_allclose(result, layer(inputs[name]).detach(), rtol=1e-4, atol=1e-5)
    turned = {name: export(layers[name], (inputs[name],)) for name in reversed(layers)}
    assert _symbols(compile_in_process(turned)) == symbols


def test_functions_after_one_that_needs_smaller_tiles_count_on_none_of_its_kernels(monkeypatch, capsys) -> None:
    monkeypatch.setattr(choices, "flex_shared_bytes", lambda c, _dim, _size: c.block_m * c.num_stages * 600)

    class Attention(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v).relu()

    programs = {
        name: export(Attention(), tuple(torch.zeros(1, 2, 32, 80) for _ in range(3))) for name in ("one", "two")
    }
    (target,) = compile_in_process(programs).program.targets
    assert "needs" in capsys.readouterr().out
    one, two = map(_dispatched, target.functions)
    assert one == two == [kernel.export_name for kernel in target.kernels]


MODEL = textwrap.dedent(
    """
    import torch

    class Scale(torch.nn.Module):
        def forward(self, x, factor):
            return x * factor

    def pair():
        return Scale(), (torch.ones(4), torch.ones(4))

    def named():
        return Scale(), (torch.ones(4),), {"factor": torch.ones(4)}

    def mapping():
        return {"module": Scale(), "args": [torch.ones(4)], "kwargs": {"factor": torch.ones(4)}}

    def dynamic():
        rows = torch.export.Dim("rows", min=2, max=64)
        return Scale(), (torch.ones(8, 4), torch.ones(4)), {}, ({0: rows}, None)

    def program():
        return torch.export.export(*pair())

    def missing():
        return {"module": Scale(), "arguments": ()}

    def number():
        return 3

    def short():
        return (Scale(),)

    def untraceable():
        class Loop(torch.nn.Module):
            def forward(self, x):
                return x if x.sum() > 0 else -x
        return Loop(), (torch.ones(4),)
    """
)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


@pytest.mark.parametrize("name", ["pair", "named", "mapping", "dynamic", "program"])
def test_callables_return_a_module_and_how_to_call_it(source, name, tmp_path) -> None:
    export_callable(source, name, tmp_path / "out.pt2")
    program = load_program(tmp_path / "out.pt2")
    assert program.graph_signature.user_inputs == ("x", "factor")
    assert bool(program.range_constraints) == (name == "dynamic")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "model.py:missing returns 'arguments', which is none of module, args, kwargs, dynamic_shapes"),
        ("number", r"model.py:number must return \(module, args\).*; it returns int"),
        ("short", r"model.py:short must return \(module, args\).*; it returns \(Scale\)"),
        ("untraceable", r"model.py:untraceable cannot be exported by torch.export: "),
        ("none", "model.py has no callable 'none'"),
    ],
)
def test_callables_that_return_something_else_are_refused(source, name, reason, tmp_path) -> None:
    with pytest.raises(InputError, match=reason):
        export_callable(source, name, tmp_path / "out.pt2")
    assert not (tmp_path / "out.pt2").exists()


def test_the_command_compiles_functions_from_files_and_callables(source, tmp_path, capsys) -> None:
    export_callable(source, "pair", tmp_path / "pair.pt2")
    output = tmp_path / "out.coil"
    functions = [f"--function=a={tmp_path / 'pair.pt2'}", f"--function=b={source}:named"]
    assert main(["compile", *functions, "-o", str(output), "--no-cache", "--image", "ptx"]) == 0
    assert "1 kernels for sm_80" in capsys.readouterr().out
    with Package.open(output) as package:
        assert [s.name for s in package.program.signatures] == ["a", "b"]
    with runtime.open(output, device="emulator") as program:
        for name in ("a", "b"):
            result = program(np.arange(4, dtype=np.float32), np.full(4, 3, np.float32), function=name)
            np.testing.assert_array_equal(result.numpy(), [0, 3, 6, 9])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "either IN, or functions"),
        (["m.pt2", "--function", "a=m.pt2"], "either IN, or functions"),
        (["--function", "m.pt2"], "--function m.pt2: it is not of the form NAME=IN"),
        (["--function", "a=m.pt2", "--function", "a=n.pt2"], "there is a function a already"),
    ],
)
def test_wrong_use_of_functions(arguments, words, tmp_path, capsys) -> None:
    assert main(["compile", *arguments, "-o", str(tmp_path / "x.coil")]) == 2
    assert words in capsys.readouterr().err
