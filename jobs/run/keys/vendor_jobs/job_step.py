"""Has the keys of a lookup answered by jobs of its vendor, in the driver, before any row.

A run looks at the open jobs of the lookup, then submits the keys of the day that neither an answer
nor an open job covers. If jobs stay open, the day waits: the run ends, and the next run continues.
"""

import asyncio
import datetime as dt
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from jobs.arrow_values import one_chunk
from jobs.clients.vendor_session import InDoubt, NotNow, NotSubmitted, VendorSession
from jobs.declare.answers.answer_json import dump
from jobs.declare.ledger_settings import Ttl
from jobs.declare.limits.budgets import Budget
from jobs.declare.vendor_jobs import Item, JobLookup
from jobs.errors import BudgetExhausted, DeclarationError, LedgerError
from jobs.ledger.answers import ANSWERS, SCHEMA
from jobs.ledger.job_files import KEY, NEVER_SENT, Intent, Job, JobFiles
from jobs.ledger.plan import ROUNDING, CallCap, LedgerPlan
from jobs.ledger.selection import Search
from jobs.ledger.working_folders import BEAT, RUNS, by_run
from jobs.limits.store import StoreLost
from jobs.run.keys.claims import DEAD_AFTER
from jobs.run.keys.day_keys import KeySource
from jobs.run.keys.driver_keys import DriverKeys
from jobs.run.keys.hits import Hits, open_folder
from jobs.run.keys.key_texts import TEXT
from jobs.run.keys.vendor_jobs.job_budgets import Free, JobBudgets
from jobs.run.keys.vendor_jobs.job_ends import describe
from jobs.run.keys.vendor_jobs.job_items import JobItems
from jobs.run.keys.vendor_jobs.job_watch import GIVEN_UP, JobWatch, Look
from jobs.run.keys.vendor_jobs.waiting_days import waiting_sentence
from jobs.run.keys.vendor_jobs.waits import Waits
from jobs.schema.columns import NOT_REPEATED
from jobs.wording import counted

CLOCKS_DIFFER = 300.0  # s, by which the clock of the ledger's files may be behind
TOKEN_BYTES = 8
COLUMN = "part_"  # prefix of an intent's columns with the values of a key


@dataclass
class ItemLimit:
    """What the lookups of a run may still spend on items of jobs.

    Attributes:
        cap: Of the run; None without a cap.
        left: Of the cap, in its units.
    """

    cap: CallCap | None = None
    left: float = 0.0

    @classmethod
    def of(cls, cap: CallCap | None) -> Self:
        return cls(cap, 0.0 if cap is None else sum(cap.parts))

    def rest(self) -> CallCap | None:
        """Returns what is left for calls, as jobs that are lost count too."""
        whole = 0.0 if self.cap is None else sum(self.cap.parts)
        if self.cap is None or self.left >= whole:
            return self.cap
        return replace(self.cap, parts=tuple(part * self.left / whole for part in self.cap.parts))

    def take(self, items: int, place: int) -> int:
        """Returns how many of these items of a lookup may be submitted, and spends them."""
        weight = 0.0 if self.cap is None else self.cap.weights[place]
        if not weight:
            return items
        items = min(items, int(self.left / weight + ROUNDING))
        self.left = max(0.0, self.left - items * weight)
        return items

    def give_back(self, items: int, place: int) -> None:
        """Counts these items of a lookup, which the vendor did not take, as not spent."""
        self.left += 0.0 if self.cap is None else items * self.cap.weights[place]


