"""Prepares the keys of a run: looks them up in the ledger, and has repeated keys called.

A key that occurs in several rows is prefetched once for the whole run; a key that occurs in a
single row is called by that row, or prefetched with the others if they are few.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from jobs.declare.chains import levels, places_read
from jobs.declare.lookup import Lookup
from jobs.declare.vendor_jobs import JobLookup, places_of_jobs
from jobs.errors import ServiceDown
from jobs.input.day import InputDay
from jobs.ledger.job_files import JobFiles
from jobs.ledger.plan import CallCap, LedgerPlan
from jobs.ledger.stored_request import write_request
from jobs.run.engines.spark_failures import task_error
from jobs.run.keys.day_keys import SparkRows, find_keys
from jobs.run.keys.driver_keys import KeyRows
from jobs.run.keys.hits import Hits, find_hits, with_index, with_own_answers
from jobs.run.keys.kept_keys import keep_keys, release_prefetched
from jobs.run.keys.key_prefetch import KeysToPrefetch, Prefetch
from jobs.run.keys.key_texts import ROWS, TASK, TEXT
from jobs.run.keys.registration import LedgerContent, look_at_ledger, registered
from jobs.run.keys.vendor_jobs.item_limit import ItemLimit
from jobs.run.keys.vendor_jobs.waits import WaitingDay, Waits, waited
from jobs.run.plan.caps import divided_by_need
from jobs.run.rows.local_rows import LocalRows, engine_for
from jobs.storage.removal import remove_folder
from jobs.task.output_files import TaskResult
from jobs.task.plan import PartitionPlan
from jobs.wording import counted, listed

FEW_KEYS = 10_000  # of a lookup
ALL_BY_ROW = "row"  # in the record: no key was called before the rows
NO_KEYS: Mapping[str, Sequence[str]] = {}
NO_TEXTS = pa.array([], pa.string())


@dataclass(frozen=True)
class PreparedKeys:
    """What a run knows of its keys when its rows begin.

    Attributes:
        plan: For the tasks of the rows.
        asked_by: How the keys of each lookup were called, for the record.
        all_known: Whether no row needs a call.
        given_up: Sentences: vendors that were down, and damaged files of ledgers, without which the
            run continued.
    """

    plan: PartitionPlan
    asked_by: tuple[str, ...]
    all_known: bool
    given_up: tuple[str, ...]


@dataclass(frozen=True)
class _Known:
    """The driver's knowledge about the keys of a lookup before any call.

    Attributes:
        ledger: With the index of its known answers.
        hits: None: no search was needed.
        first: The keys to prefetch; None: all keys are called by row.
        distinct: Whether no two rows have the same key.
    """

    ledger: LedgerPlan | None
    hits: Hits | None = None
    first: KeysToPrefetch | None = None
    distinct: bool = False

    @property
    def leaves_none(self) -> bool:
        """Whether each key is known once the prefetched keys have been called."""
        first = 0 if self.first is None else self.first.keys.num_rows
        return self.hits is not None and self.hits.missing.num_rows == first


@contextmanager
def prepare_keys(
    prepared: DataFrame | LocalRows,
    plan: PartitionPlan,
    *,
    scratch: str,
    day: InputDay | None = None,
    here: bool = False,
    asking: Callable[[int | None], object] = lambda _: None,
    sent: list[TaskResult] | None = None,
    only: Mapping[str, Sequence[str]] = NO_KEYS,
    draw: Callable[[int], int] = secrets.randbits,
    waits: Waits | None = None,
) -> Iterator[PreparedKeys]:
    """Look up the keys of a run, call for repeated keys, and yield the plan for the rows.

    The exit, also by an error, removes the run's files.

    Args:
        prepared: The rows.
        plan: Their plan.
        scratch: A folder that every task sees and that does not exist yet; removed at the end.
        day: The files, if `prepared` reads them directly.
        here: Call in this process, if `is_for_driver` allows it.
        asking: Called with the number of keys before they are called, and with None afterwards.
        sent: Receives what tasks counted.
        only: As in RunOptions.
        draw: Draws random bits.
        waits: The day of the run, which may wait for jobs of vendors.

    Raises:
        RunWaits: Jobs are open.
        LedgerError: The ledger cannot be used; the calls' errors are raised too, and the ledger
            then has their answers.
    """
    with ExitStack() as stack:
        stack.callback(remove_folder, scratch)
        stack.enter_context(registered([ledger for ledger in plan.ledgers if ledger is not None]))
        plan = plan if waits is None else _with_answers_held(plan, waits.day)
        contents = [_open_ledger(plan, place) for place in range(len(plan.lookups))]
        prefetch = Prefetch(
            engine=engine_for(prepared), here=here, seed=draw(31), scratch=scratch, sent=sent,
            # a run that sees another run at any ledger keeps no key of any lookup to itself, so
            # that no two runs ever wait for each other's keys
            alone=not any(content.others for content in contents),
        )  # fmt: skip
        keys = _Preparation(
            prepared, plan, day, contents, prefetch, only, waits, asking=asking, stack=stack
        ).run()
        yield keys


@dataclass
class _Preparation:
    """Looks up the keys of a run, and has keys called before the rows, in stages of lookups.

    The fields are the arguments of `prepare_keys`, and:

    Attributes:
        contents: What the ledger of each lookup has besides this run.
        prefetch: Calls keys before the rows.
        stack: Drops the keys at the end of the run.
        known: What is known of the keys of each lookup so far.
        given_up: As in PreparedKeys.
    """

    prepared: DataFrame | LocalRows
    plan: PartitionPlan
    day: InputDay | None
    contents: Sequence[LedgerContent]
    prefetch: Prefetch
    only: Mapping[str, Sequence[str]]
    waits: Waits | None
    asking: Callable[[int | None], object]
    stack: ExitStack
    known: dict[int, _Known] = field(default_factory=dict)
    given_up: list[str] = field(default_factory=list)

    def run(self) -> PreparedKeys:
        stages = _stages(self.plan)
        for place in chain.from_iterable(stages[1:]) if not self.prefetch.alone else ():
            # such a run keeps no key, so that another run need not wait for its later stages
            _keep_keys(self.plan, place, NO_TEXTS)
        plan = self.plan
        for number, places in enumerate(stages):
            plan = self._ask(plan, places, are_read=number + 1 < len(stages))
        in_order = [self.known[place] for place in range(len(plan.lookups))]
        asked_by = tuple(
            ALL_BY_ROW if keys.first is None else keys.first.message for keys in in_order
        )
        all_known = all(keys.leaves_none for keys in in_order)
        return PreparedKeys(plan, asked_by, all_known, tuple(self.given_up))

    def _ask(self, plan: PartitionPlan, places: Sequence[int], *, are_read: bool) -> PartitionPlan:
        """Return the plan with the answers of a stage. are_read: whether other lookups read its
        answers, so that each key is called first.
        """
        limit = ItemLimit.of(plan.cap)
        stage = {place: self._look_up(plan, place, limit, are_read=are_read) for place in places}
        self.known |= stage
        self.given_up += [
            _damage_sentence(plan.lookups[place].name, keys.hits.skipped)
            for place, keys in stage.items()
            if keys.hits is not None and keys.hits.skipped
        ]
        if self.waits is not None:
            self.waits.raise_if_any(None if plan.cap is None else limit.left)
        plan = _with_known_keys(replace(plan, cap=limit.rest()), self.known, stage)
        first = {place: keys.first for place, keys in stage.items() if keys.first is not None}
        if first:
            self.asking(sum(asked.keys.num_rows for asked in first.values()))
            for group in _groups(first, plan):
                plan = self._prefetch_group(plan, group, certain=are_read)
            self.asking(None)
        return plan

    def _look_up(
        self, plan: PartitionPlan, place: int, limit: ItemLimit, *, are_read: bool
    ) -> _Known:
        """Find what the ledger knows of the keys, and which keys are called before the rows; show
        other runs which keys this run keeps to itself.
        """
        lookup, ledger, seed = plan.lookups[place], plan.ledgers[place], self.prefetch.seed
        if isinstance(lookup, JobLookup) and plan.may_call:
            assert self.waits is not None
            rows = find_keys(self.prepared, plan, place, self.day)
            settled = _settle(plan, place, rows, self.waits, seed=seed, limit=limit)
            self.stack.callback(settled.keys.drop)
            return _Known(
                ledger and with_index(ledger, settled.answers), settled.without_responses()
            )
        alone, chosen = self.prefetch.alone, self.only.get(lookup.name, ())
        shares = plan.may_call and lookup.cache is not None
        # no answer can be known, so only repeats matter
        nothing_known = alone and not (
            plan.cap or self.contents[place].has_answers or chosen or are_read
        )
        if nothing_known and not shares:
            _keep_keys(plan, place, NO_TEXTS)
            return _Known(ledger)
        rows = find_keys(self.prepared, plan, place, self.day)
        if nothing_known and not rows.repeats:
            if ledger is not None:
                keep_keys(ledger, rows.texts(hidden=ledger.hidden))
            return _Known(ledger, distinct=True)
        hits = find_hits(rows, lookup, ledger, seed=seed, are_read=are_read)
        self.stack.callback(hits.keys.drop)
        keys, by_row = hits.missing, hits.missing.slice(0, 0)
        if not shares:
            keys = by_row
        elif not are_read:
            keys, by_row = _divide_keys(hits, alone=alone)
        if chosen:
            is_chosen = pc.is_in(hits.missing[TEXT], value_set=pa.array(chosen, pa.string()))
            keys = hits.missing.filter(is_chosen)
        indexed = ledger and with_index(ledger, hits.answers)
        _keep_keys(plan, place, by_row[TEXT], keys[TEXT] if alone else None)
        if not keys.num_rows:
            return _Known(indexed, hits.without_responses())
        return _Known(indexed, hits, KeysToPrefetch(replace(hits, plan=indexed), keys))

    def _prefetch_group(
        self, plan: PartitionPlan, group: Mapping[int, KeysToPrefetch], *, certain: bool
    ) -> PartitionPlan:
        """Return the plan with the answers of a group, or, if its vendor is given up, with those
        from before the outage.
        """
        try:
            plan = self.prefetch.call(plan, group, certain=certain)
        except Exception as error:
            down = task_error(error)
            if not isinstance(down, ServiceDown) or not _may_spill(plan, group):
                raise
            self.given_up.append(_outage_sentence(plan, group, str(down)))
            plan = _without_vendor(plan, group)
        for place in group if self.prefetch.alone else ():
            if (ledger := self.plan.ledgers[place]) is not None:
                release_prefetched(ledger)
        return plan


def settle_jobs(
    prepared: DataFrame | LocalRows,
    plan: PartitionPlan,
    day: InputDay,
    waits: Waits,
    *,
    draw: Callable[[int], int] = secrets.randbits,
) -> float | None:
    """Have the jobs of the first level submitted and read, without any row.

    Returns what is left of the cap, if jobs used some of it. Raises as `prepare_keys` does.
    """
    limit, seed = ItemLimit.of(plan.cap), draw(31)
    with ExitStack() as stack:
        for place in places_of_jobs(plan.lookups):
            ledger = plan.ledgers[place]
            assert ledger is not None
            stack.enter_context(registered([ledger]))
            _open_ledger(plan, place)
            rows = find_keys(prepared, plan, place, day)
            _settle(plan, place, rows, waits, seed=seed, limit=limit)
        waits.raise_if_any(None if plan.cap is None else limit.left)
    return None if limit.rest() is plan.cap else limit.left


def _settle(
    plan: PartitionPlan,
    place: int,
    rows: KeyRows | SparkRows,
    waits: Waits,
    *,
    seed: int,
    limit: ItemLimit,
) -> Hits:
    """Return the keys of a lookup with what its jobs answered."""
    lookup, ledger = plan.lookups[place], plan.ledgers[place]
    assert isinstance(lookup, JobLookup)
    assert ledger is not None
    from jobs.run.keys.vendor_jobs.job_step import settle_by_jobs  # aiohttp

    return settle_by_jobs(
        rows, lookup, ledger, waits, seed=seed, limit=limit, place=place, budgets=plan.budgets
    )


def _with_answers_held(
    plan: PartitionPlan, day: WaitingDay, clock: Callable[[], float] = time.time
) -> PartitionPlan:
    """Return the plan in which answers stay valid to the end of the day if they were valid when it
    began to wait. A new call would be paid, and its answer could change the keys of jobs. Lookups
    with jobs extend their times to live themselves (KeyRecords).
    """
    begun = [
        since
        for lookup, ledger in zip(plan.lookups, plan.ledgers, strict=True)
        if isinstance(lookup, JobLookup) and ledger is not None
        if (since := JobFiles(ledger.open_folder()).waiting(day.enrichment, day.day).get("since"))
    ]
    if not begun:
        return plan
    since_then = waited(min(begun), clock())

    def held(lookup: Lookup, ledger: LedgerPlan | None) -> LedgerPlan | None:
        if ledger is None or isinstance(lookup, JobLookup):
            return ledger
        return replace(ledger, ttl=replace(ledger.ttl.longer(since_then), error=ledger.ttl.error))

    return replace(plan, ledgers=tuple(map(held, plan.lookups, plan.ledgers)))


def _stages(plan: PartitionPlan) -> list[list[int]]:
    """Return the places of the lookups that are asked together, in order.

    Lookups that others read are asked by level, before the rows; the rest is the last stage.
    """
    read, of_level = places_read(plan.lookups), levels(plan.lookups)
    last = max(of_level)
    stages: list[list[int]] = [[] for _ in range(last + 1)]
    for place, level in enumerate(of_level):
        stages[level if place in read else last].append(place)
    return stages


def _groups(
    first: Mapping[int, KeysToPrefetch], plan: PartitionPlan
) -> Iterator[dict[int, KeysToPrefetch]]:
    """Yield the lookups that are asked side by side. A vendor that may be given up is asked alone,
    so that an outage is known to be its own.
    """
    alone = [place for place in first if plan.lookups[place].spills_outage]
    together = {place: asked for place, asked in first.items() if place not in alone}
    yield from [together] if together else []
    for place in alone:
        yield {place: first[place]}


def _may_spill(plan: PartitionPlan, group: Mapping[int, KeysToPrefetch]) -> bool:
    """Return whether the run may go on without a group whose service is down. A cap stops it: what
    the failed stage used of it is unknown.
    """
    return plan.cap is None and all(plan.lookups[place].spills_outage for place in group)


def _without_vendor(plan: PartitionPlan, group: Mapping[int, KeysToPrefetch]) -> PartitionPlan:
    """Return the plan with the answers from before the outage; no other key is called."""
    ledgers = list(plan.ledgers)
    for place, first in group.items():
        hits = with_own_answers(first.hits)
        assert hits.plan is not None
        ledgers[place] = with_index(hits.plan, hits.answers)
    return replace(plan, ledgers=tuple(ledgers), given_up=(*plan.given_up, *group))


def _outage_sentence(plan: PartitionPlan, group: Mapping[int, KeysToPrefetch], why: str) -> str:
    (name,) = (plan.lookups[place].name for place in group)
    return f"lookup {name}: {why} The next vendor was asked instead; a replay asks it again."


def _damage_sentence(lookup: str, skipped: Sequence[str]) -> str:
    files = sorted({*skipped})
    return (
        f"lookup {lookup}: {counted(len(files), 'damaged file')} of its ledger cannot be read, and "
        f"keys without another answer were asked again: {listed(files)}. Restore what you have a "
        "copy of, and remove the rest."
    )


def _with_known_keys(
    plan: PartitionPlan, known: Mapping[int, _Known], stage: Mapping[int, _Known]
) -> PartitionPlan:
    """Return the plan with what is known so far. stage: what the last stage added."""
    places = range(len(plan.lookups))
    return replace(
        plan,
        ledgers=tuple(
            stage[place].ledger if place in stage else plan.ledgers[place] for place in places
        ),
        distinct_keys=tuple(place in known and known[place].distinct for place in places),
        cap=_divide_cap(plan, stage),
    )


def _divide_keys(hits: Hits, *, alone: bool) -> tuple[pa.Table, pa.Table]:
    """Return the missing keys to prefetch, and those that their rows call for.

    Few keys go together: two passes of calls would each end with some calls in flight, and wait for
    the slowest.
    """
    repeated, none = hits.repeated, hits.missing.slice(0, 0)
    if not alone or (repeated.num_rows and hits.missing.num_rows <= FEW_KEYS):
        return hits.missing, none
    return repeated, hits.missing.filter(pc.equal(hits.missing[ROWS], 1))


def _open_ledger(plan: PartitionPlan, place: int) -> LedgerContent:
    """Return what the lookup's ledger has besides this run."""
    ledger = plan.ledgers[place]
    if ledger is None:
        return LedgerContent((), has_answers=False)
    content = look_at_ledger(ledger)
    write_request(ledger.open_folder(), plan.lookups[place])
    return content


def _keep_keys(plan: PartitionPlan, place: int, *texts: pa.ChunkedArray | None) -> None:
    ledger = plan.ledgers[place]
    if ledger is not None:
        keep_keys(ledger, *texts)


def _divide_cap(plan: PartitionPlan, stage: Mapping[int, _Known]) -> CallCap | None:
    """Return the cap, divided over the tasks by the calls that they need."""
    if plan.cap is None or any(lookup.cache is None for lookup in plan.lookups):
        return plan.cap
    needs = np.zeros(len(plan.cap.parts))
    for place, keys in stage.items():
        assert keys.hits is not None
        called = keys.hits.missing
        if not plan.may_call:  # a replay of chosen letters, which are prefetched
            called = called.slice(0, 0) if keys.first is None else keys.first.keys
        tasks = called[TASK].to_numpy()
        needs += plan.cap.weights[place] * np.bincount(tasks, minlength=len(needs))[: len(needs)]
    return divided_by_need(plan.cap, needs.tolist())
