"""The jobs of a lookup, as a run of a day sees them: which are open, which have keys of the day,
and which another run is about to submit.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from jobs.declare.vendor_jobs import JobLookup
from jobs.ledger.job_files import KEY, Intent, Job, JobFiles
from jobs.ledger.working_folders import BEAT, RUNS, by_run, is_alive
from jobs.run.keys.vendor_jobs.job_watch import GIVEN_UP
from jobs.run.keys.vendor_jobs.waits import WaitingDay

CLOCKS_DIFFER = 300.0  # s, by which the clock of the ledger's files may be behind


def _is_try(job: Job) -> bool:
    """Return whether an ended job uses up a retry of its keys; a refused job answered nothing."""
    return "answered" in job.done or job.done["state"] == GIVEN_UP


class DayJobs:
    """The jobs of a lookup for one run of a day, by a clock of seconds since the epoch.

    Attributes:
        files: Of the lookup.
        texts: The keys of the day, in the form of the ledger.
        since: When the day began to wait, in s since the epoch; now for a day that does not wait.
        lost: Tokens of jobs that may have been submitted, and that nothing can find again. Each
            look begins with none.
    """

    def __init__(
        self,
        files: JobFiles,
        lookup: JobLookup,
        day: WaitingDay,
        *,
        run_id: str,
        texts: pa.Array,
        clock: Callable[[], float],
    ) -> None:
        self.files, self.texts, self.lost = files, texts, set[str]()
        self.since = float(files.waiting(day.enrichment, day.day).get("since", clock()))
        self._lookup, self._day, self._run_id = lookup, day, run_id
        self._clock = clock
        self._intents: dict[str, Intent] = {}
        self._has_keys: dict[str, bool] = {}  # by token

    def intent(self, token: str) -> Intent:
        """Return the intent of a job. Raises LedgerError."""
        if token not in self._intents:
            self._intents[token] = self.files.intent(token)
        return self._intents[token]

    def write_intent(self, token: str, intent: Intent) -> None:
        """Store that the day waits, for the run after a kill; then the intent of a new job with
        keys of the day. Raises LedgerError.
        """
        if not self.files.waiting(self._day.enrichment, self._day.day):
            self.write_waiting([], unsent=1)
        self.files.write_intent(token, intent)
        self._intents[token], self._has_keys[token] = intent, True

    def write_waiting(self, tokens: list[str], *, unsent: int) -> None:
        """Store which jobs the day waits for, and how many keys are not submitted."""
        facts = {"since": self.since, "tokens": tokens, "unsent": unsent}
        self.files.write_waiting(self._day.enrichment, self._day.day, facts)

    def has_keys(self, job: Job) -> bool:
        """Return whether the job has keys of the day."""
        if job.token not in self._has_keys:
            found = pc.is_in(self.intent(job.token).keys[KEY], value_set=self.texts)
            self._has_keys[job.token] = bool(pc.any(found).as_py())
        return self._has_keys[job.token]

    def open(self) -> list[Job]:
        """Return the open jobs of the lookup, of any day."""
        return [job for job in self.files.jobs(since=self._clock()) if job.is_open]

    def awaited(self) -> list[Job]:
        """Return the open jobs with keys of the day, without those that are lost."""
        return [job for job in self.open() if self.has_keys(job) and job.token not in self.lost]

    def _ended(self) -> list[Job]:
        """Return the jobs that ended since the day waits, and some that ended shortly before."""
        return [job for job in self.files.jobs(since=self.since - CLOCKS_DIFFER) if job.done]

    def done_of_day(self) -> list[Job]:
        """Return the jobs that the day submitted since it waits, and that ended."""
        day = (self._day.enrichment, self._day.day)
        return [
            job
            for job in self._ended()
            if (job.done["enrichment"], job.done["day"]) == day and job.done["at"] >= self.since
        ]

    def count_settled_keys(self, jobs: Sequence[Job]) -> int:
        """Return how many keys of the day these ended jobs answered or failed at."""
        asked = [self.intent(job.token).keys[KEY].unique() for job in jobs if _is_try(job)]
        found = [keys.filter(pc.is_in(keys, value_set=self.texts)) for keys in asked]
        return len(pa.chunked_array(found, pa.string()).unique())

    def without_retries_left(self) -> pa.Array:
        """Return the keys that were sent as often as retries allow since the day waits."""
        sent: Counter[str] = Counter()
        for job in self._ended():
            if _is_try(job) and job.done["ended_at"] >= self.since:
                sent.update(self.intent(job.token).keys[KEY].to_pylist())
        most = self._lookup.retry.retries
        return pa.array([key for key, times in sent.items() if times > most], pa.string())

    # -- other runs --------------------------------------------------------------------------------
    def runs_alive(self) -> set[str]:
        """Return the runs, this one included, that gave signs of life of late."""
        folder = self.files.folder
        runs = by_run(folder, folder.files(RUNS))
        now = runs.get(self._run_id, {}).get(BEAT)
        return {run for run, names in runs.items() if BEAT in names and is_alive(names[BEAT], now)}

    def is_own(self, intent: Intent) -> bool:
        """Return whether this run has written the intent."""
        return intent.run_id == self._run_id

    def is_of_another(self, job: Job, alive: set[str]) -> bool:
        """Return whether another of the runs that are alive is about to submit the job."""
        intent = self.intent(job.token)
        return not self.is_own(intent) and intent.run_id in alive

    def is_late(self, job: Job) -> bool:
        """Return whether give_up has passed for the job."""
        return self._clock() >= job.until(self.intent(job.token), self._lookup.give_up)

    def holds_slot(self, job: Job, alive: set[str]) -> bool:
        """Return whether an open job may run at the vendor. A lost job, and one whose results the
        class cannot read after give_up, stay open for their keys, and hold no slot.

        alive: The runs that are alive; needed only where nothing recovers a job.
        """
        if job.id:
            until = job.until(self.intent(job.token), self._lookup.give_up)
            return self._clock() < until + self._lookup.grace
        if self._lookup.recovery == "none":
            return self.is_of_another(job, alive)
        return not self.is_late(job)
