"""Days that wait for jobs of vendors: which they are, and whether a run of them can go on."""

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Sequence

from jobs.clients.vendor_session import NotNow, VendorSession
from jobs.declare.enrichment import Enrichment
from jobs.declare.vendor_jobs import JobLookup
from jobs.ledger.declared_folder import declared_folder
from jobs.ledger.job_files import Intent, Job, JobFiles
from jobs.run.keys.vendor_jobs.job_watch import JobWatch, Look
from jobs.run.keys.vendor_jobs.waits import GOES_ON
from jobs.wording import counted

QUICK = 10.0  # s; a look without results waits so long for an answer of the vendor


def waiting_sentence(lookup: JobLookup, look: Look) -> str:
    """Return what a lookup waits for and until when."""
    jobs = len(look.still_open)
    notes = [note.rstrip(".") for note in look.notes]
    if not jobs:
        return f"lookup {lookup.name}: {'; '.join(notes)}."
    since, until = (
        f"{dt.datetime.fromtimestamp(at, dt.UTC):%F %H:%M} UTC"
        for at in (look.since, look.until + lookup.grace)
    )
    done = f", {look.done:,} of them done" if look.done else ""
    found = (
        f"lookup {lookup.name}: {counted(jobs, 'job')} with {counted(look.items, 'item')} at "
        f"{lookup.service_name} {'is' if jobs == 1 else 'are'} open{done}, since {since}, "
        f"until {until} at the latest"
    )
    return f"{'; '.join((found, *notes))}."


def look_again(
    enrichment: Enrichment,
    day: str,
    *,
    may_submit: bool = True,
    stores: bool = True,
    clock: Callable[[], float] = time.time,
) -> str:
    """Look at the jobs that a day waits for.

    Args:
        enrichment: As declared.
        day: The day.
        may_submit: Whether a run of the day may submit items.
        stores: Read and store the results of jobs that are over.
        clock: Seconds since the epoch.

    Returns:
        What the day still waits for, in sentences; empty if a run of the day can go on: nothing is
        open, more can be submitted, or only a run can recover an interrupted submission.

    Raises:
        TidegateError: As `JobWatch.look` does.
    """
    found = []
    for lookup in enrichment.lookups:
        folder = declared_folder(enrichment, lookup)
        if not isinstance(lookup, JobLookup) or folder is None:
            continue
        files = JobFiles(folder)
        waiting = files.waiting(enrichment.name, day)
        tokens = waiting.get("tokens", [])
        jobs = [job for job in map(files.job, tokens) if job.is_open]
        if jobs:
            look = asyncio.run(_look(enrichment, lookup, files, jobs, clock, stores=stores))
            if look is None:
                return ""
            has_room = len(look.still_open) < lookup.service.max_concurrency
            if waiting.get("unsent") and has_room and may_submit:
                return ""
            found += [waiting_sentence(lookup, look)] if look.still_open else []
    return " ".join((*found, GOES_ON)) if found else ""


async def _look(
    enrichment: Enrichment,
    lookup: JobLookup,
    files: JobFiles,
    jobs: Sequence[Job],
    clock: Callable[[], float],
    *,
    stores: bool,
) -> Look | None:
    """Return what a look at these jobs found; None if a run must recover one of them first."""
    accepted, unlisted = list[tuple[Job, Intent]](), list[tuple[Job, Intent, str]]()
    hidden = enrichment.has_personal_key(lookup)
    at_most = None if stores else QUICK
    async with VendorSession(lookup, hidden=hidden, at_most=at_most) as vendor:
        watch = JobWatch(vendor, files, lookup, clock)
        for job in jobs:
            intent, known = files.intent(job.token), job if job.id else None
            if known is None:
                is_late = clock() >= job.until(intent, lookup.give_up)
                if lookup.recovery != "list" or is_late:
                    return None
                try:
                    known = await watch.find(job, intent)
                except NotNow as error:
                    unlisted.append((job, intent, str(error)))
                    continue
                if known is None:
                    return None
            accepted.append((known, intent))
        look = await (watch.look(accepted) if stores else watch.ask(accepted))
    for job, intent, why in unlisted:
        look.add_open(job, intent, job.until(intent, lookup.give_up))
        look.notes.append(f"job {job.token}: {why}")
    return look


def days_waiting(enrichment: Enrichment) -> dict[str, bool]:
    """Return the days that wait, with whether all their keys are submitted. Raises LedgerError."""
    found: dict[str, bool] = {}
    for lookup in enrichment.lookups:
        folder = declared_folder(enrichment, lookup)
        if isinstance(lookup, JobLookup) and folder is not None:
            for facts in JobFiles(folder).days_waiting(enrichment.name):
                day = facts["day"]
                found[day] = found.get(day, True) and not facts.get("unsent")
    return found
