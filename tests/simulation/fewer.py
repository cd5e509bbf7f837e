"""Leaves one thing out of a night: what nights of all kinds have in common."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any


def without(items: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    return items[:place] + items[place + 1 :]


def fewer_kinds(night: Any) -> Iterator[Any]:
    """The night without one kind of fault."""
    for kind in night.chances:
        chances = {name: chance for name, chance in night.chances.items() if name != kind}
        yield dataclasses.replace(night, chances=chances)


def fewer_acts(
    night: Any, stays: Callable[[Any, int], bool] = lambda _act, _place: False
) -> Iterator[Any]:
    """The night without one act. stays: whether an act at its place in a round is needed."""
    for number, acts in enumerate(night.rounds):
        for place, act in enumerate(acts):
            if not stays(act, place):
                rounds = (*night.rounds[:number], without(acts, place), *night.rounds[number + 1 :])
                yield dataclasses.replace(night, rounds=rounds)
