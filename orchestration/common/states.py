"""The states of a day in the results of its runs, and their texts."""

from jobs.errors import NoInput, RunWaits
from jobs.process import day_events

FAILED, NOT_STARTED, PUBLISHED = day_events.FAILED, day_events.NOT_STARTED, day_events.PUBLISHED
RUNNING, CANCELLED, CRASHED = "running", "cancelled", "crashed"
HELD_BACK, NO_INPUT, WRONG, UNCHANGED = "held back", NoInput.state, "wrong", "unchanged"
WAITING = RunWaits.state
# every other state needs a person, or time
NO_ALARM = {PUBLISHED, RUNNING, NOT_STARTED, CANCELLED, CRASHED, WAITING}


def in_words(state: str, reason: str, next_step: str) -> str:
    """Return text such as `Published: ...` or `Not published (held back): ... Next: ...`."""
    if state in (RUNNING, PUBLISHED):
        return f"{state.capitalize()}: {reason}"
    return f"Not published ({state}): {reason.rstrip('.')}. Next: {next_step}"
