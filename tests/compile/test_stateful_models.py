"""Models that change their inputs, or buffers that live across calls, against torch step by step."""

from __future__ import annotations

import copy

import numpy as np
import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import compile_in_process, export, write  # noqa: E402

from coilpack import runtime  # noqa: E402
from coilpack.compiler.state import State  # noqa: E402
from coilpack.compiler.weights import Weights  # noqa: E402
from coilpack.runtime.errors import InputError, UnsupportedError  # noqa: E402
from coilpack.runtime.program import ir  # noqa: E402


class Cache(torch.nn.Module):
    """A cache of `length` rows; a call writes some and sums them all."""

    def __init__(self, length: int = 64) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, length, 8))

    def forward(self, x, position):
        self.cache[:, position] = x
        return self.cache.sum(1)


class Counter(torch.nn.Module):
    """Buffers of several kinds: an integer, one that starts with values, one that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.zeros((), dtype=torch.int64), persistent=False)
        self.register_buffer("mean", torch.arange(4.0))

    def forward(self, x):
        self.step.add_(1)
        self.mean.mul_(0.5).add_(x)
        return self.step, self.mean, self.mean * self.step


class Trained(torch.nn.Module):
    """A parameter that a call moves."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        with torch.no_grad():
            self.weight -= 0.1 * x
        return self.weight.sum()


class Swap(torch.nn.Module):
    """Each buffer takes the other's old value, in both orders."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.arange(6.0).reshape(2, 3))
        self.register_buffer("b", torch.arange(6.0, 12.0).reshape(3, 2))

    def forward(self, x):
        old = self.a.t().clone()
        self.a.copy_(self.b.t())
        self.b.copy_(old + x)
        return self.a[0] * 2, old


class Transposed(torch.nn.Module):
    """Buffers that take views of themselves and of each other."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.arange(1024.0).reshape(32, 32))
        self.register_buffer("b", torch.arange(1024.0, 2048.0).reshape(32, 32))

    def forward(self, x):
        self.a.copy_(self.a.t().clone())
        old = self.a[1:2].clone()
        self.a[1:2].copy_(self.b[:1])
        self.b[:1].copy_(old)
        return x + self.a[1]


class Exchanged(torch.nn.Module):
    """Buffers that become each other's old value, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.arange(1024.0))
        self.register_buffer("b", torch.arange(1024.0, 2048.0))

    def forward(self, x):
        old = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(old)
        return x + self.a.sum() + 2 * self.b[0]


class Assigned(torch.nn.Module):
    """A buffer that is replaced rather than written, and read before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.arange(4.0))

    def forward(self, x):
        before = self.a.flip(0)
        self.a = self.a * 0.5 + x
        return before, self.a[1:]


class Alias(torch.nn.Module):
    """One tensor under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("one", torch.zeros(4))
        self.register_buffer("two", self.one)

    def forward(self, x):
        self.one.add_(x)
        return self.two * 2


class Unchanged(torch.nn.Module):
    """A call that changes its state and returns what it was before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x):
        before = self.last.clone()
        self.last.copy_(x)
        return before, x, self.last


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


CASES = {
    "cache": (Cache, lambda n: (_floats(2, 2, 8) + n, np.array([n, 60 - n]))),
    "counter": (Counter, lambda n: (_floats(4) + n,)),
    "parameter": (Trained, lambda n: (_floats(4) + n,)),
    "swap": (Swap, lambda n: (_floats(3, 2) + n,)),
    "transposed": (Transposed, lambda n: (_floats(32) + n,)),
    "exchanged": (Exchanged, lambda n: (_floats(4) + n,)),
    "assigned": (Assigned, lambda n: (_floats(4) + n,)),
    "alias": (Alias, lambda n: (_floats(4) + n,)),
    "before and after": (Unchanged, lambda n: (_floats(3) + n,)),
}


def _tensors(arrays) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(array.copy()) for array in arrays)


def _package(tmp_path, **modules):
    """A package of functions, each given as (module, inputs)."""
    programs = {name: export(copy.deepcopy(module), inputs) for name, (module, inputs) in modules.items()}
    return write(compile_in_process(programs), tmp_path / "model.coil")


def _listed(results) -> list:
    return list(results) if isinstance(results, tuple | list) else [results]


