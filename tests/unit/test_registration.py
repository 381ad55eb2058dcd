"""Which entry of a bundle each kernel of a module is bound to, and what is refused; no torch is needed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coilpack.compiler import register
from coilpack.compiler.freezing.kernel_bundle import Autotuner, CompiledConfiguration, KernelArtifact, KernelBundle
from coilpack.compiler.freezing.registration import Misfit, RegistrationError
from coilpack.runtime.errors import InvalidFileError, UnsupportedError

PLACEHOLDER = "Placeholder.DESCRIPTIVE_NAME"
GENERATED = Path(__file__).parents[1] / "compile/data/generated_module_torch_2_13.txt"
REMEDIES = {
    Misfit.UNASSIGNED: "compile the model anew, with Inductor's caches empty",
    Misfit.UNBOUND: "give the bundle of the same compilation as the module",
    Misfit.NO_ENTRY: "give the bundle of the same compilation as the module; otherwise compile the model anew, with "
    "Inductor's caches empty",
    Misfit.SEVERAL_ENTRIES: "compile the model anew, with Inductor's caches empty",
    Misfit.OTHER_SOURCE: "give the bundle of the same compilation as the module",
    Misfit.NO_RESULT: "compile the model anew, with Inductor's caches empty",
    Misfit.NO_WINNER: "run the compiled model once on the GPU, and make the bundle after that",
    Misfit.UNKNOWN_WINNER: "run the compiled model once on the GPU, and make the bundle after that",
    Misfit.NO_PTX: "compile the model anew, with Inductor's caches empty",
    Misfit.NO_CUBIN: "compile the model anew, with Inductor's caches empty",
    Misfit.NO_METADATA: "compile the model anew, with Inductor's caches empty",
}


def function(name: str) -> str:
    return f"def {name}(in_ptr0, XBLOCK : tl.constexpr):\n    tl.load(in_ptr0)\n"


def module(*names: str, after: str = "", functions: dict[str, str] | None = None) -> str:
    """A module that assigns and launches kernels as Inductor's do; `functions` says where a function is called else."""
    text = "async_compile = AsyncCompile()\n\n"
    for name in names:
        called = (functions or {}).get(name, name)
        meta = f"inductor_meta={{'kernel_name': '{name}'}}"
        source = f"@triton_heuristics.pointwise({meta})\n@triton.jit\n{function(called)}"
        text += f"{name} = async_compile.triton('{called}', '''\n{source}''', device_str='cuda')\n\n"
    launches = [f"        {name}.run(arg0_1, 16, stream=stream0)\n" for name in names]
    return (
        text
        + "async_compile.wait(globals())\n\ndef call(args):\n    if True:\n        pass\n"
        + "".join(launches)
        + after
    )


def configuration(kernel_hash: str, symbol: str = "k", xblock: int = 64) -> CompiledConfiguration:
    return CompiledConfiguration(kernel_hash, symbol, {"XBLOCK": xblock}, num_warps=4, num_stages=1)


def entry(name: str, *hashes: str, winner: str | None = None, source: str | None = None) -> Autotuner:
    results = tuple(configuration(kernel_hash, name) for kernel_hash in hashes)
    return Autotuner(name, results, winner, source)


def bundle(*entries: Autotuner, without: tuple[str, ...] = ()) -> KernelBundle:
    hashes = {result.kernel_hash for one in entries for result in one.results} - set(without)
    return KernelBundle(entries, {h: KernelArtifact(f"// {h}", h.encode(), {"num_warps": 4}) for h in sorted(hashes)})


def misfits(source: str, given_bundle: KernelBundle) -> dict[Misfit, tuple[str, ...]]:
    """What registration refuses, after checking that the message says all of it, with what to do."""
    with pytest.raises(RegistrationError) as caught:
        register(source, given_bundle)
    parts = [
        f"{misfit.problem}: {', '.join(names)} ({REMEDIES[misfit]})" for misfit, names in caught.value.misfits.items()
    ]
    assert str(caught.value) == "the kernel bundle does not fit the module: " + "; ".join(parts)
    return caught.value.misfits


