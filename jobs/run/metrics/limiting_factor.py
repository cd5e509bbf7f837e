"""Finds the limiting factor of a run, from the use of slots, closed gates and busy event loops."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from jobs.schema.records import DayMetrics, LookupMetrics

SHARE_OF_GATE = 0.2  # of the time; a gate closed for longer is the limiting factor
SHORTEST_GATE = 0.5  # s: every run waits for a tenth of a second for its first part of the limits
SHARE_OF_WAITS = 0.5  # of the time; a longer wait for the adaptive limit is the limiting factor
SHARE_OF_LOOP = 0.9  # busy: then part of a call's time is its wait for a turn in the loop
SHARE_OF_SLOTS = 0.8  # in use on average
SHARE_OF_REPEATS = 0.2  # repeats, as a share of the calls


# seconds for which calls waited because the service throttled; was down; could take no more calls;
# or because limits that runs share were used up
WAITS = ("throttled_s", "down_s", "adapted_s", "shared_s")


@dataclass(frozen=True)
class TaskLoad:
    """The tasks' use of time, by their last messages; a lost message costs 0.25 s.

    Attributes:
        waited: By each of WAITS, its seconds by lookup, mean over the tasks.
        loop_busy: CPU time of the event loops as a share of their time, for tasks that called; None
            if no task has reported.
    """

    waited: Mapping[str, Mapping[str, float]]
    loop_busy: float | None

    @classmethod
    def of(cls, tasks: Iterable[Mapping[str, Any]]) -> Self:
        """Combine the last progress messages of all tasks; tasks without calls do not count.

        A partition may have had two tasks: a task for the prefetch and a task for its rows.
        """
        message = [task for task in tasks if task["calls"]]
        partitions = len({task["partition"] for task in message})
        seconds = sum(task["seconds"] for task in message)

        def mean(cause: str) -> dict[str, float]:
            names = {name for task in message for name in task[cause]}
            return {
                name: sum(task[cause].get(name, 0.0) for task in message) / partitions
                for name in names
            }

        busy = sum(task["loop_s"] for task in message) / seconds if seconds else None
        return cls({cause: mean(cause) for cause in WAITS}, busy)


def with_limits(figures: DayMetrics, load: TaskLoad) -> DayMetrics:
    lookups = []
    for lookup in figures.lookups:
        waited: dict[str, Any] = {
            cause: round(load.waited[cause].get(lookup.name, 0.0), 3) for cause in WAITS
        }
        known = replace(lookup, **waited)
        lookups.append(replace(known, limited_by=limited_by(known, load.loop_busy)))
    busy = None if load.loop_busy is None else round(load.loop_busy, 3)
    return replace(figures, lookups=tuple(lookups), loop_busy=busy)


def limited_by(lookup: LookupMetrics, loop_busy: float | None) -> str:
    """Return what to change first to make this lookup faster; empty if nothing was called.

    It is the first of these that holds:

    - outage: the service was down.
    - rate: the service throttled, or a declared rate was used up.
    - shared limits: calls of other runs, or a budget, left no room.
    - cpu: the executors' Python was busy.
    - adaptive: the service took no more calls at once.
    - service: all slots were in use, and at least a fifth of the calls were repeats.
    - concurrency: all slots were in use; more slots help if the service takes more calls.
    - spark: slots were empty, because rows came, or were taken, more slowly than calls.
    """
    if not lookup.calls or lookup.wall_s <= 0:
        return ""
    all_in_use = lookup.slots_in_use >= SHARE_OF_SLOTS
    gate = max(SHARE_OF_GATE * lookup.wall_s, SHORTEST_GATE)
    causes = {
        "outage": lookup.down_s >= gate,
        "rate": lookup.throttled_s >= gate,
        "shared limits": lookup.shared_s >= gate,
        "cpu": loop_busy is not None and loop_busy >= SHARE_OF_LOOP,
        "adaptive": lookup.adapted_s >= SHARE_OF_WAITS * lookup.wall_s,
        "service": all_in_use and lookup.retried >= SHARE_OF_REPEATS * lookup.calls,
        "concurrency": all_in_use,
    }
    return next((cause for cause, holds in causes.items() if holds), "spark")
