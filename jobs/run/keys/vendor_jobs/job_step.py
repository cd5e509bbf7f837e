"""Has the keys of a lookup answered by jobs of its vendor, in the driver, before any row.

A run looks at the open jobs of the lookup, then submits the keys of the day that neither an answer
nor an open job covers. If jobs stay open, the day waits: the run ends, and the next run continues.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from jobs.clients.vendor_session import VendorSession
from jobs.declare.limits.budgets import Budget
from jobs.declare.vendor_jobs import JobLookup
from jobs.errors import BudgetExhausted, LedgerError
from jobs.ledger.answers import SCHEMA
from jobs.ledger.job_files import KEY, Intent, Job, JobFiles
from jobs.ledger.plan import LedgerPlan
from jobs.run.keys.day_keys import SparkRows
from jobs.run.keys.driver_keys import KeyRows
from jobs.run.keys.hits import Hits
from jobs.run.keys.key_texts import TEXT
from jobs.run.keys.vendor_jobs.day_jobs import DayJobs
from jobs.run.keys.vendor_jobs.item_limit import ItemLimit
from jobs.run.keys.vendor_jobs.job_budgets import Free, JobBudgets
from jobs.run.keys.vendor_jobs.job_submission import JobSubmission, never_sent
from jobs.run.keys.vendor_jobs.job_watch import JobWatch, Look
from jobs.run.keys.vendor_jobs.key_records import KeyRecords
from jobs.run.keys.vendor_jobs.waiting_days import waiting_sentence
from jobs.run.keys.vendor_jobs.waits import Waits
from jobs.wording import counted

TOKEN_BYTES = 8
COLUMN = "part_"  # prefix of an intent's columns with the values of a key


def settle_by_jobs(
    rows: KeyRows | SparkRows,
    lookup: JobLookup,
    plan: LedgerPlan,
    waits: Waits,
    *,
    seed: int,
    limit: ItemLimit,
    place: int,
    budgets: Sequence[tuple[str, Budget]],
    clock: Callable[[], float] = time.time,
) -> Hits:
    """Return the keys of a day with the outcome of each; if jobs stay open, `waits` says so.

    Args:
        rows: The keys.
        lookup: Their lookup.
        plan: Its ledger.
        waits: Gets a sentence if keys of the day have no outcome yet.
        seed: As in `find_hits`.
        limit: What the run may still spend on items.
        place: The place of the lookup in the plan of the run.
        budgets: Of the enrichment, with its name.
        clock: Seconds since the epoch.

    Raises:
        RunStopped: The vendor denies access, or the cap or a budget allows no item.
        DeclarationError: The vendor refused a job.
        TidegateError: The class is wrong, or the ledger fails.
    """
    keys = rows.distinct(hidden=plan.hidden, seed=seed)
    hits = Hits(plan, rows.names, keys, SCHEMA.empty_table(), lookup)

    async def settle() -> Hits:
        async with VendorSession(lookup, hidden=plan.hidden) as vendor:
            step = _JobStep(
                hits, lookup, plan, waits, vendor,
                limit=limit, place=place,
                budgets=JobBudgets.of(lookup, budgets), clock=clock,
            )  # fmt: skip
            return await step.run()

    return asyncio.run(settle())


class _JobStep:
    def __init__(
        self,
        hits: Hits,
        lookup: JobLookup,
        plan: LedgerPlan,
        waits: Waits,
        vendor: VendorSession,
        *,
        limit: ItemLimit,
        place: int,
        budgets: JobBudgets,
        clock: Callable[[], float],
        token: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._hits, self._lookup, self._plan, self._waits = hits, lookup, plan, waits
        self._limit, self._place, self._budgets, self._clock = limit, place, budgets, clock
        self._free, self._token = Free(), token
        self._files = JobFiles(plan.open_folder())
        self._jobs = DayJobs(
            self._files, lookup, waits.day, run_id=plan.run_id,
            texts=hits.keys.wanted[TEXT].combine_chunks(), clock=clock,
        )  # fmt: skip
        self._keys = KeyRecords(hits, lookup, self._jobs, plan.ttl, clock)
        self._watch = JobWatch(vendor, self._files, lookup, clock)
        self._submission = JobSubmission(
            self._watch, self._jobs, budgets, self._keys.items, limit=limit, place=place
        )
        self._notes = self._submission.notes

    async def run(self) -> Hits:
        """Store the results of jobs that are over, and submit the keys that still need a job; the
        day waits while jobs stay open.
        """
        self._waits.settled.append(self._files)
        look = await self._look()
        while look.taken:  # until a look stores no result
            look = await self._look()
        records = await self._submit_rest()
        awaited = self._jobs.awaited()
        if awaited or len(self._keys.unsent(records, ())):
            self._wait(look, awaited, records)
            return self._hits
        done = self._jobs.done_of_day()
        self._waits.done[self._lookup.name] = [job.done for job in done]
        self._waits.settled_keys[self._lookup.name] = self._jobs.count_settled_keys(done)
        return replace(self._hits, answers=records, skipped=self._files.folder.skipped)

    async def _look(self) -> Look:
        of_day, others = list[tuple[Job, Intent]](), list[tuple[Job, Intent]]()
        for job in await self._submission.open_at_vendor():
            intent = self._jobs.intent(job.token)
            (of_day if self._jobs.has_keys(job) else others).append((job, intent))
        return await self._watch.look(of_day, others)

    # -- submitting --------------------------------------------------------------------------------
    async def _submit_rest(self) -> pa.Table:
        """Submit the keys that neither an answer nor an open job covers, until the vendor takes no
        more. Returns the records of the other keys.
        """
        await self._budgets.settle_ended(self._files)
        while True:
            self._free = await self._budgets.free(self._clock())
            records, job = self._write_intent()
            if job is None:
                return self._keys.with_lost(records)
            # one by one: of a killed run at most one job is in doubt
            if await self._submission.submit(job) is None:
                if not self._files.job(job.token).is_open:
                    items = self._jobs.intent(job.token).items
                    self._limit.give_back(items, self._place)
                return self._keys.with_lost(records)

    def _write_intent(self) -> tuple[pa.Table, Job | None]:
        """Return the records, and a new job for keys that neither they nor an open job cover.

        Under the lock open jobs are listed before the ledger is searched: a job that ended in
        between has stored its answers.
        """
        job: Job | None = None
        try:
            with self._files.locked():
                records, job = self._new_job()
        except LedgerError:  # the lock was lost: another run may have submitted the same keys
            if job is not None:
                facts = never_sent(job, self._jobs, "the lock was lost", self._clock())
                self._files.finish(job.token, facts)
            raise
        return records, job

    def _new_job(self) -> tuple[pa.Table, Job | None]:
        """Write the intent of a job of the keys that no record and no open job covers."""
        # listed before the jobs: a run that has ended by then has stored the ids of its jobs
        alive = self._jobs.runs_alive() if self._lookup.recovery == "none" else set()
        all_open = self._jobs.open()
        covering = [self._jobs.intent(job.token) for job in all_open if self._jobs.has_keys(job)]
        records = self._keys.settled()
        wanted = self._keys.unsent(records, covering)
        busy = sum(self._jobs.holds_slot(job, alive) for job in all_open)
        if not len(wanted) or busy >= self._lookup.service.max_concurrency:
            return records, None
        wanted = self._within_cap(wanted, may_wait=bool(covering or self._waits.sentences))
        if not len(wanted):
            return records, None
        job = Job(self._token(TOKEN_BYTES))
        self._jobs.write_intent(job.token, self._intent(wanted))
        return records, job

    def _within_cap(self, wanted: pa.Array, *, may_wait: bool) -> pa.Array:
        """Return as many keys as a job, the budgets and the cap of the run allow.

        may_wait: The run waits anyway, for jobs of this lookup or another, and need not stop.
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

    def _intent(self, wanted: pa.Array) -> Intent:
        values = self._keys.values(wanted)
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

    # -- waiting -----------------------------------------------------------------------------------
    def _wait(self, look: Look, awaited: Sequence[Job], records: pa.Table) -> None:
        """Record what the day waits for. records: of the keys that need no job."""
        intents = [self._jobs.intent(job.token) for job in awaited]
        unsent = len(self._keys.unsent(records, intents))
        if unsent:
            self._notes += [f"{_keys_are(unsent)} not submitted yet", *look.elsewhere]
        self._jobs.write_waiting([job.token for job in awaited], unsent=unsent)
        found = Look(done=look.done, notes=[*self._notes, *look.notes])
        for job, intent in zip(awaited, intents, strict=True):
            found.add_open(job, intent, job.until(intent, self._lookup.give_up))
        self._waits.sentences.append(waiting_sentence(self._lookup, found))


def _keys_are(count: int) -> str:
    return f"{counted(count, 'key')} {'is' if count == 1 else 'are'}"
