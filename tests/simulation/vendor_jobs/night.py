"""A night of vendor jobs as data: who runs which day, and what can fail. Drawn from a seed, or read
from a file.
"""

import dataclasses
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.simulation.fewer import fewer_acts, fewer_kinds, without
from tests.simulation.vendor_jobs.dialects import DIALECTS

GIVE_UP = 600.0  # s
SLOW, PURGED = 0.1, 0.05  # of the nights


@dataclass(frozen=True)
class Act:
    """Something that happens in a round, so many seconds after its begin.

    Attributes:
        does: "run", "look", "cancel", "forget job", "forget", "compact", "kill", "power cut", "set
            clock".
        day: Of a run or a look: its number.
        share: Of the runs: which is killed. Of the jobs: which is cancelled. Of the keys: how many
            are forgotten. Of a day: by how much the clock is set.
    """

    does: str
    at: float
    day: int = 0
    share: float = 0.0


@dataclass(frozen=True)
class JobsNight:
    """Everything that a night depends on but the code.

    Attributes:
        seed: Of the schedule, and of each fault's place.
        dialect: The vendor's.
        days: The number of days, whose keys are in part the same.
        keys: Distinct keys of all days.
        most_open: Jobs at once.
        personal: The ledger hides the keys.
        takes_long: Highest number of seconds between a request and the job that it begins.
        hides: Seconds for which a new job is missing in the vendor's list, which says so.
        rounds: A round begins when the runs of the round before have ended.
        pauses: Seconds after each round.
        abandoned: Days that nobody runs in the end.
        chances: Per kind of fault, the probability that it strikes where it can.
        left_out: Numbers of faults that do not strike, since the night fails without them too.
        aim: A piece of the paths at whose changes most kills strike.
        budget: Items that all jobs may cost at their most; 0: no budget.
    """

    seed: int
    dialect: str = "openai"
    preempts: float = 0.3
    latency: float = 0.001
    days: int = 1
    rows: int = 10
    keys: int = 12
    max_items: int = 4
    most_open: int = 3
    retries: int = 1
    personal: bool = False
    takes_long: float = 0.1
    hides: float = 0.0
    rounds: tuple[tuple[Act, ...], ...] = ()
    pauses: tuple[float, ...] = ()
    abandoned: tuple[int, ...] = ()
    chances: dict[str, float] = dataclasses.field(default_factory=dict)
    fails_between: tuple[float, float] = (0.0, 0.0)
    left_out: tuple[int, ...] = ()
    aim: str = ""
    budget: int = 0

    def as_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> "JobsNight":
        facts: dict[str, Any] = json.loads(text)
        facts["rounds"] = tuple(tuple(Act(**act) for act in acts) for acts in facts["rounds"])
        for name in ("pauses", "abandoned", "fails_between", "left_out"):
            facts[name] = tuple(facts[name])
        return cls(**facts)

    def smaller(self) -> Iterator["JobsNight"]:
        """Nights with one thing less, the largest things first."""
        change = dataclasses.replace
        for number in range(len(self.rounds)):
            fewer, pauses = without(self.rounds, number), without(self.pauses, number)
            yield change(self, rounds=fewer, pauses=pauses)
        yield from fewer_kinds(self)
        yield from fewer_acts(self)
        for name, least in (("days", 1), ("rows", 3), ("keys", 3)):
            if getattr(self, name) > least:
                yield change(self, **{name: max(least, getattr(self, name) // 2)})
        for name in ("personal", "hides", "abandoned", "aim", "budget"):
            if getattr(self, name):
                yield change(self, **{name: type(getattr(self, name))()})


def draw_night(seed: int) -> JobsNight:
    """The night of this seed."""
    draws = random.Random(f"jobs:{seed}")
    days = draws.choice((1, 2, 2, 3))
    rounds = tuple(_draw_round(draws, days) for _ in range(draws.choice((1, 2, 3, 4))))
    fails_from = 30 * draws.random()
    of_money = random.Random(f"money:{seed}")  # the other nights stay as they were
    budget = of_money.choice((4, 12, 40)) if of_money.random() < 0.3 else 0
    of_store = {"error of the limits' store": 0.05} if budget and of_money.random() < 0.3 else {}
    night = JobsNight(
        seed=seed,
        dialect=draws.choice([*DIALECTS]),
        preempts=draws.choice((0.05, 0.3, 0.7)),
        latency=draws.choice((0.0005, 0.01)),
        days=days,
        rows=draws.choice((5, 10, 20)),
        keys=draws.choice((6, 12, 40)),
        max_items=draws.choice((3, 6, 50)),
        most_open=draws.choice((1, 2, 5)),
        retries=draws.choice((0, 1, 2)),
        personal=draws.random() < 0.2,
        takes_long=draws.choice((0.1, 0.1, 8.0, 40.0)),
        hides=draws.choice((0.0, 0.0, 5.0, 60.0)),
        rounds=rounds,
        pauses=tuple(draws.choice((0.0, 10.0, 60.0, 400.0, 1300.0)) for _ in rounds),
        abandoned=tuple(day for day in range(1, days) if draws.random() < 0.3),
        chances=_draw_chances(draws) | of_store,
        budget=budget,
        fails_between=(fails_from, fails_from + draws.choice((5.0, 60.0))),
        aim=draws.choice(("", "jobs/", "intent", "submitted", "done.json", "parts/", "waiting/")),
    )
    return dataclasses.replace(night, **_draw_slow(night), **_draw_purged(night))


def _draw_slow(night: JobsNight) -> dict[str, Any]:
    """Whether a second run submits and reads small jobs beside the first, on a slow store."""
    draws = random.Random(f"slow:{night.seed}")
    if draws.random() >= SLOW:
        return {}

    def with_second(acts: tuple[Act, ...]) -> tuple[Act, ...]:
        day = next(act.day for act in acts if act.does == "run")
        both = (*acts, Act("run", 20 * draws.random(), day=day))
        return tuple(sorted(both, key=lambda act: act.at))

    rounds = tuple(map(with_second, night.rounds))
    few = {"max_items": 3, "most_open": 5}
    return {"latency": 0.1, "rows": 20, "keys": 40, **few, "rounds": rounds}


def _draw_purged(night: JobsNight) -> dict[str, Any]:
    """Whether the vendor keeps the results of few jobs."""
    draws = random.Random(f"purged:{night.seed}")
    if draws.random() >= PURGED:
        return {}
    return {"chances": night.chances | {"results purged": 0.5}}


def _draw_round(draws: random.Random, days: int) -> tuple[Act, ...]:
    """Runs of the same and of other days, and what people and machines do meanwhile."""

    def somewhen(longest: float = 30.0) -> float:
        return draws.random() * draws.choice((0.05, 1.0, longest))

    acts = [
        Act("run", somewhen(), day=draws.randrange(days)) for _ in range(draws.choice((1, 1, 2, 3)))
    ]
    acts += [
        Act("kill", somewhen(), share=draws.random()) for _ in range(draws.choice((0, 0, 1, 2)))
    ]
    if draws.random() < 0.3:
        acts.append(Act("look", somewhen(), day=draws.randrange(days)))
    for does, chance in (("cancel", 0.2), ("forget job", 0.12), ("compact", 0.15)):
        if draws.random() < chance:
            acts.append(Act(does, somewhen(), share=draws.random()))
    if draws.random() < 0.12:
        acts.append(Act("forget", 40.0 + somewhen(), share=draws.choice((0.1, 0.5))))
    if draws.random() < 0.1:
        acts.append(Act("power cut", somewhen()))
    if draws.random() < 0.06:
        acts.append(Act("set clock", somewhen(), share=draws.choice((-1.0, -0.05, 0.001, 0.5))))
    return tuple(sorted(acts, key=lambda act: act.at))


def _draw_chances(draws: random.Random) -> dict[str, float]:
    """Most nights have some kinds of faults and not others."""

    def often(*chances: float) -> float:
        return draws.choice((0.0, 0.0, *chances))

    level = draws.choice((0.0, 0.1, 0.3))
    kinds = {
        "kill at a file": often(0.003, 0.02),
        "kill at a request": often(0.05, 0.2),
        "429": level * draws.random(),
        "409": level * draws.random(),
        "500": level * draws.random(),
        "403": 0.1 * level * draws.random(),
        "connection dropped before": level * draws.random(),
        "connection dropped after": level * draws.random(),
        "500 after": level * draws.random(),
        "no answer": 0.5 * level * draws.random(),
        "answer cut short": level * draws.random(),
        "job refused": often(0.1),
        "job expired": often(0.3),
        "job stuck": often(0.1),
        "job cancelled by the vendor": often(0.1),
        "results purged": often(0.05),
        "item failed": often(0.1, 0.5),
        "item left out": often(0.1, 0.5),
        "foreign result": often(0.3),
        "result doubled": often(0.3),
        "failure beside a result": often(0.3),
        "last line torn": often(0.5),
        "cancel takes long": often(0.5),
    }
    if draws.random() < 0.2:
        chance = draws.choice((0.02, 0.2))
        kinds |= {"error before a file operation": chance, "error after a file operation": chance}
    kinds["results without a length"] = often(0.5)
    if kinds["results without a length"]:  # its cut may hide the answer behind a failure, unnoticed
        kinds["failure beside a result"] = 0.0
    return {kind: chance for kind, chance in kinds.items() if chance}
