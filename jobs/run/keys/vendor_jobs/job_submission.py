"""Submits jobs to a vendor, each once, and recovers those whose submission was interrupted."""

from collections.abc import Callable, Sequence
from typing import Any

from jobs.clients.vendor_session import InDoubt, NotNow, NotSubmitted
from jobs.declare.vendor_jobs import Item, JobLookup
from jobs.errors import DeclarationError
from jobs.ledger.job_files import NEVER_SENT, Intent, Job
from jobs.limits.store import StoreLost
from jobs.run.keys.vendor_jobs.day_jobs import DayJobs
from jobs.run.keys.vendor_jobs.item_limit import ItemLimit
from jobs.run.keys.vendor_jobs.job_budgets import JobBudgets
from jobs.run.keys.vendor_jobs.job_ends import describe
from jobs.run.keys.vendor_jobs.job_watch import JobWatch
from jobs.wording import counted


class JobSubmission:
    """Submits the jobs of a lookup.

    Attributes:
        notes: Why jobs were not submitted, or are in doubt; a sentence each.

    Args:
        watch: Of the lookup's jobs.
        jobs: Of the day.
        budgets: Of the lookup's jobs.
        items: Finds the items of a job; None if this run does not know their keys.
        limit: What the run may still spend on items.
        place: The place of the lookup in the plan of the run.
    """

    def __init__(
        self,
        watch: JobWatch,
        jobs: DayJobs,
        budgets: JobBudgets,
        items: Callable[[Intent], Sequence[Item] | None],
        *,
        limit: ItemLimit,
        place: int,
    ) -> None:
        self.notes: list[str] = []
        self._limit, self._place = limit, place
        self._watch, self._jobs, self._budgets, self._items = watch, jobs, budgets, items
        self._lookup: JobLookup = watch.lookup

    async def open_at_vendor(self) -> list[Job]:
        """Return the open jobs of any day that the vendor has accepted. Those with keys of the day
        whose submission was interrupted are recovered first, where the vendor can tell.

        Raises DeclarationError if the vendor refuses one, AccessRefused if it denies access.
        """
        self.notes.clear()
        self._jobs.lost.clear()
        found, listed = [], self._jobs.open()
        # listed after the jobs, so that it has the run of each intent
        alive = self._jobs.runs_alive()
        for job in listed:
            if job.id:
                found.append(job)
            # the others are in doubt, for the runs that need their keys
            elif self._jobs.has_keys(job) and not self._jobs.is_of_another(job, alive):
                # read again: its run may have learned its id, and ended, since the jobs were listed
                recovered = await self._recover(self._jobs.files.job(job.token))
                found += [] if recovered is None else [recovered]
        return found

    async def _recover(self, job: Job) -> Job | None:
        """Return the job with the vendor's id; None if the vendor has no such job, or cannot tell.

        After give_up a job that the vendor cannot tell of counts as lost. No token is submitted
        then, because vendors recognize tokens for a limited time.
        """
        if job.id or job.done:
            return None if job.done else job
        is_late = self._jobs.is_late(job)
        match self._lookup.recovery:
            case "list":
                return await self._find(job, is_late=is_late)
            case "token" if not is_late:
                return await self._submit_again(job)
            case _:
                self._jobs.lost.add(job.token)
        return None

    async def _submit_again(self, job: Job) -> Job | None:
        """Submit a job in doubt under its token. The vendor may take it only now, so the job of an
        earlier run counts for the cap of this run too.
        """
        intent = self._jobs.intent(job.token)
        if not self._jobs.is_own(intent) and not self._limit.take_all(intent.items, self._place):
            assert self._limit.cap is not None
            self.notes.append(
                f"the submission of job {job.token} was interrupted, and {self._limit.cap.message} "
                f"allows no further one of its {counted(intent.items, 'item')}"
            )
            return None
        return await self.submit(job, in_doubt=True)

    async def _find(self, job: Job, *, is_late: bool) -> Job | None:
        try:
            found = await self._watch.find(job, self._jobs.intent(job.token))
        except NotNow as error:
            self.notes.append(f"job {job.token}: {error}")
            if is_late:
                self._jobs.lost.add(job.token)
            return None
        if found is None:
            await self._never_sent(job, "the vendor has no such job")
        return found

    async def submit(self, job: Job, *, in_doubt: bool = False) -> Job | None:
        """Submit a job, once. Returns it as the vendor knows it; None if it may not.

        in_doubt: An earlier submission was interrupted; the vendor may have the job.

        Raises DeclarationError if the vendor refuses it, AccessRefused if it denies access.
        """
        intent = self._jobs.intent(job.token)
        items = self._items(intent)
        if items is None:
            self.notes.append(
                f"job {job.token} has personal keys of {intent.day} of {intent.enrichment}; "
                "run that day again"
            )
            return None
        if not await self._may_go(job, intent, in_doubt=in_doubt):
            return None
        try:
            found = await self._watch.vendor.submit(items, job.token)
        except InDoubt as error:
            self.notes.append(f"the submission of job {job.token} was interrupted: {error}")
            if self._lookup.recovery == "none":
                self._jobs.lost.add(job.token)
            return None
        except NotSubmitted as error:
            return await self._refused(job, error, in_doubt=in_doubt)
        return self._watch.store_id(job, found)

    async def _may_go(self, job: Job, intent: Intent, *, in_doubt: bool) -> bool:
        """Return whether a job is open and the budgets allow it; they then count its most."""
        try:
            short, is_new = await self._budgets.spend(job.token, intent)
        except StoreLost as lost:
            if not in_doubt:
                await self._never_sent(job, str(lost))
            raise
        if short and not in_doubt:  # another run has just spent it
            await self._never_sent(job, f"{short} allows no more")
        if short:
            self.notes.append(f"{short} allows no more now")
            return False
        # another run may have taken this run for dead, or a person has let go of the job
        is_open = self._jobs.files.job(job.token).is_open
        if is_new and not is_open:
            await self._budgets.take_back(job.token)
        return is_open

    async def _refused(self, job: Job, error: NotSubmitted, *, in_doubt: bool) -> Job | None:
        """Let go of a job that the vendor refused; a job in doubt may have been taken earlier.

        Returns the job if the vendor took it all the same, before it refused a later request.

        Raises DeclarationError if the request is wrong, AccessRefused if the vendor denies access.
        """
        if error.requests > 1 and self._lookup.recovery == "list":
            try:
                found = await self._watch.vendor.find(job.token)
            except NotNow as unclear:
                self.notes.append(f"job {job.token} is in doubt: {error}; {unclear}")
                return None
            if found is not None:
                return self._watch.store_id(job, found)
        if not in_doubt:
            await self._never_sent(job, str(error))
        if error.about_us is not None:
            raise error.about_us from error
        if in_doubt:
            self.notes.append(f"job {job.token} is still in doubt: {error}")
        elif error.later:
            self.notes.append(f"{self._lookup.service_name} takes no job now: {error}")
        elif not error.requests:  # the class failed before any request
            raise DeclarationError(str(error)) from error
        else:
            items = self._jobs.intent(job.token).keys.num_rows
            raise DeclarationError(
                f"lookup {self._lookup.name}: {self._lookup.service_name} refused a job of "
                f"{counted(items, 'item')}: {error}. Nothing of it was billed; "
                "correct the class, and run again."
            ) from error
        return None

    async def _never_sent(self, job: Job, why: str) -> None:
        await self._watch.finish(job, never_sent(job, self._jobs, why, self._watch.clock()))


def never_sent(job: Job, jobs: DayJobs, why: str, now: float) -> dict[str, Any]:
    """Return the facts of a job that ends before the vendor has it."""
    facts = describe(NEVER_SENT, job, jobs.intent(job.token), now)
    return {**facts, "why": why, "billed": 0}
