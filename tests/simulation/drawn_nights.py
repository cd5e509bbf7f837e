"""Draws nights from seeds."""

import dataclasses
import random
from typing import Any

from tests.simulation.nights import LOOKUPS, RUNS, Act, Night

SETS_OF_LOOKUPS = (
    ("price",), ("order",), ("price", "order"), ("price", "order"), ("price", "stock"),
    ("price", "order", "stock"), ("score",), ("price", "score"), LOOKUPS,
)  # fmt: skip
CHAINED = 0.25  # of the nights with several lookups
SPILLS = 0.12
CAPPED = 0.2
SLOW = 0.3  # of the nights with rates and many rows: a window of 30 s is full
TOKENS_LOST = 0.1  # of the nights with tokens and without other limits
LIMITS = (*("off",) * 11, *("alone", "calls", "rates", "budget") * 2, "adaptive")


def draw_night(seed: int) -> Night:
    """The night of this seed."""
    draws = random.Random(f"night:{seed}")
    lookups = draws.choice(SETS_OF_LOOKUPS)
    rounds = tuple(_draw_round(draws, lookups) for _ in range(draws.choice((0, 1, 2, 3))))
    fails_from = 10 * draws.random()
    night = Night(
        seed=seed,
        lookups=lookups,
        honours_keys=draws.random() < 0.7,
        storage=draws.choice(("local", "local", "s3")),
        latency=draws.choice((0.0005, 0.005, 0.03)),
        preempts=draws.choice((0.05, 0.3, 0.7)),
        tasks=draws.choice((1, 2, 3)),
        rows=draws.choice((20, 60)),
        spread=draws.choice((0.3, 1.0, 3.0)),
        mode=draws.choice(("ordered", "unordered")),
        flush_rows=draws.choice((3, 20, 200)),
        flush_seconds=draws.choice((0.05, 0.5)),
        rounds=rounds,
        compacts_at_end=draws.random() < 0.5,
        fails_between=(fails_from, fails_from + draws.choice((1.0, 10.0))),
        batched=draws.choice(("", "", "", "match", "position", "order")),
        hedge=draws.choice((0.0, 0.0, 0.0, 0.2, 1.0, -1.0)),
    )
    chances = _draw_chances(draws, night) if rounds else {}
    aim = draws.choice(("", "", "claims/", ".journal", ".parquet", "complete.json", "run.json"))
    limits = _draw_limits(draws, night)
    night = dataclasses.replace(night, chances=chances, aim=aim, **limits)
    night = dataclasses.replace(night, **_draw_chain(night), **_draw_caps(night))
    return dataclasses.replace(night, **_draw_lost_tokens(night))


def _draw_lost_tokens(night: Night) -> dict[str, Any]:
    """Whether many answers are lost whose tokens fill a window."""
    draws = random.Random(f"tokens:{night.seed}")
    can_be = "score" in night.lookups and night.limits in ("off", "rates") and night.rounds
    if not can_be or draws.random() >= TOKENS_LOST:
        return {}
    lost = {"dropped after charging": draws.choice((0.2, 0.5))}
    return {"limits": "rates", "rate": 3, "chances": night.chances | lost}


def _draw_chain(night: Night) -> dict[str, Any]:
    """Whether the last lookup is asked by what became of the first; of streams of their own, as
    nights were drawn before there were chains.
    """
    draws = random.Random(f"spill:{night.seed}")
    if draws.random() >= SPILLS or not night.lookups[1:]:
        return {"chained": random.Random(f"chain:{night.seed}").random() < CHAINED}
    down_from = draws.choice((0.0, 1.0, 5.0)) * draws.random()
    down = (
        (down_from, down_from + draws.choice((0.0, 3.0, 12.0, 60.0)))
        if night.rounds
        else (0.0, 0.0)
    )
    return {"spills": True, "down": down}


def _draw_caps(night: Night) -> dict[str, Any]:
    """What some runs may cost."""
    draws = random.Random(f"cap:{night.seed}")
    if draws.random() >= CAPPED:
        return {}
    keys = night.rows * min(1.0, night.spread)

    def capped(act: Act) -> Act:
        if act.does not in RUNS or draws.random() < 0.3:
            return act
        return dataclasses.replace(act, cap=1 + int(keys * draws.choice((0.3, 0.6, 1.3, 2.6))))

    return {"rounds": tuple(tuple(map(capped, acts)) for acts in night.rounds)}


def _draw_limits(draws: random.Random, night: Night) -> dict[str, Any]:
    """What the runs of a night share, in half of the nights."""
    limits = draws.choice(LIMITS)
    away_from = 20 * draws.random()
    rate = draws.choice((8, 20)) if night.rows > 20 else 3
    if random.Random(f"rate:{night.seed}").random() < SLOW:
        rate = 3
    return {
        "limits": limits,
        # a run that found a low limit takes a minute for each 100
        "rows": 20 if limits == "adaptive" else night.rows,
        "rate": rate,
        "budget": int(night.rows * draws.choice((0.3, 1.5, 5.0, 30.0))) + 20,
        "store_away": (away_from, away_from + draws.choice((0.0, 0.0, 5.0, 15.0)))
        if limits not in ("off", "alone")
        else (0.0, 0.0),
    }


