"""Leaves out of a failing night what it fails without: rounds, acts, kinds of faults, and single faults."""

import dataclasses
import pathlib
from collections.abc import Iterator

from tests.simulation.nights import Night
from tests.simulation.play import Outcome, play

MOST_TRIES = 200


def kind_of(failure: str) -> str:
    """What was broken, without its time and its place."""
    return failure.partition(": ")[2].partition(":")[0].partition("\n")[0].partition("(")[0][:40]


def shorten(night: Night, base: pathlib.Path) -> tuple[Night, Outcome]:
    """A night with less in it that breaks the same promise."""
    outcome = play(night, base)
    if not outcome.failures:
        raise SystemExit(f"night {night.seed} does not fail")
    wanted, tries = kind_of(outcome.failures[0]), 0
    is_shorter = True
    while is_shorter and tries < MOST_TRIES:
        is_shorter = False
        for smaller in _smaller(night, outcome):
            tries += 1
            tried = play(smaller, base)
            if any(kind_of(failure) == wanted for failure in tried.failures):
                night, outcome, is_shorter = smaller, tried, True
                break
            if tries >= MOST_TRIES:
                break
    return night, outcome


def _smaller(night: Night, outcome: Outcome) -> Iterator[Night]:
    """Nights with one thing less, the largest things first."""
    change = dataclasses.replace
    for number in range(len(night.rounds)):
        yield change(night, rounds=night.rounds[:number] + night.rounds[number + 1 :])
    for kind in night.chances:
        yield change(night, chances={name: chance for name, chance in night.chances.items() if name != kind})
    for number, acts in enumerate(night.rounds):
        for place, act in enumerate(acts):
            if act.does != "run" or place:
                fewer = (*night.rounds[:number], acts[:place] + acts[place + 1 :], *night.rounds[number + 1 :])
                yield change(night, rounds=fewer)
    if len(night.lookups) > 1:
        for lookup in night.lookups:
            yield change(night, lookups=tuple(name for name in night.lookups if name != lookup))
    if night.tasks > 1:
        yield change(night, tasks=1)
    if night.rows > 5:
        yield change(night, rows=night.rows // 2)
    if night.compacts_at_end:
        yield change(night, compacts_at_end=False)
    for fault in range(outcome.fault_numbers):
        if fault not in night.left_out:
            yield change(night, left_out=(*night.left_out, fault))
