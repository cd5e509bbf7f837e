"""Leaves out of a failing night what it fails without: rounds, acts, kinds of faults, and single
faults.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator

from tests.simulation.kinds import Night
from tests.simulation.outcome import Outcome

MOST_TRIES = 200


def kind_of(failure: str) -> str:
    """What was broken, without its time and its place."""
    return failure.partition(": ")[2].partition(":")[0].partition("\n")[0].partition("(")[0][:40]


def shorten(
    night: Night, play: Callable[..., Outcome], base: pathlib.Path
) -> tuple[Night, Outcome]:
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
    """Nights with one thing less, the largest things first; at last without one fault."""
    yield from night.smaller()
    for fault in range(outcome.fault_numbers):
        if fault not in night.left_out:
            yield dataclasses.replace(night, left_out=(*night.left_out, fault))