def _draw_round(draws: random.Random, lookups: tuple[str, ...]) -> tuple[Act, ...]:
    """One to three runs, and what people, Dagster and machines do meanwhile."""
    acts = [_draw_run(draws, 0.0)]
    if draws.random() < 0.5:  # a backfill, or the same day from elsewhere
        acts.append(_draw_run(draws, draws.random() * draws.choice((0.01, 1.0, 5.0))))
    if draws.random() < 0.1:
        acts.append(_draw_run(draws, draws.random() * draws.choice((0.01, 1.0, 5.0))))
    if draws.random() < 0.3:
        acts.append(_draw_compaction(draws, lookups, 5 * draws.random()))
    elif draws.random() < 0.1:
        acts.append(
            Act("maintenance", 5 * draws.random(), grace=draws.choice((86_400.0, 60.0, 10.0)))
        )
    if draws.random() < 0.3:
        killed_at = draws.random() * draws.choice((0.5, 3.0, 10.0))
        acts.append(
            Act("kill run", killed_at, share=draws.random(), grace=draws.choice((0.0, 9.0)))
        )
        if draws.random() < 0.5:  # Dagster tries it again
            acts.append(
                _draw_run(draws, killed_at + draws.choice((0.1, 5.0, 40.0)) * draws.random())
            )
    elif draws.random() < 0.2:
        acts.append(Act("power cut", draws.random() * draws.choice((0.5, 3.0, 10.0))))
    if draws.random() < 0.08:
        acts.append(
            Act("set clock", 10 * draws.random(), share=draws.choice((-1.0, -0.05, -0.001, 0.001)))
        )
    after = draws.choice((60.0, 60.0, 5 * draws.random()))  # mostly when the runs have ended
    if draws.random() < 0.35:
        acts.append(Act("refresh", after, draws.choice(lookups), draws.choice((0.02, 0.25))))
    if draws.random() < 0.35:
        lookup = draws.choice(lookups)
        acts.append(Act("forget", after + 5, lookup, draws.choice((0.02, 0.25))))
        if draws.random() < 0.6:
            acts.append(_draw_compaction(draws, (lookup,), after + 5 - 0.1 * draws.random()))
    return tuple(sorted(acts, key=lambda act: act.at))


def _draw_run(draws: random.Random, at: float) -> Act:
    does = draws.choice(("run", "run", "run", "run", "run", "run", "replay", "remap"))
    changed = [
        feature
        for feature in ("ttl", "no retries", "idempotent", "error_when")
        if draws.random() < 0.07
    ]
    return Act(
        does, at, share=draws.random(), day=draws.choice((0, 0, 0, 1)), changed=tuple(changed)
    )


def _draw_compaction(draws: random.Random, lookups: tuple[str, ...], at: float) -> Act:
    return Act("compact", at, draws.choice(lookups), grace=draws.choice((86_400.0, 60.0, 10.0)))


def _draw_chances(draws: random.Random, night: Night) -> dict[str, float]:
    """Most nights have some kinds of faults and not others, so that each kind is met alone and with
    others.
    """
    level = draws.choice((0.0, 0.05, 0.2))
    kinds = {
        "throttled": level * draws.random(),
        "refused": level * draws.random(),
        "dropped after charging": level * draws.random(),
        "no answer": 0.3 * level * draws.random(),
        "late answer": level * draws.random(),
        "answer cut short": level * draws.random(),
        "answered twice": level * draws.random(),
        "another key's answer": level * draws.random(),
        "item left out of a batch": level * draws.random(),
        "batch in another order": draws.random() if night.batched in ("match", "position") else 0.0,
        "kill of a task": 0.5 if draws.random() < 0.7 else 0.0,
        "lost result of a task": 0.2 if draws.random() < 0.3 else 0.0,
        "retry of a stage": 0.2 if draws.random() < 0.15 else 0.0,
        "second copy of a task": 0.2 if draws.random() < 0.15 else 0.0,
        "late attempt of a task": 0.3 if draws.random() < 0.2 else 0.0,
        "kill at a file": draws.choice((0.0, 0.0, 0.003, 0.02)),
        "connection reset": draws.choice((0.0, 0.0, 0.002)),
        "partition of the network": draws.choice((0.0, 0.0, 0.002)),
        "error of the limits' store": draws.choice((0.0, 0.0, 0.05)),
    }
    if draws.random() < 0.3:
        chance = draws.choice((0.02, 0.2))
        kinds |= {"error before a file operation": chance, "error after a file operation": chance}
    if "order" in night.lookups or any(
        "idempotent" in act.changed for acts in night.rounds for act in acts
    ):
        # refused in a session that runs copies (docs/ledger.md)
        kinds["second copy of a task"] = 0.0
    return {kind: chance for kind, chance in kinds.items() if chance}
