"""What programs of a package keep across calls: the tensors that one of them changes, shared by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch

from coilpack.compiler.capture.bindings import GlobalRef
from coilpack.compiler.weights import Weights
from coilpack.runtime.errors import InputError
from coilpack.runtime.program import ir


@dataclass
class State:
    """The globals of a program, found function by function.

    A tensor is state if some function changes a tensor of that name, or one in the same memory; each function that has
    a tensor of that name, or in memory of that name, uses the same global.

    Args:
        mutated: the qualified names of the tensors that a function changes.
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
        """
        groups: dict[tuple[int, int], list[str]] = {}
        for name, tensor in named.items():
            memory = tensor.untyped_storage()
            groups.setdefault((memory.data_ptr() or id(tensor), memory.nbytes()), []).append(name)
        found: dict[str, GlobalRef] = {}
        for names in groups.values():
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


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of the tensor's storage, not copied."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