@pytest.mark.parametrize("name", CASES)
def test_state_goes_from_call_to_call_as_in_torch(name, device, tmp_path) -> None:
    make, inputs = CASES[name]
    module = make()
    package = _package(tmp_path, main=(module, _tensors(inputs(0))))
    with runtime.open(package, device=device.name) as program:
        kept = []
        for call in range(3):
            with torch.no_grad():
                wanted = [t.numpy().copy() for t in _listed(module(*_tensors(inputs(call))))]
            got = _listed(program(*inputs(call)))
            assert len(got) == len(wanted)
            kept += list(zip(got, wanted, strict=True))
        # Compared at the end: a result must not change with later calls.
        for got, want in kept:
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)
        program.reset()
        first = _listed(program(*inputs(0)))[-1].numpy()
        np.testing.assert_allclose(first, kept[len(kept) // 3 - 1][1], rtol=1e-5, atol=1e-5)


class WritesInputs(torch.nn.Module):
    """Inputs that a call changes: whole, in part, and one that takes another's old value."""

    def forward(self, x, y, z):
        z.copy_(x[0])
        x.mul_(2)
        y[:, 1:].add_(x)
        return y, x[1], z


def test_inputs_are_changed_in_place(device, tmp_path) -> None:
    arrays = (_floats(2, 3), _floats(2, 4) + 1, _floats(3) + 2)
    package = _package(tmp_path, main=(WritesInputs(), _tensors(arrays)))
    wanted = _tensors(arrays)
    results = [t.numpy().copy() for t in WritesInputs()(*wanted)]
    with runtime.open(package, device=device.name) as program:
        for _ in range(2):  # the second call finds what the first left in the arena
            given = [array.copy() for array in arrays]
            got = program(*given)
            for value, want in zip(given, wanted, strict=True):
                np.testing.assert_allclose(value, want.numpy(), rtol=1e-6)
            for value, want in zip(got, results, strict=True):
                np.testing.assert_allclose(value.numpy(), want, rtol=1e-6)


class Sum(Cache):
    """Reads the cache, under the same name."""

    def forward(self, x):
        return self.cache.sum(1) + x


class OtherLength(Cache):
    def __init__(self) -> None:
        super().__init__(length=32)


class OtherContents(Sum):
    def __init__(self) -> None:
        super().__init__()
        self.cache += 1


_CACHE_INPUTS = (torch.ones(2, 1, 8), torch.tensor([3]))


def test_functions_share_state_by_name_and_one_that_changes_nothing_reads_it(device, tmp_path) -> None:
    one, two = (torch.ones(2, 1, 8), torch.tensor([3])), (torch.zeros(2, 8),)
    package = _package(tmp_path, write=(Cache(), one), read=(Sum(), two))
    with runtime.open(package, device=device.name) as program:
        nothing = np.zeros((2, 8), np.float32)
        assert not program(nothing, function="read").numpy().any()
        for row in range(3):
            program(np.ones((2, 1, 8), np.float32), np.array([row]), function="write")
        np.testing.assert_array_equal(program(nothing, function="read").numpy(), np.full((2, 8), 3.0))
        with program.new_context() as other:
            assert not other(nothing, function="read").numpy().any()


class Prompt(Cache):
    """Writes as many rows as it is given, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x, position):
        self.count.add_(x.shape[1])
        return super().forward(x, position), self.count


def test_state_is_updated_by_calls_of_any_length(device, tmp_path) -> None:
    rows = torch.export.Dim("rows", min=1, max=64)
    with torch.no_grad():
        exported = torch.export.export(
            Prompt(), (torch.zeros(2, 5, 8), torch.arange(5)), dynamic_shapes=({1: rows}, {0: rows})
        )
    bundle = compile_in_process({"main": exported})
    (symbol,) = bundle.program.signatures[0].symbols
    assert (symbol.minimum, symbol.maximum) == (1, 64)
    assert bundle.program.signatures[0].guards == ()
    module = Prompt()
    with runtime.open(write(bundle, tmp_path / "model.coil"), device=device.name) as program:
        for start, length in ((0, 7), (7, 1), (3, 16), (0, 64)):
            inputs = _floats(2, length, 8) + length, np.arange(start, start + length)
            with torch.no_grad():
                wanted = [t.numpy().copy() for t in module(*_tensors(inputs))]
            for got, want in zip(program(*inputs), wanted, strict=True):
                np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-4)


def test_a_cache_is_updated_in_place() -> None:
    """No kernel but the one that sums it touches all of the cache, and nothing is as large beside it."""
    module = Cache(4096)
    program = compile_in_process({"main": export(module, _CACHE_INPUTS)}).program
    (state,) = program.globals
    assert (state.name, state.nbytes, state.initial) == ("cache", 2 * 4096 * 8 * 4, None)
    assert program.storages == ()
    (function,) = program.targets[0].functions
    (cache,) = (op.result for op in function.operations if isinstance(op, ir.GetGlobal))
    writes = [op for op in function.operations if isinstance(op, ir.Dispatch) and _writes(op, cache)]
    assert [op.grid for op in writes] == [(1, 1, 1)]
    assert not any(isinstance(op, ir.Copy) for op in function.operations)
    allocated = [op.nbytes for op in function.operations if isinstance(op, ir.Alloc)]
    assert max(allocated) < state.nbytes // 8


def _writes(dispatch: ir.Dispatch, value: ir.Value) -> bool:
    return any(
        operand is value and isinstance(parameter, ir.PointerParameter) and ir.Access.WRITE in parameter.access
        for operand, parameter in zip(dispatch.operands, dispatch.kernel.parameters, strict=True)
    )


def test_state_starts_as_the_model_left_it_and_weights_of_equal_bytes_are_stored_once() -> None:
    class Started(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("start", self.mean.clone())

        def forward(self, x):
            return super().forward(x)[1] - self.start

    program = compile_in_process({"main": export(Started(), (torch.ones(4),))}).program
    (storage,) = program.storages
    assert {(g.name, g.nbytes, g.initial) for g in program.globals} == {("mean", 16, storage), ("step", 8, None)}


def test_one_tensor_under_two_names_is_one_global() -> None:
    program = compile_in_process({"main": export(Alias(), (torch.ones(4),))}).program
    assert [g.name for g in program.globals] == ["one"]


class Reader(torch.nn.Module):
    """Reads what `Alias` changes, under one of its names."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.register_buffer(name, torch.zeros(4))

    def forward(self, x):
        (buffer,) = self.buffers()
        return buffer + x


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_function_that_knows_one_name_of_state_reads_it_whichever_comes_first(name) -> None:
    programs = {"read": export(Reader(name), (torch.ones(4),)), "write": export(Alias(), (torch.ones(4),))}
    program = compile_in_process(programs).program
    (global_,) = program.globals
    for function in program.targets[0].functions:
        (read,) = [op for op in function.operations if isinstance(op, ir.GetGlobal | ir.Parameter)]
        assert isinstance(read, ir.GetGlobal)
        assert read.global_ == global_


@pytest.mark.parametrize(
    ("other", "inputs", "reason"),
    [
        (OtherLength, _CACHE_INPUTS, "'cache', .* has 2,048 bytes in 'two' and 4,096 in 'one'"),
        (OtherContents, (torch.zeros(2, 8),), "'cache', .* starts with other contents in 'two' than in 'one'"),
    ],
    ids=["size", "contents"],
)
def test_state_of_one_name_must_be_the_same_everywhere(other, inputs, reason) -> None:
    programs = {"one": export(Cache(), _CACHE_INPUTS), "two": export(other(), inputs)}
    with pytest.raises(InputError, match=reason):
        compile_in_process(programs)


def test_state_on_a_device_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"weight 'cache' is a .* tensor on meta; export dense tensors on the CPU"
    ):
        State({"cache"}, Weights()).add("main", {"cache": torch.zeros(3, device="meta")})


class Overlapping(torch.nn.Module):
    """Two views of one memory, one changed and the other read."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.arange(8.0)
        self.register_buffer("head", whole[:5])
        self.register_buffer("tail", whole[3:])

    def forward(self, x):
        self.head.add_(x)
        return self.tail * 2


def test_a_change_that_another_name_would_see_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="'main' changes 'head' in place, and uses 'tail', which views the same"):
        compile_in_process({"main": export(Overlapping(), (torch.ones(5),))})