# --- what is bound ---


def test_each_kernel_is_bound_to_its_winner_in_the_order_of_the_module() -> None:
    made = bundle(entry("b", "B1"), entry("a", "A1", "A2", winner="A2"))
    done = register(module("a", "b"), made)
    assert list(done.bound) == ["a", "b"]
    assert [(one.configuration.kernel_hash, one.artifact.cubin) for one in done.bound.values()] == [
        ("A2", b"A2"),
        ("B1", b"B1"),
    ]
    assert done.bundle == bundle(entry("a", "A2", winner="A2"), entry("b", "B1", winner="B1"))
    assert done.ignored == ()


def test_a_kernel_of_one_configuration_does_not_vanish() -> None:
    done = register(module("only"), bundle(entry("only", "O")))
    assert done.bound["only"].configuration == configuration("O", "only")
    assert [one.kernel_name for one in done.bundle.autotuners] == ["only"]


def test_a_module_without_kernels_binds_none() -> None:
    done = register("def call(args):\n    return args\n", bundle(entry(PLACEHOLDER, "P")))
    assert (dict(done.bound), done.bundle, done.ignored) == ({}, KernelBundle((), {}), (PLACEHOLDER,))


def test_one_function_under_two_names_is_two_kernels() -> None:
    source = module("add_0", "add_1", functions={"add_0": "add", "add_1": "add"})
    both = bundle(entry("add_0", "X", source=function("add")), entry("add_1", "X", source=function("add")))
    done = register(source, both)
    assert list(done.bound) == ["add_0", "add_1"]
    assert len(done.bundle.artifacts) == 1  # Triton compiled them to the same image
    assert misfits(source, bundle(entry("add_0", "X"))) == {Misfit.NO_ENTRY: ("'add_1'",)}


def test_kernels_of_a_real_module_are_bound() -> None:
    source = GENERATED.read_text()
    with pytest.raises(RegistrationError) as caught:
        register(source, KernelBundle((), {}))
    names = [name.strip("'") for name in caught.value.misfits[Misfit.NO_ENTRY]]
    assert names
    assert all(f"{name} = async_compile.triton(" in source for name in names)
    assert list(register(source, bundle(*(entry(name, name.upper()) for name in reversed(names)))).bound) == names


def test_the_same_result_twice_is_one() -> None:
    assert register(module("a"), bundle(entry("a", "A", "A"))).bundle.autotuners[0].results == (
        configuration("A", "a"),
    )


def test_artifacts_of_losers_may_be_missing_and_are_left_out() -> None:
    lost = entry("a", "A1", "A2", winner="A1")
    for made in (bundle(lost), bundle(lost, without=("A2",))):
        assert list(register(module("a"), made).bundle.artifacts) == ["A1"]


# --- entries that no kernel is bound to ---


@pytest.mark.parametrize("name", [PLACEHOLDER, "triton_mm", "dropped_candidate"])
@pytest.mark.parametrize("count", [1, 3])
def test_an_entry_that_the_module_never_names_is_ignored_and_counted(name, count) -> None:
    extra = [entry(name, f"P{i}", f"Q{i}") for i in range(count)]
    done = register(module("a"), bundle(extra[0], entry("a", "A"), *extra[1:]))
    assert done.ignored == (name,) * count
    assert done.bundle == bundle(entry("a", "A", winner="A"))


@pytest.mark.parametrize("broken", [entry(PLACEHOLDER), entry(PLACEHOLDER, "P", winner="elsewhere")])
def test_what_is_ignored_need_not_be_whole(broken) -> None:
    assert register(module("a"), bundle(entry("a", "A"), broken, without=("P",))).ignored == (PLACEHOLDER,)


@pytest.mark.parametrize(
    "text",
    [
        f"# {PLACEHOLDER}\n",
        f"metadata = {{'kernel_name': '{PLACEHOLDER}'}}\n",
        f"name = str({PLACEHOLDER})\n",
    ],
    ids=["comment", "metadata", "code"],
)
def test_a_placeholder_is_no_name_wherever_its_text_stands(text) -> None:
    done = register(module("a", after=text), bundle(entry("a", "A"), entry(PLACEHOLDER, "P")))
    assert done.ignored == (PLACEHOLDER,)


