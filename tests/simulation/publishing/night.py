"""A night of publishing as data: who works on which day, and what can fail. Drawn from a seed, or
read from a file.
"""

import dataclasses
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.simulation.fewer import fewer_acts, fewer_kinds, without

RETENTIONS = (0, 1, 7)  # days
SLOW = 0.1  # of the nights


@dataclass(frozen=True)
class Act:
    """Something that happens in a round, so many seconds after its begin.

    Attributes:
        does: "run", "changed run", "stream", "vacuum", "erase", "read", "status", "arrive", "kill",
            "power cut".
        day: Its number.
        share: Of the runs so far: which is killed. Of the rows: how many are erased or changed.
        days: That a vacuum keeps.
        is_red: A check holds the run back; of a stream its first batch.
    """

    does: str
    at: float
    day: int = 0
    share: float = 0.0
    days: int = 7
    is_red: bool = False


@dataclass(frozen=True)
class PublishingNight:
    """Everything that a night depends on but the code.

    Attributes:
        seed: Of the schedule, and of each fault's place.
        rounds: A round begins when all of the one before it have ended.
        ages: Days that pass after each round.
        stalls: The probability that a file operation takes long, so that others do much meanwhile.
        shows_folders: The table is shown as folders of Parquet too.
        makes_summaries: A run makes a summary of its day.
        sums_up: Commits between two checkpoints of a new table; 0: as Delta does.
        new_column_from: The number of the first run that is declared with another column; 0: none
            is.
        chances: Per kind of fault, the probability that it strikes where it can.
        left_out: Numbers of faults that do not strike, since the night fails without them too.
        slow: The act some of whose file operations take very long, so that others do much meanwhile.
    """

    seed: int
    preempts: float = 0.3
    latency: float = 0.01
    stalls: float = 0.01
    shows_folders: bool = False
    makes_summaries: bool = False
    sums_up: int = 0
    new_column_from: int = 0
    rounds: tuple[tuple[Act, ...], ...] = ()
    ages: tuple[int, ...] = ()
    chances: dict[str, float] = dataclasses.field(default_factory=dict)
    fails_between: tuple[float, float] = (0.0, 0.0)
    left_out: tuple[int, ...] = ()
    slow: str = ""

    def as_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> "PublishingNight":
        facts: dict[str, Any] = json.loads(text)
        facts["rounds"] = tuple(tuple(Act(**act) for act in acts) for acts in facts["rounds"])
        for name in ("ages", "fails_between", "left_out"):
            facts[name] = tuple(facts[name])
        return cls(**facts)

    def smaller(self) -> Iterator["PublishingNight"]:
        """Nights with one thing less, the largest things first."""
        change = dataclasses.replace
        for number in range(len(self.rounds)):
            fewer, ages = without(self.rounds, number), without(self.ages, number)
            yield change(self, rounds=fewer, ages=ages)
        yield from fewer_kinds(self)
        yield from fewer_acts(self)
        for number, days in enumerate(self.ages):
            if days:
                yield change(self, ages=(*self.ages[:number], 0, *self.ages[number + 1 :]))
        for name in (
            "stalls",
            "shows_folders",
            "makes_summaries",
            "sums_up",
            "new_column_from",
            "slow",
        ):
            if getattr(self, name):
                yield change(self, **{name: type(getattr(self, name))()})


def draw_night(seed: int) -> PublishingNight:
    """The night of this seed."""
    draws = random.Random(f"publishing:{seed}")
    days = draws.choice((1, 2, 3))
    streams = draws.random() < 0.4
    rounds = tuple(
        _draw_round(draws, days, streams=streams) for _ in range(draws.choice((1, 2, 3, 4)))
    )
    fails_from = 2 * draws.random()
    night = PublishingNight(
        seed=seed,
        preempts=draws.choice((0.1, 0.3, 0.7)),
        latency=draws.choice((0.001, 0.02)),
        shows_folders=not streams and draws.random() < 0.4,
        makes_summaries=draws.random() < 0.3,
        sums_up=draws.choice((0, 0, 0, 3)),
        new_column_from=draws.choice((0, 0, 2, 4)),
        rounds=rounds,
        ages=tuple(draws.choice((0, 0, 2, 9)) for _ in rounds),
        chances=_draw_chances(draws),
        fails_between=(fails_from, fails_from + draws.choice((0.5, 5.0))),
        stalls=draws.choice((0.01, 0.01, 0.1)),
    )
    return dataclasses.replace(night, **_draw_slow(night))


def _draw_slow(night: PublishingNight) -> dict[str, Any]:
    """Whether a slow vacuum that keeps nothing works beside a further run in each round."""
    draws = random.Random(f"slow:{night.seed}")
    if draws.random() >= SLOW:
        return {}

    def with_vacuum(acts: tuple[Act, ...]) -> tuple[Act, ...]:
        run, vacuum = Act("run", 4 * draws.random()), Act("vacuum", 2 * draws.random(), days=0)
        return tuple(sorted((*acts, run, vacuum), key=lambda act: act.at))

    return {"slow": "vacuum", "rounds": tuple(map(with_vacuum, night.rounds))}


def _draw_round(draws: random.Random, days: int, *, streams: bool) -> tuple[Act, ...]:
    """Runs of the same and of other days, and who works on their table beside them."""

    def somewhen(longest: float = 4.0) -> float:
        return draws.random() * draws.choice((0.05, 1.0, longest))

    acts = [Act("arrive", 0.0, day=day) for day in range(days) if draws.random() < 0.5]
    for _ in range(draws.choice((0, 1, 2, 3) if streams else (1, 2, 3))):
        kind = draws.choice(("run", "run", "run", "changed run"))
        acts.append(
            Act(
                kind,
                somewhen(),
                day=draws.randrange(days),
                share=draws.random(),
                is_red=draws.random() < 0.15,
            )
        )
    if streams:
        acts += [
            Act("stream", somewhen(), is_red=draws.random() < 0.1)
            for _ in range(draws.choice((1, 1, 2)))
        ]
        acts += [
            Act("arrive", somewhen(), day=draws.randrange(days))
            for _ in range(draws.choice((0, 1, 3)))
        ]
    acts += [Act("read", somewhen()) for _ in range(draws.choice((1, 2)))]
    acts += [Act("status", somewhen()) for _ in range(draws.choice((0, 0, 0, 1, 2)))]
    for _ in range(draws.choice((0, 0, 1, 2))):
        acts.append(Act("vacuum", somewhen(), days=draws.choice(RETENTIONS)))
    if draws.random() < 0.12:
        acts.append(
            Act("erase", somewhen(), day=draws.randrange(days), share=draws.choice((0.1, 0.5, 1.0)))
        )
    acts += [
        Act("kill", somewhen(), share=draws.random()) for _ in range(draws.choice((0, 0, 0, 1, 2)))
    ]
    if draws.random() < 0.08:
        acts.append(Act("power cut", somewhen()))
    return tuple(sorted(acts, key=lambda act: act.at))


def _draw_chances(draws: random.Random) -> dict[str, float]:
    kinds = {
        "kill at a file": draws.choice((0.0, 0.0, 0.004, 0.02)),
        "kill at a commit": draws.choice((0.0, 0.0, 0.03, 0.15)),
    }
    if draws.random() < 0.3:
        kinds["error before a file operation"] = draws.choice((0.02, 0.2))
    return {kind: chance for kind, chance in kinds.items() if chance}
