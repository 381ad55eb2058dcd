"""What programs of a package keep across calls: the tensors that one of them changes, shared by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from coilpack.compiler.capture.bindings import GlobalRef
from coilpack.compiler.weights import Weights, check_plain
from coilpack.runtime.errors import InputError
from coilpack.runtime.program import ir


@dataclass
class State:
    """The globals of a program, found function by function.

    Each function that has a tensor of the name of state, or in memory of that name, uses the same global.

    Args:
        mutated: the qualified names of the tensors that are state, see `state_names`.
        weights: where initial contents go.

    Attributes:
        globals: what was found, by name.
    """

    mutated: Collection[str]
    weights: Weights
    globals: dict[str, ir.Global] = field(default_factory=dict)
    _origin: dict[str, tuple[str, torch.Tensor]] = field(default_factory=dict)  # function and tensor behind each
    _names: dict[str, str] = field(default_factory=dict)  # a tensor's name to its global's

    def add(self, function: str, named: Mapping[str, torch.Tensor]) -> Mapping[str, GlobalRef]:
        """Those of a function's tensors that are state, with the place of each.

        Raises:
            InputError: another function has state of that name with another size or other initial contents.
            UnsupportedError: it is no plain CPU tensor.
        """
        found: dict[str, GlobalRef] = {}
        for names in _one_memory(named):
            if any(name in self._names or name in self.mutated for name in names):
                known = sorted({self._names[name] for name in names if name in self._names})
                if len(known) > 1:
                    raise InputError(
                        f"{known[0]!r} and {known[1]!r} are one memory in {function!r} and two in those before it; "
                        "make them one tensor in all functions that change them, or in none"
                    )
                global_ = self._global(function, (known or names)[0], names[0], named[names[0]])
                for name in names:
                    self._names[name] = global_.name
                    tensor = named[name]
                    found[name] = GlobalRef(global_, int(tensor.storage_offset()) * tensor.element_size())
        return found

    def _global(self, function: str, name: str, own_name: str, tensor: torch.Tensor) -> ir.Global:
        check_plain(own_name, tensor)
        if name not in self.globals:
            whole = _bytes(tensor)
            initial = self.weights.add(name, tensor).storage if bool(whole.any()) else None
            self.globals[name] = ir.Global(name, whole.numel(), initial)
            self._origin[name] = (function, tensor)
            return self.globals[name]
        first, other = self._origin[name]
        mine, theirs = _bytes(tensor), _bytes(other)
        if mine.numel() != theirs.numel():
            what = f"has {mine.numel():,} bytes in {function!r} and {theirs.numel():,} in {first!r}"
        elif not torch.equal(mine, theirs):
            what = f"starts with other contents in {function!r} than in {first!r}"
        else:
            return self.globals[name]
        raise InputError(
            f"{own_name!r}, which a function changes and others share by its name, {what}; "
            "give both the same tensor, or one of them another name"
        )


def state_names(mutated: Iterable[str], functions: Iterable[Mapping[str, torch.Tensor]]) -> frozenset[str]:
    """The names of all tensors that are state, whichever function comes first.

    Args:
        mutated: the qualified names of the tensors that some function changes.
        functions: the tensors of each function by qualified name.

    Returns:
        These names, and those of tensors that lie in the same memory in some function.
    """
    found = set(mutated)
    groups = [names for named in functions for names in _one_memory(named)]
    while reached := {name for names in groups if not found.isdisjoint(names) for name in names} - found:
        found |= reached
    return frozenset(found)


def _one_memory(named: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """The names of tensors, those in the same memory together."""
    groups: dict[tuple[int, int], list[str]] = {}
    for name, tensor in named.items():
        memory = tensor.untyped_storage()
        groups.setdefault((memory.data_ptr() or id(tensor), memory.nbytes()), []).append(name)
    return list(groups.values())


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of the tensor's storage, not copied."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
