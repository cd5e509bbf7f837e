"""Looks at the open jobs of a lookup, and stores the results of those that are over.

Any run of the lookup may look at any job: the same results stored twice are the same answers, and
done.json is created once.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.clients.vendor_session import NotNow, Reading, Unread, VendorSession
from jobs.declare.answers.answer_json import dump
from jobs.declare.values.prices import reported_units
from jobs.declare.vendor_jobs import Failed, JobLookup, Over, Refused, Running
from jobs.errors import DeclarationError, LedgerError, RunStopped, TidegateError
from jobs.ledger.answers import StoredAnswer, StoredOutcome
from jobs.ledger.job_files import KEY, Intent, Job, JobFiles
from jobs.run.keys.vendor_jobs.job_budgets import settle_job
from jobs.run.keys.vendor_jobs.job_ends import cost, describe, let_go
from jobs.run.keys.vendor_jobs.job_items import item_id
from jobs.wording import counted, one_line

PART_RESULTS = 10_000
PART_BYTES = 8 << 20  # of their answers
GIVEN_UP = "given up"
SUCCESSES = ("completed", "ended", "succeeded")

_log = logging.getLogger("tidegate.jobs")


class ItemsMissing(NotNow):
    """Results lack items, which may be cut or come later. keys: the keys of these items."""

    def __init__(self, keys: Sequence[str], items: int) -> None:
        super().__init__(
            f"{counted(len(keys), 'item')} of {items:,} {'is' if len(keys) == 1 else 'are'} missing"
            " from its results, which the connection may have cut, or which come later"
        )
        self.keys = keys


@dataclass
class Look:
    """What a look at open jobs found.

    Attributes:
        still_open: The jobs that are not over.
        items: The number of their items.
        done: Their finished items, as the vendor reports them.
        since: When the first of them was submitted, in s since the epoch.
        until: When the last of them is given up, in s since the epoch.
        notes: Why jobs could not be looked at, a sentence each.
        taken: The number of jobs whose results were stored.
        elsewhere: Why results of other days' jobs could not be read, a sentence each.
    """

    still_open: list[Job] = field(default_factory=list)
    items: int = 0
    done: int = 0
    since: float = math.inf
    until: float = 0.0
    notes: list[str] = field(default_factory=list)
    taken: int = 0
    elsewhere: list[str] = field(default_factory=list)

    def add_open(self, job: Job, intent: Intent, until: float, done: int | None = None) -> None:
        """Count a job that is not over."""
        self.still_open.append(job)
        self.items += intent.items
        self.done += done or 0
        self.since = min(self.since, intent.at)
        self.until = max(self.until, until)


@dataclass
class _Results:
    """The results of a job while they are read."""

    keys: dict[str, str]  # by the item's id
    # items with a result: the failure, until another result answers the item
    read: dict[str, Failed | None] = field(default_factory=dict)
    answered: int = 0
    failed: int = 0
    billed: int = 0
    unknown: int = 0
    unknown_billed: int = 0
    doubled: int = 0


@dataclass(frozen=True)
class JobWatch:
    """Looks at the jobs of a lookup.

    Attributes:
        vendor: The open session with the vendor.
        files: The files of the lookup's jobs.
        lookup: The lookup, as declared.
        clock: Seconds since the epoch.
    """

    vendor: VendorSession
    files: JobFiles
    lookup: JobLookup
    clock: Callable[[], float]

    async def look(
        self, jobs: Sequence[tuple[Job, Intent]], others: Sequence[tuple[Job, Intent]] = ()
    ) -> Look:
        """Ask the vendor for each of these accepted jobs; store the results of those that are over.

        Args:
            jobs: The jobs that the result describes.
            others: Jobs without a key of the day. They count in `taken` and `elsewhere` alone; a
                run of their day reports the rest.

        Raises:
            DeclarationError: The vendor refused one of `jobs` as a whole.
            AccessRefused: The vendor denies access.
            TidegateError: The class failed at one of `jobs`, or results cannot be stored.
        """
        found, elsewhere = Look(), Look()
        for job, intent in others:
            try:
                refused = await self._look_at(job, intent, elsewhere)
            except (LedgerError, RunStopped):
                raise
            except TidegateError as error:  # of its results; a run of its day raises it again
                found.elsewhere.append(
                    f"job {job.id} of {intent.day} of {intent.enrichment}: {error}"
                )
                _log.warning("%s", found.elsewhere[-1])
                continue
            if refused:
                _log.warning("%s; the next run of that day submits its items again.", refused)
        refusals = [await self._look_at(job, intent, found) for job, intent in jobs]
        if refused := next(filter(None, refusals), ""):
            raise DeclarationError(f"{refused}; correct the class, and run again.")
        found.taken += elsewhere.taken
        return found

    async def _look_at(self, job: Job, intent: Intent, found: Look) -> str:
        """Look at a job. Return that the vendor refused it for good; empty if it did not."""
        until, refused = job.until(intent, self.lookup.give_up), ""
        try:
            state = await self._state(job.id, is_late=self.clock() >= until)
            if isinstance(state, Refused):
                facts = describe(f"refused: {state.reason}", job, intent, self.clock())
                facts["billed"] = 0
                if await self.finish(job, facts) and not state.later:
                    refused = self._refusal(job, intent, state.reason)
            elif isinstance(state, Over):
                await self._take(job, intent, state.reason)
            elif self.clock() >= until + self.lookup.grace:
                await self._give_up(job, intent)
            else:
                found.add_open(job, intent, until, state.done)
                return ""
        except NotNow as error:
            if self.clock() < until + self.lookup.grace:
                found.add_open(job, intent, until)
                found.notes.append(f"job {job.id}: {error}")
                return ""
            await self._give_up(job, intent, error)
        except (LedgerError, RunStopped):
            raise
        except TidegateError as error:  # of the class: a corrected one can read what is paid for
            if self.clock() < until + self.lookup.grace:
                raise
            raise self._kept(job, error) from error
        found.taken += 1
        return refused

    def _kept(self, job: Job, error: TidegateError) -> TidegateError:
        """Return the error of results that stay paid for and unread."""
        return TidegateError(
            f"{error} give_up has passed: if it cannot be corrected, `tidegate jobs forget "
            f"{job.token}` lets go of its results, and its keys are submitted again."
        )

    def _refusal(self, job: Job, intent: Intent, reason: str) -> str:
        return (
            f"lookup {self.lookup.name}: {self.lookup.service_name} refused job {job.id} of "
            f"{intent.day} of {intent.enrichment}: {one_line(reason)}. Nothing of it was billed"
        )

    async def ask(self, jobs: Sequence[tuple[Job, Intent]]) -> Look:
        """Ask the vendor for each of these accepted jobs, and read no results.

        Raises AccessRefused, and TidegateError if the class is wrong.
        """
        found = Look()

        async def ask_for(job: Job) -> Running | Over | Refused:
            try:
                return await self.vendor.state(job.id)
            except NotNow as error:
                found.notes.append(f"job {job.id}: {error}")
                return Running()

        states = await asyncio.gather(*(ask_for(job) for job, _ in jobs))
        for (job, intent), state in zip(jobs, states, strict=True):
            until = job.until(intent, self.lookup.give_up)
            if isinstance(state, Running) and self.clock() < until:
                found.add_open(job, intent, until, state.done)
        return found

    async def find(self, job: Job, intent: Intent) -> Job | None:
        """Return a job in doubt with the vendor's id; None if the vendor has no such job.

        Raises NotNow while the vendor may list it later: its submission may still arrive.
        """
        found = await self.vendor.find(job.token)
        if found is not None:
            return self.store_id(job, found)
        arrives = min(2 * self.lookup.longest_submit, self.lookup.give_up.total_seconds())
        if self.clock() < intent.at + arrives:
            raise NotNow("the vendor does not list it, and its submission may still arrive")
        return None

    def store_id(self, job: Job, found: str) -> Job:
        """Store the vendor's id of a job; return the job with it."""
        at = self.clock()
        self.files.write_submitted(job.token, found, at)
        return replace(job, submitted={"job": found, "at": at})

    async def finish(self, job: Job, facts: Mapping[str, Any]) -> bool:
        """Mark a job done. Returns whether this call did, not an earlier one."""
        is_first = self.files.finish(job.token, facts)
        done = facts if is_first else self.files.job(job.token).done
        await settle_job(self.lookup, job.token, done)
        return is_first

    async def _state(self, job: str, *, is_late: bool) -> Running | Over | Refused:
        """Return a job's state; a job that takes too long is cancelled first."""
        state = await self.vendor.state(job)
        if is_late and isinstance(state, Running):
            with contextlib.suppress(NotNow):  # such as 409: it is being cancelled already
                if await self.vendor.cancel(job):
                    state = await self.vendor.state(job)
        return state

    async def _take(self, job: Job, intent: Intent, reason: str) -> None:
        """Store the results of a job that is over, then mark it done.

        Raises ItemsMissing for results that the connection may have cut, and for none at all.
        """
        results = _Results({item_id(key): key for key in intent.keys[KEY].to_pylist()})
        reading = await self._read(job, intent, results)
        # an unknown id may be that of an erased item
        if not (results.read or intent.erased) and 0 < len(results.keys) <= results.unknown:
            # sent again, the items would be paid again, and their results ignored again
            raise self.vendor.class_error(
                f"results gave {counted(results.unknown, 'id')}, and none is the id of an item"
            )
        missing = [key for item, key in results.keys.items() if item not in results.read]
        is_early = len(missing) == len(results.keys) and reason.lower() in SUCCESSES
        if missing and (is_early or not reading.is_whole):
            # the vendor may have answered and billed these items, so they must not go again
            raise ItemsMissing(missing, len(results.keys))
        why = f"job {job.id} ended ({one_line(reason)}) without this item"
        if missing:
            self.files.store(job.token, self._failures(missing, "timeout", why, intent.run_id))
        unknown = max(0, results.unknown - intent.erased)
        if unknown:
            _log.warning(
                "lookup %s: job %s brought %d results with ids of no item; they are ignored",
                self.lookup.name, job.id, unknown,
            )  # fmt: skip
        # only their number is left of erased items: the ledger keeps nothing made of their keys
        billed = results.billed + min(results.unknown_billed, intent.erased)
        units = reading.billed | {"item": billed, "request": 1}
        unbilled = [unit for unit in reported_units(self.lookup.prices) if unit not in units]
        if billed and unbilled:
            _log.warning(
                "lookup %s: job %s did not bill %s (http.bill); its items count at their most",
                self.lookup.name, job.id, ", ".join(unbilled),
            )  # fmt: skip
        facts = describe(reason, job, intent, self.clock()) | {
            "answered": results.answered,
            "failed": results.failed,
            "missing": len(missing),
            "unknown_ids": unknown,
            "doubled": results.doubled,
            **cost(self.lookup.prices, intent, units),
        }
        await self.finish(job, facts)

    async def _read(self, job: Job, intent: Intent, results: _Results) -> Reading:
        """Read the results, and store the first answer of each item, or its first failure."""
        reading, part, size = Reading(), list[StoredAnswer](), 0
        try:
            async for pair in self.vendor.results(job.id, reading):
                stored = self._record(results, pair, intent.run_id)
                if stored is None:
                    continue
                part.append(stored)
                size += len(stored.response or b"")
                if len(part) >= PART_RESULTS or size >= PART_BYTES:
                    self.files.store(job.token, part)
                    part, size = [], 0
        finally:  # what was read before an error is paid for too
            if part:
                self.files.store(job.token, part)
        return reading

    def _record(self, results: _Results, pair: Any, run_id: str) -> StoredAnswer | None:
        """Return the record of a result; None for an unknown item, and for a second result, unless
        it answers an item that had failed: its answer may be billed.
        """
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise self.vendor.class_error("results must yield pairs of an item's id and its answer")
        item, answer = pair
        if item not in results.keys:
            results.unknown += 1
            results.unknown_billed += answer.billed if isinstance(answer, Failed) else 1
            return None
        if item in results.read:
            results.doubled += 1
            failure = results.read[item]
            if failure is None or isinstance(answer, Failed):
                return None
            results.failed -= 1
            results.billed -= failure.billed
        results.read[item] = answer if isinstance(answer, Failed) else None
        outcome: StoredOutcome
        response: bytes | None
        if isinstance(answer, Failed):
            outcome = "timeout" if answer.again else "error"
            response = dump(one_line(answer.reason))
            results.failed += 1
            results.billed += answer.billed
        elif answer is None or isinstance(answer, Mapping):
            outcome, response = ("miss", None) if answer is None else ("ok", dump(dict(answer)))
            results.answered += 1
            results.billed += 1
        else:
            raise self.vendor.class_error(
                f"results gave {type(answer).__name__} for an item; it must be a dict, None or "
                "Failed"
            )
        now = round(self.clock() * 1e6)
        return StoredAnswer(results.keys[item], outcome, response, now, run_id)

    def _failures(
        self, keys: Sequence[str], outcome: StoredOutcome, why: str, run_id: str
    ) -> list[StoredAnswer]:
        now, words = round(self.clock() * 1e6), dump(why)
        return [StoredAnswer(key, outcome, words, now, run_id) for key in keys]

    async def _give_up(self, job: Job, intent: Intent, last: NotNow | None = None) -> None:
        """Give up a job that takes too long: its items count as billed.

        Items whose results the last look read keep them; all others become errors.

        Args:
            job: The job.
            intent: Its intent.
            last: Why the last look failed; None if the job was not over.

        Raises:
            TidegateError: The vendor gave results that cannot be read, and may be paid for.
        """
        if not self.files.job(job.token).is_open:  # another run has read all results meanwhile
            return
        if isinstance(last, Unread):
            raise self._kept(job, self.vendor.class_error(str(last))) from last
        hours = self.lookup.give_up.total_seconds() / 3600
        why = (
            f"job {job.id} did not give all its results within {hours:g} h (give_up): {last}"
            if last
            else f"job {job.id} was not over after {hours:g} h (give_up)"
        )
        keys = last.keys if isinstance(last, ItemsMissing) else intent.keys[KEY].to_pylist()
        self.files.store(job.token, self._failures(keys, "error", why, intent.run_id))
        await self.finish(job, let_go(GIVEN_UP, self.lookup, job, intent, self.clock()))