def settle_by_jobs(
    source: KeySource,
    lookup: JobLookup,
    plan: LedgerPlan,
    waits: Waits,
    *,
    seed: int,
    limit: ItemLimit | None = None,
    place: int = 0,
    budgets: Sequence[tuple[str, Budget]] = (),
    clock: Callable[[], float] = time.time,
) -> Hits:
    """Returns the keys of a day with the outcome of each; if jobs stay open, `waits` says so.

    Args:
        source: The keys.
        lookup: Their lookup.
        plan: Its ledger.
        waits: Gets a sentence if keys of the day have no outcome yet.
        seed: As in `find_hits`.
        limit: What the run may still spend on items.
        place: The place of the lookup in the plan of the run.
        budgets: Of the enrichment, with its name.
        clock: Seconds since the epoch.

    Raises:
        RunStopped: The vendor denies access, or the cap allows no item.
        DeclarationError: The vendor refused a job.
        TidegateError: The class is wrong, or the ledger fails.
    """
    keys = source.distinct(hidden=plan.hidden, seed=seed)
    hits = Hits(plan, source.names, keys, SCHEMA.empty_table(), lookup)
    step = _JobStep(
        hits, lookup, waits, limit or ItemLimit(), place=place,
        budgets=JobBudgets.of(lookup, budgets), clock=clock,
    )  # fmt: skip
    return asyncio.run(step.run())


