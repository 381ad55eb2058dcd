"""Reductions in which a comparison decides whether an element replaces the value so far: extremes and their places.

One output, the leader, holds the extreme; others, the followers, hold what belongs to it, such as its index. The first
of equal elements wins under a strict predicate, the last under one that is not. A comparison with NaN decides by
whether the predicate is ordered, so that NaNs lose, or replace and are replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from coilpack.compiler.mlir.lower import arith_floats, arith_integers, integers
from coilpack.compiler.mlir.lower.bodies import Body
from coilpack.compiler.mlir.lower.context import Context, Data, as_number
from coilpack.compiler.mlir.lower.spaces import Space
from coilpack.compiler.mlir.syntax import Operation, Value

_PREDICATES: Mapping[str, Callable[[Operation], str]] = {
    "arith.cmpf": arith_floats.predicate_of,
    "arith.cmpi": arith_integers.predicate_of,
}
_SWAPPED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}  # with the operands exchanged
_NEGATED = {"gt": "le", "ge": "lt", "lt": "ge", "le": "gt"}
# The leader can also be one of these, whose followers compare: an element wins as under the predicate.
_EXTREMES = {"arith.maximumf": "gt", "arith.minimumf": "lt", "arith.maxsi": "gt", "arith.minsi": "lt"}


@dataclass(frozen=True)
class _Rule:
    """When an element replaces the value so far: `element <relation> value`.

    Attributes:
        prefix: `o` or `u` of a comparison of floats, `s` or `u` of one of integers.
        relation: `gt`, `ge`, `lt` or `le`.
        floats: whether floats are compared.
        element: what is compared with the value so far.
        leader: the number of the output that is the value so far.
    """

    prefix: str
    relation: str
    floats: bool
    element: Value
    leader: int

    def negated(self) -> _Rule:
        """The rule that holds where this does not."""
        prefix = {"o": "u", "u": "o"}[self.prefix] if self.floats else self.prefix
        return _Rule(prefix, _NEGATED[self.relation], self.floats, self.element, self.leader)


def winners(
    context: Context, body: Body, space: Space, along: Sequence[int], outputs: Sequence[int], inits: Sequence[Data]
) -> dict[int, Data]:
    """Those outputs that a comparison decides on, of size 1 along the dimensions `along`."""
    rules = {number: rule for number in outputs if (rule := _rule(body, number)) is not None}
    found: dict[int, Data] = {}
    for rule in dict.fromkeys(rules.values()):
        if rule.leader not in outputs:
            continue
        followers = [number for number, other in rules.items() if other == rule and number != rule.leader]
        sticky = _is_extreme(body, rule)
        if rules.get(rule.leader) != rule and not sticky:
            continue
        contest = _Contest(context, body, space, along, rule, sticky, inits)
        found[rule.leader] = contest.value
        found.update({number: contest.follow(number) for number in followers})
    return found


def _rule(body: Body, number: int) -> _Rule | None:
    """The rule by which an output is replaced; None where it is none of these."""
    select = body.definition(body.yielded[number])
    if select is None or select.name != "arith.select":
        return None
    condition, chosen, other = select.operands
    output = body.outputs[number]
    rule = _comparison(body, condition)
    new = chosen if other is output else other
    if rule is None or (chosen is not output and other is not output) or body.reads(new):
        return None
    if number == rule.leader and new is not rule.element:
        return None
    return rule if other is output else rule.negated()


def _comparison(body: Body, condition: Value) -> _Rule | None:
    """A comparison of an element with an output, as if the element came first."""
    operation = body.definition(condition)
    if operation is None or operation.name not in _PREDICATES:
        return None
    predicate = _PREDICATES[operation.name](operation)
    prefix, relation = predicate[:1], predicate[1:]
    if relation not in _SWAPPED:
        return None
    outputs = list(body.outputs)
    element, value = operation.operands
    if element in outputs:
        element, value, relation = value, element, _SWAPPED[relation]
    if value not in outputs or body.reads(element):
        return None
    return _Rule(prefix, relation, operation.name == "arith.cmpf", element, outputs.index(value))


def _is_extreme(body: Body, rule: _Rule) -> bool:
    """Whether the leader is a maximum or minimum of the same element, which keeps a NaN for good."""
    operation = body.definition(body.yielded[rule.leader])
    kind = _EXTREMES.get(operation.name) if operation else None
    if operation is None or kind != f"{rule.relation[0]}t" or (rule.floats and rule.prefix == "u"):
        return False
    return set(operation.operands) == {rule.element, body.outputs[rule.leader]}


class _Contest:
    """A rule applied to all elements along dimensions."""

    def __init__(
        self,
        context: Context,
        body: Body,
        space: Space,
        along: Sequence[int],
        rule: _Rule,
        sticky: bool,
        inits: Sequence[Data],
    ) -> None:
        self._context, self._body, self._space, self._along = context, body, space, along
        self._rule, self._inits = rule, inits
        self._upward = rule.relation.startswith("g")
        (element,) = body.evaluate(context, [rule.element])
        elements = self._key(space.spread(context.as_tensor(element, rule.element)))
        init = context.as_tensor(inits[rule.leader], body.outputs[rule.leader])
        key = self._key(init)
        valid, forced = self._valid(elements, sticky) if rule.floats else (None, None)
        best = self._extreme(elements if valid is None else torch.where(valid, elements, self._worst(elements)))
        self._wins = arith_floats.compare(f"o{rule.relation}", best, key)
        if forced is not None:
            self._wins = self._wins | forced | torch.isnan(key)
        hit = elements == best if valid is None else valid & ((elements == best) | torch.isnan(elements))
        count, position = self._count(), self._position()
        if rule.relation.endswith("t"):
            self._place = torch.where(hit, position, as_number(count)).amin(tuple(along), keepdim=True)
        else:
            self._place = torch.where(hit, position, -1).amax(tuple(along), keepdim=True)
        self._wins = self._wins & (self._place >= 0) & (self._place < count)
        raw = self._extreme(elements) if sticky else best
        self.value = self._leader(init, raw, sticky)

    def _leader(self, init: torch.Tensor, best: torch.Tensor, sticky: bool) -> torch.Tensor:
        if sticky:
            extreme = torch.maximum if self._upward else torch.minimum
            return self._unkey(extreme(self._key(init), best), init.dtype)
        return torch.where(self._wins, self._unkey(best, init.dtype), init)

    def _valid(self, elements: torch.Tensor, sticky: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Which elements can still be the winner after NaNs, and where one wins over any initial value."""
        nan, position, along = torch.isnan(elements), self._position(), tuple(self._along)
        if sticky:  # nothing is compared with success after the first
            return position < torch.where(nan, position, as_number(self._count())).amin(along, keepdim=True), None
        if self._rule.prefix == "o":
            return ~nan, None
        last = torch.where(nan, position, -1).amax(along, keepdim=True)
        ends = last == self._count() - 1
        return (position > last) | (ends & (position == last)), last >= 0

    def _key(self, x: torch.Tensor) -> torch.Tensor:
        """What compares as the elements do, as signed integers or floats."""
        if self._rule.floats:
            return arith_floats.arithmetic(x)
        x = arith_integers.widened(x)
        return integers.flipped(x) if self._rule.prefix == "u" else x

    def _unkey(self, key: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not self._rule.floats and self._rule.prefix == "u":
            key = integers.flipped(key)
        return arith_integers.narrowed(key, True) if dtype == torch.bool else key.to(dtype)

    def _extreme(self, x: torch.Tensor) -> torch.Tensor:
        dims = tuple(self._along)
        return x.amax(dims, keepdim=True) if self._upward else x.amin(dims, keepdim=True)

    def _worst(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full((), -math.inf if self._upward else math.inf, dtype=x.dtype)

    def _count(self) -> int | torch.SymInt:
        count: int | torch.SymInt = 1
        for dim in self._along:
            count = count * self._space.sizes[dim]
        return count

    def _position(self) -> torch.Tensor:
        """The number of each step, over the dimensions that are reduced."""
        position = self._space.index(self._along[0])
        for dim in self._along[1:]:
            position = position * as_number(self._space.sizes[dim]) + self._space.index(dim)
        return position

    def follow(self, number: int) -> torch.Tensor:
        """A follower: its value at the winner's step, or what it was."""
        select = self._body.definition(self._body.yielded[number])
        assert select is not None
        output = self._body.outputs[number]
        new = next(v for v in select.operands[1:] if v is not output)
        (data,) = self._body.evaluate(self._context, [new])
        values = self._space.spread(self._context.as_tensor(data, new))
        kept = [dim for dim in range(self._space.rank) if dim not in self._along]
        flat = values.permute([*kept, *self._along]).reshape([*(self._space.sizes[d] for d in kept), self._count()])
        place = self._place.permute([*kept, *self._along]).reshape([*(self._place.shape[d] for d in kept), 1])
        place = place.expand([*(self._space.sizes[d] for d in kept), 1]).clamp(min=0, max=as_number(self._count() - 1))
        found = flat.gather(-1, place).squeeze(-1)
        found = found[tuple(slice(None) if dim in kept else None for dim in range(self._space.rank))]
        return torch.where(self._wins, found, self._context.as_tensor(self._inits[number], output))
