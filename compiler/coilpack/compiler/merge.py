"""Puts programs that were compiled for one target each together into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coilpack.compiler import PRODUCER
from coilpack.runtime.errors import CoilpackError
from coilpack.runtime.program import ir


def merge_programs(programs: Sequence[ir.Program]) -> ir.Program:
    """One program with all targets.

    What callers see of a function is the same for all: each target may rely on sizes in its own way, so a call must
    keep to the guards and ranges of them all.

    Raises:
        CoilpackError: the programs do not come from the same functions.
    """
    signatures = {
        name: _signature([program.signature(name) for program in programs])
        for name in (signature.name for signature in programs[0].signatures)
    }
    storages = {storage.name: storage for program in programs for storage in program.storages}
    globals_ = {global_.name: global_ for program in programs for global_ in program.globals}
    return ir.Program(
        producer=PRODUCER,
        signatures=tuple(signatures.values()),
        storages=tuple(sorted(storages.values(), key=lambda s: s.name)),
        targets=tuple(_target(target, signatures) for program in programs for target in program.targets),
        globals=tuple(sorted(globals_.values(), key=lambda g: g.name)),
    )


def _signature(own: Sequence[ir.Signature]) -> ir.Signature:
    """The signature of one function that all targets' signatures of it agree with."""
    first = own[0]
    for other in own[1:]:
        alike = replace(other, guards=first.guards, symbols=first.symbols)
        if alike != first or [_place(s) for s in other.symbols] != [_place(s) for s in first.symbols]:
            raise CoilpackError(f"targets disagree about the signature of {first.name!r}: {first} and {other}")
    symbols = [
        replace(same[0], minimum=max(s.minimum for s in same), maximum=min(s.maximum for s in same))
        for same in zip(*(signature.symbols for signature in own), strict=True)
    ]
    guards = dict.fromkeys(guard for signature in own for guard in signature.guards)
    return replace(first, symbols=tuple(symbols), guards=tuple(guards))


def _place(symbol: ir.SizeSymbol) -> tuple[str, int, int | None]:
    return symbol.name, symbol.input, symbol.dim


def _target(target: ir.Target, signatures: dict[str, ir.Signature]) -> ir.Target:
    functions = tuple(replace(f, signature=signatures[f.name]) for f in target.functions)
    return replace(target, functions=functions)
