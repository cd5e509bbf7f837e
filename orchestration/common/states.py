"""The states of a day in the results of its runs, and their texts."""

from jobs.process.day_events import FAILED, NOT_STARTED, PUBLISHED

RUNNING, CANCELLED, CRASHED = "running", "cancelled", "crashed"
HELD_BACK, NO_INPUT, WRONG, UNCHANGED = "held back", "no input", "wrong", "unchanged"
NO_ALARM = {PUBLISHED, RUNNING, NOT_STARTED, CANCELLED, CRASHED}  # every other state needs a person, or time

__all__ = [
    "CANCELLED",
    "CRASHED",
    "FAILED",
    "HELD_BACK",
    "NOT_STARTED",
    "NO_ALARM",
    "NO_INPUT",
    "PUBLISHED",
    "RUNNING",
    "UNCHANGED",
    "WRONG",
    "in_words",
]


def in_words(state: str, reason: str) -> str:
    """`Published: ...`, `Not published (held back): ...`."""
    words = state.capitalize() if state in (RUNNING, PUBLISHED) else f"Not published ({state})"
    return f"{words}: {reason}"
