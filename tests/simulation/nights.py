"""A night as data: what runs, who does what beside it, and what can fail."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.simulation.fewer import fewer_acts, fewer_kinds, without

LOOKUPS = ("price", "order", "stock", "score")


@dataclass(frozen=True)
class Act:
    """Something that happens in a round, so many seconds after its begin.

    Attributes:
        does: "run", "replay", "remap", "compact", "maintenance", "refresh", "forget", "kill run",
            "power cut", "set clock".
        lookup: Whose answers; "" where that is no matter.
        share: Of the day's keys, or of its rows; of the runs: which; of a day: by how much a clock
            is set.
        grace: Of a compaction, in seconds; of a killed run: below 1, its workers outlive it.
        day: Of a run: whose rows.
        changed: Of a run: what its declaration has changed; "ttl", "no retries", "idempotent",
            "error_when".
        cap: Of a run: the cents that its calls may cost (`--max-cost`); 0: any.
    """

    does: str
    at: float
    lookup: str = ""
    share: float = 0.0
    grace: float = 86_400.0
    day: int = 0
    changed: tuple[str, ...] = ()
    cap: int = 0


RUNS = ("run", "replay", "remap")


@dataclass(frozen=True)
class Night:
    """Everything that a night depends on but the code.

    Attributes:
        seed: Of the schedule, and of each fault's place.
        rounds: A round begins when the runs of the one before it have ended.
        chances: Per kind of fault, the probability that it strikes where it can.
        left_out: Numbers of faults that do not strike, since the night fails without them too.
        batched: Many keys in one request, and how an answer is matched: "match", "position",
            "order"; "": one key.
        hedge: s after which a slow call of `price` is made a second time; below 0: "p95"; 0: never.
        limits: What all runs share: "calls", "rates", "budget", "adaptive"; "off": each run has its
            limits alone, and so it has with "alone", rates too.
        rate: Requests per second.
        budget: Cents of each service.
        aim: A piece of the paths at whose changes most of the "kill at a file" strike.
        chained: Whether the last lookup is asked only where the first one has an answer.
        spills: Whether it is the first one's vendor in turn instead: asked where that has no answer,
            or is down.
        down: Virtual seconds between which the vendor of the first lookup is down.
        store_away: Virtual seconds between which the store of the limits does not answer.
    """

    seed: int
    lookups: tuple[str, ...] = LOOKUPS
    honours_keys: bool = True
    storage: str = "local"
    latency: float = 0.001
    preempts: float = 0.3
    tasks: int = 2
    rows: int = 20
    spread: float = 1.0  # distinct keys per row
    mode: str = "unordered"
    flush_rows: int = 20
    flush_seconds: float = 0.5
    rounds: tuple[tuple[Act, ...], ...] = ()
    compacts_at_end: bool = False
    chances: dict[str, float] = dataclasses.field(default_factory=dict)
    fails_between: tuple[float, float] = (0.0, 0.0)
    left_out: tuple[int, ...] = ()
    batched: str = ""
    hedge: float = 0.0
    limits: str = "off"
    rate: int = 0
    budget: int = 0
    store_away: tuple[float, float] = (0.0, 0.0)
    aim: str = ""
    chained: bool = False
    spills: bool = False
    down: tuple[float, float] = (0.0, 0.0)

    @property
    def chain(self) -> dict[str, str]:
        """The lookup that is asked by what became of the first, and that first one."""
        is_chain = (self.chained or self.spills) and self.lookups[1:]
        return {self.lookups[-1]: self.lookups[0]} if is_chain else {}

    @property
    def asked_after(self) -> tuple[str, ...]:
        """The statuses of the first lookup after which the last one is asked."""
        return ("miss", "skipped", "not_asked") if self.spills else ("ok",)

    def as_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> "Night":
        facts: dict[str, Any] = json.loads(text)
        facts["rounds"] = tuple(
            tuple(Act(**act | {"changed": tuple(act.get("changed", ()))}) for act in acts)
            for acts in facts["rounds"]
        )
        for name in ("lookups", "fails_between", "left_out", "store_away", "down"):
            facts[name] = tuple(facts.get(name, getattr(cls, name, ())))
        return cls(**facts)

    def smaller(self) -> Iterator["Night"]:
        """Nights with one thing less, the largest things first."""
        change = dataclasses.replace
        for number in range(len(self.rounds)):
            yield change(self, rounds=without(self.rounds, number))
        yield from fewer_kinds(self)
        yield from fewer_acts(self, lambda act, place: act.does == "run" and place == 0)
        if len(self.lookups) > 1:
            for lookup in self.lookups:
                yield change(self, lookups=tuple(name for name in self.lookups if name != lookup))
        if self.tasks > 1:
            yield change(self, tasks=1)
        if self.rows > 5:
            yield change(self, rows=self.rows // 2)
        if self.compacts_at_end:
            yield change(self, compacts_at_end=False)