class _JobStep:
    def __init__(
        self,
        hits: Hits,
        lookup: JobLookup,
        waits: Waits,
        limit: ItemLimit,
        *,
        place: int,
        budgets: JobBudgets,
        clock: Callable[[], float],
        token: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        assert hits.plan is not None
        self._hits, self._lookup, self._plan, self._waits = hits, lookup, hits.plan, waits
        self._limit, self._place, self._budgets = limit, place, budgets
        self._free = Free()
        self._clock, self._token = clock, token
        self._files = JobFiles(open_folder(hits.plan))
        self._texts: pa.Array = hits.keys.wanted[TEXT].combine_chunks()
        self._search = Search(self._files.folder, self._texts)
        self._intents: dict[str, Intent] = {}
        self._of_day: dict[str, bool] = {}  # by token: whether the job has a key of the day
        day = waits.day
        self._since = float(
            self._files.waiting(day.enrichment, day.day).get("since", self._clock())
        )
        self._notes: list[str] = []
        self._lost: set[str] = set()  # tokens of jobs that may have been submitted, for ever

    async def run(self) -> Hits:
        """Stores the results of jobs that are over, and submits the keys that still need a job; the
        day waits while jobs stay open.
        """
        self._waits.settled.append(self._files)
        async with VendorSession(self._lookup, hidden=self._plan.hidden) as vendor:
            watch = JobWatch(vendor, self._files, self._lookup, self._clock)
            look = await self._look(watch)
            while look.taken:  # until a look stores no result
                look = await self._look(watch)
            records = await self._submit_rest(watch)
            open_jobs = [job for job in self._open_jobs() if job.token not in self._lost]
            if not open_jobs and not len(self._unsent(records)):
                self._waits.done[self._lookup.name] = self._own_jobs()
                return replace(self._hits, answers=records)
        self._wait(look, open_jobs, records)
        return self._hits

    async def _look(self, watch: JobWatch) -> Look:
        self._notes.clear()
        self._lost.clear()  # this look may find them
        of_day, others = list[tuple[Job, Intent]](), list[tuple[Job, Intent]]()
        for job, intent in await self._accepted(watch):
            (of_day if self._has_keys(job) else others).append((job, intent))
        return await watch.look(of_day, others)

    # -- jobs --------------------------------------------------------------------------------------
    def _jobs(self) -> list[Job]:
        return self._files.jobs(since=self._since - CLOCKS_DIFFER)

    def _intent(self, job: Job) -> Intent:
        if job.token not in self._intents:
            self._intents[job.token] = self._files.intent(job.token)
        return self._intents[job.token]

    def _has_keys(self, job: Job) -> bool:
        """Returns whether the job has keys of the day."""
        if job.token not in self._of_day:
            found = pc.is_in(self._intent(job).keys[KEY], value_set=self._texts)
            self._of_day[job.token] = bool(pc.any(found).as_py())
        return self._of_day[job.token]

    def _open_jobs(self) -> list[Job]:
        return [job for job in self._jobs() if job.is_open and self._has_keys(job)]

    async def _accepted(self, watch: JobWatch) -> list[tuple[Job, Intent]]:
        """Returns the open jobs that the vendor has accepted. Those with keys of the day whose
        submission was interrupted are recovered first, where the vendor can tell.
        """
        found, listed = [], [job for job in self._jobs() if job.is_open]
        alive = self._runs_alive()  # listed after the jobs, so that it has the run of each intent
        for job in listed:
            if not job.id and not self._has_keys(job):  # in doubt, for the runs that need its keys
                continue
            intent = self._intent(job)
            accepted: Job | None = job
            if not job.id:
                if self._is_of_another(intent, alive):
                    continue
                # read again: its run may have learned its id, and ended, since the jobs were listed
                accepted = await self._recovered(watch, self._files.job(job.token), intent)
            if accepted is not None:
                found.append((accepted, intent))
        return found

    def _runs_alive(self) -> set[str]:
        """Returns the runs, this one included, that gave signs of life of late."""
        folder = self._files.folder
        runs = by_run(folder, folder.files(RUNS))
        now = runs.get(self._plan.run_id, {}).get(BEAT)

        def is_recent(changed: dt.datetime | None) -> bool:
            if now is None or changed is None:
                return True
            return abs((now - changed).total_seconds()) < DEAD_AFTER

        return {run for run, names in runs.items() if BEAT in names and is_recent(names[BEAT])}

    async def _recovered(self, watch: JobWatch, job: Job, intent: Intent) -> Job | None:
        """Returns the job with the vendor's id; None if the vendor has no such job, or cannot tell.

        After give_up a job that the vendor cannot tell of counts as lost. No token is submitted
        then, because vendors recognize tokens for a limited time.
        """
        if job.id or job.done:
            return None if job.done else job
        is_late = self._clock() >= job.until(intent, self._lookup.give_up)
        match self._lookup.recovery:
            case "list":
                try:
                    found = await watch.find(job, intent)
                except NotNow as error:
                    self._notes.append(f"job {job.token}: {error}")
                    if is_late:
                        self._lost.add(job.token)
                    return None
                if found is None:
                    await self._never_sent(watch, job, intent, "the vendor has no such job")
                return found
            case "token" if not is_late:
                return await self._submit(watch, job, intent, in_doubt=True)
            case _:
                self._lost.add(job.token)
        return None

    async def _never_sent(self, watch: JobWatch, job: Job, intent: Intent, why: str) -> None:
        await watch.finish(job, self._without_bill(job, intent, why))

    def _without_bill(self, job: Job, intent: Intent, why: str) -> dict[str, Any]:
        facts = describe(NEVER_SENT, job, intent, self._clock())
        return {**facts, "why": why, "billed": 0}

    async def _submit(
        self, watch: JobWatch, job: Job, intent: Intent, *, in_doubt: bool = False
    ) -> Job | None:
        """Submits a job, once. Returns it as the vendor knows it; None if it may not.

        Raises DeclarationError if the vendor refuses it, AccessRefused if it denies access.
        """
        items = self._items(intent)
        if items is None:
            self._notes.append(
                f"job {job.token} has personal keys of {intent.day} of {intent.enrichment}; "
                "run that day again"
            )
            return None
        if not await self._may_go(watch, job, intent, in_doubt=in_doubt):
            return None
        try:
            found = await watch.vendor.submit(items, job.token)
        except InDoubt as error:
            self._notes.append(f"the submission of job {job.token} was interrupted: {error}")
            if self._lookup.recovery == "none":
                self._lost.add(job.token)
            return None
        except NotSubmitted as error:
            return await self._refused(watch, job, intent, error, in_doubt=in_doubt)
        return watch.accepted(job, found)

    async def _may_go(self, watch: JobWatch, job: Job, intent: Intent, *, in_doubt: bool) -> bool:
        """Returns whether a job is open and the budgets allow it; they then count its most."""
        try:
            short, is_new = await self._budgets.spend(job.token, intent)
        except StoreLost as lost:
            if not in_doubt:
                await self._never_sent(watch, job, intent, str(lost))
            raise
        if short and not in_doubt:  # another run has just spent it
            await self._never_sent(watch, job, intent, f"{short} allows no more")
        if short:
            self._notes.append(f"{short} allows no more now")
            return False
        # another run may have taken this run for dead, or a person has let go of the job
        is_open = self._files.job(job.token).is_open
        if is_new and not is_open:
            await self._budgets.take_back(job.token)
        return is_open

    async def _refused(
        self, watch: JobWatch, job: Job, intent: Intent, error: NotSubmitted, *, in_doubt: bool
    ) -> Job | None:
        """Lets go of a job that the vendor refused; a job in doubt may have been taken earlier.

        Returns the job if the vendor took it all the same, before it refused a later request.

        Raises DeclarationError if the request is wrong, AccessRefused if the vendor denies access.
        """
        if error.requests > 1 and self._lookup.recovery == "list":
            try:
                found = await watch.vendor.find(job.token)
            except NotNow as unclear:
                self._notes.append(f"job {job.token} is in doubt: {error}; {unclear}")
                return None
            if found is not None:
                return watch.accepted(job, found)
        if not in_doubt:
            await self._never_sent(watch, job, intent, str(error))
        if error.about_us is not None:
            raise error.about_us from error
        if in_doubt:
            self._notes.append(f"job {job.token} is still in doubt: {error}")
        elif error.later:
            self._notes.append(f"{self._lookup.service_name} takes no job now: {error}")
        else:
            raise DeclarationError(
                f"lookup {self._lookup.name}: {self._lookup.service_name} refused a job of "
                f"{counted(intent.keys.num_rows, 'item')}: {error}. Nothing of it was billed; "
                "correct the class, and run again."
            ) from error
        return None

    def _items(self, intent: Intent) -> Sequence[Item] | None:
        """Returns the items of a job in order; None if this run does not know their keys."""
        keys = intent.keys
        if keys.num_columns == 1:  # personal keys
            known = self._values(keys[KEY])
            places = pc.index_in(keys[KEY], value_set=one_chunk(known[TEXT]))
            if places.null_count:
                return None
            keys = known.select([TEXT, *self._hits.names]).take(places)
        return JobItems(keys, tuple(self._lookup.keys))

    def _own_jobs(self) -> list[Mapping[str, Any]]:
        """Returns the facts of the jobs that the day submitted since it waits."""
        day = (self._waits.day.enrichment, self._waits.day.day)
        return [
            job.done
            for job in self._jobs()
            if job.done
            and (job.done["enrichment"], job.done["day"]) == day
            and job.done["at"] >= self._since
        ]

    # -- keys --------------------------------------------------------------------------------------
    def _records(self) -> pa.Table:
        """Returns the record of each key that needs no job, as rows find it.

        What came since the day waits holds to its end, whatever its age.
        """
        now = self._clock()
        self._search.update(round(now * 1e6))
        declared, waited = self._plan.ttl, dt.timedelta(seconds=max(0.0, now - self._since))
        waited += dt.timedelta(milliseconds=1)  # an answer as old as a limit is too old
        at_least = {
            name: None if value is None else max(value, waited)
            for name, value in vars(declared).items()
        }
        ttl = Ttl(**at_least)
        found = self._search.selected(now_us=round(now * 1e6), ttl=ttl).answers
        is_answer = pc.is_in(found["outcome"], value_set=pa.array(ANSWERS))
        since = pa.scalar(round(self._since * 1e6), pa.timestamp("us", "UTC"))
        is_older = pc.less(found["answered_at"], since)
        is_final = pc.equal(found["outcome"], "error")
        is_spent = pc.is_in(found["key"], value_set=self._sent_enough())
        settles = pc.or_(pc.or_(is_answer, is_older), pc.or_(is_final, is_spent))
        settles = pc.and_(settles, pc.not_equal(found["outcome"], "asked"))
        return found if pc.all(settles).as_py() else found.filter(settles)  # which copies it

    def _sent_enough(self) -> pa.Array:
        """Returns the keys that were sent as often as retries allow since the day waits."""
        sent: Counter[str] = Counter()
        for job in self._jobs():
            # a refused job answered nothing, and uses up no retry
            is_try = job.done and ("answered" in job.done or job.done["state"] == GIVEN_UP)
            if is_try and job.done["ended_at"] >= self._since:
                sent.update(self._intent(job).keys[KEY].to_pylist())
        most = self._lookup.retry.retries
        return pa.array([key for key, times in sent.items() if times > most], pa.string())

    def _with_lost(self, records: pa.Table) -> pa.Table:
        """Returns the records, and one for each key of a job that may have been submitted and whose
        id is lost.
        """
        tables = [SCHEMA.empty_table()]
        for token in sorted(self._lost):
            intent = self._intents[token]
            words = dump(
                f"job {token} may have been submitted, and its id is lost; {NOT_REPEATED}, unless "
                f"`tidegate jobs forget {token}` lets go of it"
            )
            keys, count = intent.keys[KEY], intent.keys.num_rows
            at = pa.scalar(round(intent.at * 1e6), pa.timestamp("us", "UTC"))
            columns = [
                keys,
                pa.repeat("asked", count),
                pa.repeat(words.decode(), count),
                pa.repeat(at, count),
                pa.repeat(intent.run_id, count),
            ]
            tables.append(pa.table(columns, schema=SCHEMA))
        lost = pa.concat_tables(tables)
        lost = lost.filter(pc.is_in(lost["key"], value_set=self._texts))
        return pa.concat_tables(
            [
                records,
                lost.filter(pc.invert(pc.is_in(lost["key"], value_set=one_chunk(records["key"])))),
            ]
        )

    def _unsent(self, records: pa.Table) -> pa.Array:
        """Returns the keys without an outcome."""
        known = records["key"].combine_chunks()
        return self._texts.filter(pc.invert(pc.is_in(self._texts, value_set=known)))

    async def _submit_rest(self, watch: JobWatch) -> pa.Table:
        """Submits the keys that neither an answer nor an open job covers, until the vendor takes no
        more. Returns the records of the other keys.
        """
        await self._budgets.settle_ended(self._files)
        while True:
            self._free = await self._budgets.free(self._clock())
            records, job = self._write_intent()
            if job is None:
                return self._with_lost(records)
            # one by one: of a killed run at most one job is in doubt
            intent = self._intents[job.token]
            if await self._submit(watch, job, intent) is None:
                if not self._files.job(job.token).is_open:
                    self._limit.give_back(intent.items, self._place)
                return self._with_lost(records)

    def _write_intent(self) -> tuple[pa.Table, Job | None]:
        """Returns the records, and a new job for keys that neither they nor an open job cover.

        Under the lock open jobs are listed before the ledger is searched: a job that ended in
        between has stored its answers.
        """
        job: Job | None = None
        try:
            with self._files.locked():
                records, job = self._new_job()
        except LedgerError:  # the lock was lost: another run may have submitted the same keys
            if job is not None:
                facts = self._without_bill(job, self._intents[job.token], "the lock was lost")
                self._files.finish(job.token, facts)
            raise
        return records, job

    def _new_job(self) -> tuple[pa.Table, Job | None]:
        """Writes the intent of a job of the keys that no record and no open job covers."""
        # listed before the jobs: a run that has ended by then has stored the ids of its jobs
        alive = self._runs_alive() if self._lookup.recovery == "none" else set()
        all_open = [job for job in self._files.jobs(since=self._clock()) if job.is_open]
        covering = [self._intent(job).keys[KEY] for job in all_open if self._has_keys(job)]
        records = self._records()
        wanted = self._unsent(records)
        for keys in covering:
            wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=one_chunk(keys))))
        busy = sum(self._holds_slot(job, alive) for job in all_open)
        if not len(wanted) or busy >= self._lookup.service.max_concurrency:
            return records, None
        wanted = self._within_cap(wanted, may_wait=bool(covering or self._waits.sentences))
        if not len(wanted):
            return records, None
        job, intent = Job(self._token(TOKEN_BYTES)), self._new_intent(wanted)
        self._begin_waiting()
        self._files.write_intent(job.token, intent)
        self._intents[job.token], self._of_day[job.token] = intent, True
        return records, job

    def _holds_slot(self, job: Job, alive: set[str]) -> bool:
        """Returns whether an open job may run at the vendor; a lost job stays open for its keys.

        alive: Other living runs; needed where nothing recovers a job.
        """
        if job.id:
            return True
        intent = self._intent(job)
        if self._lookup.recovery == "none":
            return self._is_of_another(intent, alive)
        return self._clock() < job.until(intent, self._lookup.give_up)

    def _is_of_another(self, intent: Intent, alive: set[str]) -> bool:
        """Returns whether another living run is about to submit the job."""
        return intent.run_id != self._plan.run_id and intent.run_id in alive

    def _begin_waiting(self) -> None:
        """Stores since when the day waits, before its first intent, for the run after a kill."""
        day = self._waits.day
        if not self._files.waiting(day.enrichment, day.day):
            facts = {"since": self._since, "tokens": [], "unsent": 1}
            self._files.write_waiting(day.enrichment, day.day, facts)

    def _within_cap(self, wanted: pa.Array, *, may_wait: bool) -> pa.Array:
        """Returns as many keys as a job, the budgets and the cap of the run allow.

        may_wait: Jobs are open, so that the run waits anyway, and need not stop.
        """
        subject = self._free.subject
        most = min(len(wanted), self._lookup.max_items)
        affordable = self._budgets.affordable(most, self._free, self._clock())
        within = self._limit.take(affordable, self._place)
        if affordable and self._limit.cap is not None:
            subject = self._limit.cap.message
        if not within and subject and not may_wait:
            raise BudgetExhausted(
                f"lookup {self._lookup.name}: {_keys_are(len(wanted))} not submitted, because"
                f" {subject} allows no more; run the day again to go on."
            )
        if not within and subject:
            self._notes.append(f"{subject} allows no more now")
        return wanted.slice(0, within)

    def _new_intent(self, wanted: pa.Array) -> Intent:
        values = self._values(wanted)
        columns = {KEY: values[TEXT]}
        if not self._plan.hidden:
            columns |= {
                f"{COLUMN}{number}": values[name] for number, name in enumerate(self._hits.names)
            }
        day = self._waits.day
        return Intent(
            pa.table(columns), self._plan.run_id, self._clock(), day.enrichment, day.day,
            budgeted=bool(self._budgets.budgets),
        )  # fmt: skip

    def _values(self, texts: pa.Array | pa.ChunkedArray) -> pa.Table:
        """Returns TEXT and the columns of the key, of those of the keys that are of the day."""
        keys, wanted = self._hits.keys, self._hits.keys.wanted
        lines = wanted.filter(pc.is_in(wanted[TEXT], value_set=one_chunk(texts)))
        if isinstance(keys, DriverKeys):
            found = keys.table(lines)
        else:
            found = keys.frame(lines).select(*self._hits.names, TEXT).toArrow()
            found = found.filter(pc.is_in(found[TEXT], value_set=one_chunk(texts)))
        return found.select([*self._hits.names, TEXT])

    # -- waiting -----------------------------------------------------------------------------------
    def _wait(self, look: Look, open_jobs: Sequence[Job], records: pa.Table) -> None:
        """Records what the day waits for. records: of the keys that need no job."""
        day, unsent = self._waits.day, self._unsent(records)
        for job in open_jobs:
            sent = one_chunk(self._intent(job).keys[KEY])
            unsent = unsent.filter(pc.invert(pc.is_in(unsent, value_set=sent)))
        tokens = [job.token for job in open_jobs]
        facts = {"since": self._since, "tokens": tokens, "unsent": len(unsent)}
        if len(unsent):
            self._notes.append(f"{_keys_are(len(unsent))} not submitted yet")
        self._files.write_waiting(day.enrichment, day.day, facts)
        intents = [(job, self._intent(job)) for job in open_jobs]
        found = Look(done=look.done, notes=[*self._notes, *look.notes])
        for job, intent in intents:
            found.is_open(job, intent, job.until(intent, self._lookup.give_up))
        self._waits.sentences.append(waiting_sentence(self._lookup, found))


def _keys_are(count: int) -> str:
    return f"{counted(count, 'key')} {'is' if count == 1 else 'are'}"
