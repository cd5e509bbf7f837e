"""The states of a day as its runs tell them, and how a state is said."""

from jobs.process.day_events import FAILED, NOT_STARTED, PUBLISHED

RUNNING, CANCELLED, TRIED_AGAIN = "running", "cancelled", "crashed"
NO_ALARM = {PUBLISHED, RUNNING, NOT_STARTED, CANCELLED, TRIED_AGAIN}  # every other state needs somebody, or time

__all__ = ["CANCELLED", "FAILED", "NOT_STARTED", "NO_ALARM", "PUBLISHED", "RUNNING", "TRIED_AGAIN", "in_words"]


def in_words(state: str, reason: str) -> str:
    """`Published: ...`, `Not published (held back): ...`."""
    words = state.capitalize() if state in (RUNNING, PUBLISHED) else f"Not published ({state})"
    return f"{words}: {reason}"
