"""How many examples of a property are drawn: the profile decides for all of them together."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

IN_PROOFS = 100  # Hypothesis's default, which the profile `explore` keeps


def examples(number: int, **others: Any) -> settings:
    """Settings with this number of examples in `make proof`, half of it in `make test`, and a tenth
    in `make quick`: a number in @settings would overrule the profile.
    """
    of_profile = settings().max_examples
    return settings(max_examples=max(1, number * of_profile // IN_PROOFS), **others)
