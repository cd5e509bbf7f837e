"""What must hold in every night of jobs, checked where it happens."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.ledger.job_files import NEVER_SENT
from jobs.ledger.keys import key_text
from tests.simulation.disk import Disk
from tests.simulation.night_at_work import scheduler
from tests.simulation.processes import Process
from tests.simulation.vendor_jobs.bill_rules import FORGOTTEN, LET_GO, BillRules
from tests.simulation.vendor_jobs.declared import folder_of
from tests.simulation.vendor_jobs.dialects import DIALECTS
from tests.simulation.vendor_jobs.night import GIVE_UP, JobsNight
from tests.simulation.vendor_jobs.vendor import JobVendor, VendorJob, truth

SETTLED = ("ok", "miss", "skipped")
# how far a run had come when it was killed
BEGUN, INTENDED, TAKEN, STORED_ID = "begun", "intent", "taken", "id stored"
READ, STORED, DONE = "results read", "results stored", "job done"
AFTER = {"write_intent": INTENDED, "write_submitted": STORED_ID, "store": STORED, "finish": DONE}


class JobRules:
    """Watches the vendor, the ledger and the rows of a night, and reports each broken promise.

    Attributes:
        submitting: The process whose request the vendor takes now.
        reached: By process, how far it has come.
        bills: What the jobs cost.
    """

    submitting: Process

    def __init__(self, night: JobsNight, vendor: JobVendor, disk: Disk, limits: Path) -> None:
        self._night, self.vendor, self._disk = night, vendor, disk
        self._dialect = DIALECTS[night.dialect]
        self._jobs = f"{folder_of(night).path}/jobs"
        self._forgotten: dict[str, float] = {}  # by text, when it was last forgotten
        self._known: dict[str, float] = {}  # by token, when its id was stored
        self._intended: dict[str, float] = {}  # by token, when its intent was there
        self._submitted_by: dict[str, Process] = {}  # by token
        self.reached: dict[Process, str] = {}
        self.clock_was_set = False
        self.bills = BillRules(self, night, limits)
        vendor.on_accept = self.check_accepted

    # -- what the product tells --------------------------------------------------------------------
    def task_begins(self, worker: Process) -> None:
        pass

    def are_stored_now(self, lookup: str, answers: Any) -> None:
        pass

    stored = are_stored_now

    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    def has_done(self, step: str, token: str, facts: Any) -> None:
        """A process has written a file of a job."""
        self.reached[scheduler().me().process] = AFTER[step]
        if step == "write_submitted":
            self._known.setdefault(token, scheduler().now)
        # `forget` writes it again, also for a run that was killed as it wrote
        if step == "write_intent" and not facts.erased:
            self._intended.setdefault(token, scheduler().now)
        if step == "finish" and facts["state"] == NEVER_SENT and not self._is_early(token):
            for job in self._of_token(token):
                if job in self.vendor.accepted():
                    scheduler().fail(f"called never submitted, and taken: {job.name} {token}")

    def reads(self, process: Process) -> None:
        self.reached[process] = READ

    def forgets(self, texts: Sequence[str]) -> None:
        """These keys are being forgotten: they may be asked again."""
        self._forgotten |= dict.fromkeys(texts, scheduler().now)

    def _is_early(self, token: str) -> bool:
        """Whether a clock that was set made a job seem older than any submission takes."""
        done = self.done(token)
        is_listed = self._dialect.recovery == "list" and self.clock_was_set
        return is_listed and done is not None and done["state"] == NEVER_SENT

    # -- jobs --------------------------------------------------------------------------------------
    def _of_token(self, token: str) -> list[VendorJob]:
        return [job for job in self.vendor.jobs.values() if job.token == token]

    def done(self, token: str) -> dict[str, Any] | None:
        """What the ledger says became of a job; None while it is open."""
        file = self._disk.files.get(f"{self._jobs}/{token}/done.json")
        return None if file is None else json.loads(file.data)

    def check_accepted(self, job: VendorJob) -> None:
        """A key that is in a job of the vendor, or has an answer, is taken by no other job."""
        night = scheduler()
        self.reached[self.submitting] = TAKEN
        self._submitted_by.setdefault(job.token, self.submitting)
        done = None if self._is_early(job.token) else self.done(job.token)
        if done is not None and done["state"] == FORGOTTEN:
            return  # its request was under way: a person lets its keys go to another job
        if done is not None:
            night.fail(f"taken after the ledger had it as {done['state']!r}: {job.token}")
        accepted = self.vendor.accepted()
        if any(accepted_job.token == job.token for accepted_job in accepted):
            night.fail(f"taken twice: the job {job.token}")
        for before in [] if self._is_early(job.token) else accepted:
            for item in sorted(job.items.keys() & before.items.keys()):
                # of a job in doubt whose key was forgotten and asked again, the vendor still has it
                if self.was_forgotten(job, item):
                    continue
                if why := self._is_covered(before, item):
                    night.fail(
                        f"taken twice: {job.items[item]} in {job.name} and {before.name}, {why}"
                    )
                    return
        self._check_open(
            job, [accepted_job for accepted_job in accepted if not accepted_job.is_over]
        )
        self.bills.check_spending([*accepted, job])

    def _is_covered(self, job: VendorJob, item: str) -> str:
        """Why no other job may have an item of this job; empty if another may."""
        if self.was_forgotten(job, item) or self._is_early(job.token):
            return ""
        done = self.done(job.token)
        if done is None:
            return "which is open"
        if done["state"] in LET_GO:
            return ""
        return "which answered it" if job.outcomes.get(item) == "ok" else ""

    def was_forgotten(self, job: VendorJob, item: str) -> bool:
        """Whether a person had the ledger forget an item of this job since its intent."""
        since = self._intended.get(job.token, 0.0)
        return self._forgotten.get(job.items[item], -1.0) >= since

    def _check_open(self, job: VendorJob, still_open: Sequence[VendorJob]) -> None:
        """The vendor has no more open jobs than are allowed, but for those that held no place when
        they were started: lost jobs, whose request outlived its process, and jobs in doubt that
        seem older than give_up.
        """
        if self.clock_was_set or not self._holds(job):
            return
        begun = self._intended.get(job.token, 0.0)  # when it was decided
        known = [
            job for job in still_open
            if self.done(job.token) is None and self._holds(job) and not self._was_lost(job, begun)
        ]  # fmt: skip
        if len(known) >= self._night.most_open:
            scheduler().fail(f"{len(known) + 1} open jobs, where {self._night.most_open} may be")

    def _was_lost(self, job: VendorJob, at: float) -> bool:
        """Whether a job seemed older than give_up at a time, and its id was stored later."""
        return self._known.get(job.token, 0.0) > at and self._is_old(job.token, at)

    def _holds(self, job: VendorJob) -> bool:
        if self._has(job.token, "submitted.json"):
            return True
        if self._dialect.recovery == "none":
            return not self._submitted_by[job.token].has_ended
        return not self._is_old(job.token)

    # -- rows --------------------------------------------------------------------------------------
    def check_day(self, run: str, texts: Sequence[str | None], files: Sequence[str]) -> bool:
        """Each row once, with what the vendor answered. Returns whether a further run asks
        nothing: no row is an error, or in doubt.
        """
        night = scheduler()
        found = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])
        rows = {row["id"]: row for row in found.to_pylist()}
        if sorted(rows) != [*range(len(texts))] or found.num_rows != len(texts):
            night.fail(f"{run}: {found.num_rows} rows instead of {len(texts)}, or one twice")
            return True
        for number, text in enumerate(texts):
            if fault := self._fault_of(rows[number], text):
                night.fail(f"{run}: {text} is {rows[number]['_labels_status']}: {fault}")
        return all(row["_labels_status"] in SETTLED for row in rows.values())

    def _fault_of(self, row: dict[str, Any], text: str | None) -> str:
        """What is wrong with a row; empty if it is right."""
        status, label = row["_labels_status"], row["label"]
        if text is None:
            return "" if status == "skipped" else "it has no key"
        jobs = [
            (job, item) for job in self.vendor.accepted() for item, item_text in job.items.items()
            if item_text == text
        ]  # fmt: skip
        if status in ("ok", "miss"):
            is_right = label == truth(text) and (status == "ok") == (label is not None)
            answered = any(item in job.answered for job, item in jobs)
            return (
                "" if is_right and answered else f"{label!r}, not {truth(text)!r}, or not answered"
            )
        if status == "unknown":
            return "" if self._is_lost(text) else "no job of it is lost"
        if status not in ("error", "timeout"):
            return "no such status is expected"
        if any(self._was_let_go(job) or job.outcomes.get(item) == "final" for job, item in jobs):
            return ""
        tries = [
            job for job, item in jobs if job.outcomes.get(item) != "ok" and job.state != "refused"
        ]
        least = self._night.retries + 1
        return (
            ""
            if len(tries) >= least
            else f"tried {len(tries)} times, not {least}: {row['_labels_error']}"
        )

    def has_file(self, token: str) -> bool:
        """Whether the ledger has any file of a job."""
        return any(path.startswith(f"{self._jobs}/{token}/") for path in self._disk.files)

    def _is_lost(self, text: str) -> bool:
        """Whether a job of this key is in doubt, for ever or for longer than give_up; another run
        may have learned since that the vendor has no such job.
        """
        key = key_text((text,), hidden=self._night.personal)
        for token in self.intents():
            if not self._is_old(token, self._known.get(token)):
                continue
            done = self.done(token)
            is_open = (
                done is None or done["state"] in (NEVER_SENT, FORGOTTEN) or token in self._known
            )
            intent = self._disk.files.get(f"{self._jobs}/{token}/intent.parquet")
            if is_open and intent is not None:
                keys = pq.read_table(pa.BufferReader(intent.data), columns=["key"])["key"]
                if key in keys.to_pylist():
                    return True
        return False

    def intents(self) -> list[str]:
        """The tokens with an intent on the disk, also of who was killed right there."""
        files = (path for path in self._disk.files if path.startswith(f"{self._jobs}/"))
        return [path.split("/")[-2] for path in files if path.endswith("/intent.parquet")]

    def _is_old(self, token: str, until: float | None = None) -> bool:
        """Whether the job was in doubt for longer than give_up. until: Its id was stored then."""
        if until is None and (self._dialect.recovery == "none" or self.clock_was_set):
            return True
        now = scheduler().now if until is None else until
        return now >= self._intended.get(token, 0.0) + GIVE_UP

    def _has(self, token: str, name: str) -> bool:
        return f"{self._jobs}/{token}/{name}" in self._disk.files

    def is_all_known(self) -> bool:
        """Whether no job is open of which the vendor can tell more."""
        return all(self.done(job.token) is not None for job in self.vendor.accepted())

    def _was_let_go(self, job: VendorJob) -> bool:
        done = self.done(job.token)
        return done is not None and done["state"] in LET_GO
