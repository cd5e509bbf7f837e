"""Lists the jobs of vendors in the ledgers of a package, cancels them, and lets go of them."""

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jobs.clients.vendor_session import NotNow, VendorSession
from jobs.declare.finding.discovery import discover
from jobs.declare.vendor_jobs import JobLookup
from jobs.errors import DeclarationError, TidegateError
from jobs.ledger.declared_folder import declared_folder
from jobs.ledger.job_files import Intent, Job, JobFiles
from jobs.ledger.stored_request import versions
from jobs.run.keys.vendor_jobs.job_budgets import settle_job
from jobs.run.keys.vendor_jobs.job_ends import let_go, most_cost
from jobs.schema.facts import Facts
from jobs.wording import counted

OPEN, UNSENT = "open", "submission not confirmed"
FORGOTTEN = "forgotten"


@dataclass(frozen=True)
class JobFacts(Facts):
    """A job, without its items."""

    token: str
    enrichment: str  # that submitted it
    day: str
    lookup: str
    service: str
    job: str  # the vendor's id; empty if it is unknown
    state: str  # open, submission not confirmed, or how it ended
    at: str  # of the intent, UTC
    items: int
    answered: int
    failed: int
    missing: int
    billed: int
    cost: str | None  # of an open job, the most that it may cost; None without a price
    currency: str | None


@dataclass(frozen=True)
class Jobs(Facts):
    """The object of --json."""

    jobs: tuple[JobFacts, ...]


@dataclass(frozen=True)
class FoundJob:
    """A job and its lookup.

    Attributes:
        intent: None for a job whose keys were erased.
        hidden: Whether keys are personal, which the vendor's words may repeat.
    """

    lookup: JobLookup
    files: JobFiles
    job: Job
    intent: Intent | None
    hidden: bool

    def facts(self) -> JobFacts:
        job, done = self.job, self.job.done
        known = done
        if self.intent is not None and not done:
            known = {
                **self.intent.facts(), "items": self.intent.items,
                **most_cost(self.lookup.prices, self.intent),
            }  # fmt: skip
        return JobFacts(
            job.token, known["enrichment"], known["day"], self.lookup.name,
            self.lookup.service_name, job.id or str(done.get("job", "")),
            done.get("state", OPEN if job.id else UNSENT), _minute(known["at"]), known["items"],
            done.get("answered", 0), done.get("failed", 0), done.get("missing", 0),
            known["billed"], known.get("cost"), known.get("currency"),
        )  # fmt: skip


def find_jobs(package: str, *, are_open: bool = False) -> Iterator[FoundJob]:
    """Yield the jobs of all lookups of a package, or only the open ones, each once.

    Raises:
        DeclarationError: The package does not exist.
        LedgerError: A ledger cannot be read.
    """
    seen = set()
    for found in discover(package):
        for lookup in found.enrichment.lookups:
            folder = declared_folder(found.enrichment, lookup)
            if not isinstance(lookup, JobLookup) or folder is None:
                continue
            for of_request in versions(folder):
                if of_request.path in seen:
                    continue
                seen.add(of_request.path)
                files = JobFiles(of_request)
                for job in files.jobs():
                    if job.is_open or not are_open:
                        intent = None if job.done else files.intent(job.token)
                        hidden = found.enrichment.has_personal_key(lookup)
                        yield FoundJob(lookup, files, job, intent, hidden)


def find_job(package: str, token: str) -> FoundJob:
    """Return the job with this token. Raises DeclarationError if there is no such job."""
    for found in find_jobs(package):
        if found.job.token == token:
            return found
    raise DeclarationError(
        f"no lookup of {package} has a job {token!r}; `tidegate jobs` lists them."
    )


def cancel_job(package: str, token: str) -> str:
    """Have the vendor cancel an open job. Returns what happened, in a sentence.

    Raises:
        DeclarationError: No such job is open at the vendor, or its class has no cancel.
        TidegateError: The vendor does not cancel it.
    """
    found = _open_job(package, token)
    if not found.job.id:
        raise DeclarationError(
            f"job {token}: its submission is not confirmed; run the day again, or let go of it: "
            f"`tidegate jobs forget {token}`."
        )
    try:
        is_cancelled = asyncio.run(_cancel(found))
    except NotNow as error:
        raise TidegateError(f"job {token} is not cancelled: {error}.") from error
    if not is_cancelled:
        raise DeclarationError(
            f"lookup {found.lookup.name}: its class has no method cancel. Add it, or wait for the "
            "job."
        )
    return (
        f"job {token} ({found.job.id}) is being cancelled; the next run of its day takes the "
        "results that it has, and submits the other keys again."
    )


async def _cancel(found: FoundJob) -> bool:
    async with VendorSession(found.lookup, hidden=found.hidden) as vendor:
        return await vendor.cancel(found.job.id)


def forget_job(package: str, token: str, clock: Callable[[], float] = time.time) -> str:
    """Let go of an open job: its keys may be submitted again, and its items count as billed.

    Returns:
        What happened, in a sentence.

    Raises:
        DeclarationError: No such job is open.
    """
    found = _open_job(package, token)
    assert found.intent is not None
    facts = let_go(FORGOTTEN, found.lookup, found.job, found.intent, clock())
    if not found.files.finish(token, facts):
        raise DeclarationError(f"job {token} has just ended, so its results are kept. Run its day.")
    asyncio.run(settle_job(found.lookup, token, facts))
    return (
        f"job {token} with {counted(found.intent.items, 'item')} is forgotten: it counts as "
        "billed, and the next run that needs its items submits them again."
    )


def _open_job(package: str, token: str) -> FoundJob:
    found = find_job(package, token)
    if not found.job.is_open:
        raise DeclarationError(f"job {token} has ended: {found.job.done['state']}.")
    return found


def _minute(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%F %H:%M}"