@pytest.mark.parametrize("name", ["a_1", "b_a_12", "a_12b", "16"])
def test_a_part_of_another_name_or_a_number_is_not_named(name) -> None:
    assert name in module("b_a_12b")
    assert register(module("b_a_12b"), bundle(entry("b_a_12b", "A"), entry(name, "P"))).ignored == (name,)


@pytest.mark.parametrize(
    "text",
    [
        "other = lost\n",
        "        getattr(kernels, 'lost').run(arg0_1)\n",
        "        globals()['lost'](arg0_1)\n",
        "        kernels.lost.run(arg0_1, stream=stream0)\n",
        "# launches lost\n",
        "late = '''\ndef lost(in_ptr0):\n    pass\n'''\n",
    ],
    ids=["code", "getattr", "globals", "attribute", "comment", "source"],
)
def test_a_named_entry_that_nothing_binds_is_refused(text) -> None:
    made = bundle(entry("a", "A"), entry("lost", "L"))
    assert misfits(module("a", after=text), made) == {Misfit.UNBOUND: ("'lost'",)}


# --- kernels that cannot be bound ---


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (bundle(entry("a", "A")), {Misfit.NO_ENTRY: ("'b'",)}),
        (bundle(), {Misfit.NO_ENTRY: ("'a'", "'b'")}),
        (bundle(entry("a", "A"), entry("b", "B"), entry("b", "C")), {Misfit.SEVERAL_ENTRIES: ("'b' (2)",)}),
        (bundle(*[entry("a", "A"), entry("b", "B")] * 2), {Misfit.SEVERAL_ENTRIES: ("'a' (2)", "'b' (2)")}),
        (bundle(entry("a"), entry("b", "B")), {Misfit.NO_RESULT: ("'a'",)}),
        (bundle(entry("a", winner="A"), entry("b", "B")), {Misfit.NO_RESULT: ("'a'",)}),
        (bundle(entry("a", "A", "A2"), entry("b", "B")), {Misfit.NO_WINNER: ("'a'",)}),
        (bundle(entry("a", "A", "A2", winner="A3"), entry("b", "B")), {Misfit.UNKNOWN_WINNER: ("'a'",)}),
        (bundle(entry("a", "A", winner="A3"), entry("b", "B")), {Misfit.UNKNOWN_WINNER: ("'a'",)}),
        (
            bundle(Autotuner("a", (configuration("A"), configuration("A", xblock=8)), "A"), entry("b", "B")),
            {Misfit.UNKNOWN_WINNER: ("'a'",)},
        ),
        (
            bundle(entry("a", "A1", "A2", winner="A2"), entry("b", "B"), without=("A2",)),
            dict.fromkeys([Misfit.NO_PTX, Misfit.NO_CUBIN, Misfit.NO_METADATA], ("'a' (A2)",)),
        ),
        (
            bundle(entry("a", "A", source=function("other")), entry("b", "B", source=function("b"))),
            {Misfit.OTHER_SOURCE: ("'a'",)},
        ),
        (
            bundle(entry("a", "A", "A2"), entry("b"), entry("call", "L")),
            {Misfit.UNBOUND: ("'call'",), Misfit.NO_RESULT: ("'b'",), Misfit.NO_WINNER: ("'a'",)},
        ),
    ],
)
def test_a_kernel_without_exactly_one_configuration_is_refused(made, expected) -> None:
    assert misfits(module("a", "b"), made) == expected


