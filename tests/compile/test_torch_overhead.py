"""What torch is spared changes nothing in what it makes."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.compiler
torch = pytest.importorskip("torch")

from in_process import compile_in_process, export  # noqa: E402
from small_models import Lambda  # noqa: E402

from coilpack.compiler import _torch_compat as compat  # noqa: E402
from coilpack.compiler.capture.torch_overhead import composites_kept_quickly  # noqa: E402

_EYE = torch.eye(4)


def _composites(x):
    """Operators that are kept whole, one that is not for it may view its input, and a change in place."""
    return torch.nn.functional.linear(x, _EYE).reshape(2, 8).add_(torch.nn.functional.mish(x).flatten()[0])


def test_a_program_becomes_as_functional_as_by_torch_alone() -> None:
    program = export(Lambda(_composites), (torch.randn(4, 4),))
    register, operator = compat.OperatorBase.py_impl, torch.ops.aten.linear.default
    kernels = dict(operator.py_kernels)
    alone = program.run_decompositions({})
    with composites_kept_quickly():
        spared = program.run_decompositions({})
        assert compat.OperatorBase.py_impl is not register
    assert str(spared.graph) == str(alone.graph)
    assert "aten.linear.default" in str(spared.graph)
    assert spared.graph_signature == alone.graph_signature
    assert compat.OperatorBase.py_impl is register
    assert operator.py_kernels == kernels


def test_registering_twice_is_the_error_that_it_is_in_torch() -> None:
    with torch.library._scoped_library("coilpack_overhead_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        operator = torch.ops.coilpack_overhead_test.twice.default
        with composites_kept_quickly():
            operator.py_impl(torch._C.DispatchKey.CPU)(torch.clone)
            with pytest.raises(RuntimeError, match="override a python impl"):
                operator.py_impl(torch._C.DispatchKey.CPU)(torch.clone)
        assert operator.py_kernels == {torch._C.DispatchKey.CPU: torch.clone}


def test_inductor_writes_no_script_and_can_again(monkeypatch) -> None:
    written: list[object] = []
    monkeypatch.setattr(compat.after_aot, "save_graph_repro", lambda *args, **_: written.append(args))
    compile_in_process({"main": export(Lambda(torch.sin), (torch.randn(4),))})
    assert written == []
    compat.after_aot.save_graph_repro("again")
    assert written == [("again",)]
