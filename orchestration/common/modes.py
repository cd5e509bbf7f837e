"""The modes of a run of a day: nightly, or from stored answers."""

import enum
from dataclasses import dataclass

from jobs.process.day_options import ANY_AGE, NO_CALLS, Accept


@dataclass(frozen=True)
class How:
    """What a mode does.

    Attributes:
        options: Of the Spark program.
        verb: In the run's first words.
        description: For people.
    """

    options: tuple[str, ...]
    verb: str
    description: str


class Mode(enum.Enum):
    """A mode of a run; orchestrators list the names."""

    nightly = How(
        (),
        "enriches and checks",
        "enriches the day, checks it, publishes it and makes its summaries.",
    )
    replay = How(
        ANY_AGE,
        "asks again for the dead letters of",
        "asks again for the dead letters of the day and publishes it complete. All other answers "
        "come from the ledger, whatever their age. A day without dead letters stays as it is.",
    )
    remap = How(
        NO_CALLS,
        "maps the stored responses anew for",
        "publishes the day again from stored responses, with the columns and paths declared now. "
        "It makes no call, and holds the day back if a row would lose its answer.",
    )
    refreshed = How(
        ANY_AGE,
        "asks anew for the answers that were marked, for",
        "asks again for the answers that `tidegate_refresh_answers` marked; a sensor starts it.",
    )


OTHERS = (Mode.replay, Mode.remap)  # modes that need stored answers


def acceptance(mode: Mode) -> Accept | None:
    if mode not in OTHERS:
        return None
    from jobs.commands.lost_answers import why_answers_are_lost, why_calls_lose_answers

    return why_answers_are_lost if mode is Mode.remap else why_calls_lose_answers
