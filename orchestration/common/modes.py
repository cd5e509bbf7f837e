"""The modes of a run of a day: nightly, or from stored answers."""

from dataclasses import dataclass

from jobs.process.day_options import Accept

TAG = "tidegate/mode"  # tag of a run; without it the mode is nightly


@dataclass(frozen=True)
class Mode:
    """A mode of a run.

    Attributes:
        name: The value of the tag.
        options: Of the Spark program.
        verb: In the run's first words.
        description: For people.
    """

    name: str
    options: tuple[str, ...]
    verb: str
    description: str


NIGHTLY = Mode(
    "nightly",
    (),
    "enriches and checks",
    "Enriches one day, checks it, publishes it and makes its summaries.",
)
REPLAY = Mode(
    "replay",
    ("--ignore-ttl",),
    "asks again for the dead letters of",
    "Asks again for the dead letters of a day and publishes it complete. All other answers come "
    "from the ledger, "
    "whatever their age. A day without dead letters stays as it is: nothing is called.",
)
REMAP = Mode(
    "remap",
    ("--no-calls", "--ignore-ttl"),
    "maps the stored responses anew for",
    "Publishes a day again from stored responses, with the columns and paths declared now: no call "
    "is made. Held back "
    "when a row would lose an answer that the ledger does not hold.",
)
REFRESHED = Mode(  # a sensor requests it after a run of tidegate_refresh_answers
    "refreshed",
    ("--ignore-ttl",),
    "asks anew for the answers that were marked, for",
    "Asks anew for the answers that a refresh has marked; all others count whatever their age.",
)
OTHERS = (REPLAY, REMAP)  # modes that a person chooses
BY_NAME = {mode.name: mode for mode in (NIGHTLY, REPLAY, REMAP, REFRESHED)}


def acceptance(mode: Mode) -> Accept | None:
    if mode not in OTHERS:
        return None
    from jobs.commands.remap import why_answers_are_lost, why_calls_lose_answers

    return why_answers_are_lost if mode is REMAP else why_calls_lose_answers
