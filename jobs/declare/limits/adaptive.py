"""Adaptive: finds from latencies how many calls in flight a service bears."""

from dataclasses import dataclass

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
        if (
            isinstance(self.at_least, bool)
            or not isinstance(self.at_least, int)
            or self.at_least < 1
        ):
            raise DeclarationError(
                f"adaptive: at_least is {self.at_least!r}; it must be a whole number, at least 1."
            )


def check_adaptive(where: str, adaptive: Adaptive | None, max_concurrency: int) -> None:
    """Raise DeclarationError if `at_least` is over `max_concurrency`."""
    if adaptive is not None and adaptive.at_least > max_concurrency:
        raise DeclarationError(
            f"{where}: adaptive: at_least is {adaptive.at_least}, over "
            f"max_concurrency={max_concurrency}, below which the limit is found; lower it."
        )