@pytest.mark.parametrize(
    ("missing", "misfit"),
    [
        ({"ptx": None}, Misfit.NO_PTX),
        ({"ptx": ""}, Misfit.NO_PTX),
        ({"cubin": None}, Misfit.NO_CUBIN),
        ({"cubin": b""}, Misfit.NO_CUBIN),
        ({"metadata": {}}, Misfit.NO_METADATA),
    ],
)
def test_the_artifact_of_a_winner_must_be_whole(missing, misfit) -> None:
    made = bundle(entry("a", "A1", "A2", winner="A2"))
    artifacts = {**made.artifacts, "A2": replace(made.artifacts["A2"], **missing)}
    assert misfits(module("a"), replace(made, artifacts=artifacts)) == {misfit: ("'a' (A2)",)}


def test_a_launch_without_an_assignment_is_refused_with_its_entry() -> None:
    source = module("a", after="        lost.run(arg0_1, stream=stream0)\n")
    line = source[: source.index("lost")].count("\n") + 1
    assert misfits(source, bundle(entry("a", "A"))) == {Misfit.UNASSIGNED: (f"'lost' (line {line})",)}
    assert misfits(source, bundle(entry("a", "A"), entry("lost", "L"))) == {
        Misfit.UNASSIGNED: (f"'lost' (line {line})",),
        Misfit.UNBOUND: ("'lost'",),
    }


def test_every_way_not_to_fit_says_what_to_do() -> None:
    assert {misfit: misfit.remedy for misfit in Misfit} == REMEDIES


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("def call(:", InvalidFileError, r"^the generated module: it is no Python source"),
        ("a = " + "+".join("b" * 3000), InvalidFileError, r"its expressions are nested too deeply to be read"),
        ("a = " + "-" * 20000 + "1", InvalidFileError, r"its expressions are nested too deeply to be read"),
        (module("a") + module("a"), InvalidFileError, r"line \d+: kernel 'a' is assigned twice"),
        ("a = async_compile.cpp('x')\n", UnsupportedError, r"the generated module:1: a is made by async_compile\.cpp"),
    ],
)
def test_a_text_that_is_no_generated_module_is_refused(source, error, message) -> None:
    with pytest.raises(error, match=message):
        register(source, bundle())


# --- the bundle that was cut down ---


@st.composite
def fitting(draw: st.DrawFn) -> tuple[str, KernelBundle]:
    """A module, and a bundle that fits it with whatever else may stand in it, in any order."""
    names = draw(st.lists(st.sampled_from(["a", "b", "a_1", "triton_poi_0"]), unique=True))
    entries, needed = [], set()
    for name in names:
        hashes = draw(st.lists(st.sampled_from("PQRS"), min_size=1, unique=True))
        winner = draw(st.sampled_from(hashes)) if len(hashes) > 1 or draw(st.booleans()) else None
        needed.add(winner or hashes[0])
        entries.append(entry(name, *hashes, winner=winner, source=draw(st.sampled_from([None, function(name)]))))
    loose = draw(st.lists(st.builds(lambda n, h: entry(n, *h), st.just(PLACEHOLDER), st.sets(st.sampled_from("PXYZ")))))
    without = draw(st.sets(st.sampled_from("PQRSXYZ"))) - needed
    return module(*names), bundle(*draw(st.permutations(entries + loose)), without=tuple(without))


@given(fitting())
def test_registering_what_was_bound_gives_the_same_again(made) -> None:
    source, whole = made
    once = register(source, whole)
    again = register(source, once.bundle)
    assert (again.bound, again.bundle) == (once.bound, once.bundle)
    assert again.ignored == ()
    assert len(once.ignored) == len(whole.autotuners) - len(once.bound)
    assert all(one.configuration.kernel_hash in whole.artifacts for one in once.bound.values())


@given(fitting(), st.data())
def test_without_any_one_entry_that_was_bound_nothing_is(made, data) -> None:
    source, whole = made
    bound = register(source, whole).bundle
    if not bound.autotuners:
        return
    lost = data.draw(st.sampled_from(bound.autotuners))
    rest = tuple(one for one in whole.autotuners if one.kernel_name != lost.kernel_name)
    assert misfits(source, replace(whole, autotuners=rest)) == {Misfit.NO_ENTRY: (repr(lost.kernel_name),)}


def test_registration_imports_no_torch() -> None:
    code = "import sys; from coilpack.compiler import register; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
