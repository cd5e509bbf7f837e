"""Adaptive: finds from latencies how many calls in flight a service bears."""

from dataclasses import dataclass

from jobs.declare.values.type_checks import require_count
from jobs.errors import DeclarationError


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """Finds how many calls in flight a service bears, up to its max_concurrency, and follows
    changes.

    Attributes:
        at_least: Calls in flight of a run at its start; a run never has fewer.
    """

    at_least: int = 4

    def __post_init__(self) -> None:
        require_count("adaptive: at_least", self.at_least)


def check_adaptive(where: str, adaptive: Adaptive | None, max_concurrency: int) -> None:
    """Raise DeclarationError if `at_least` is over `max_concurrency`."""
    if adaptive is not None and adaptive.at_least > max_concurrency:
        raise DeclarationError(
            f"{where}: adaptive: at_least is {adaptive.at_least}; it must be at most "
            f"max_concurrency, {max_concurrency}."
        )
