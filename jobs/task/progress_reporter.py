"""Counts what a task reports to the driver."""

import time
from collections.abc import Callable, Sequence

from jobs.clients.request_counter import counts_of
from jobs.declare.lookup import Lookup
from jobs.task.chain import Chain
from jobs.task.link.progress import AttemptCounts, TaskProgress


class ProgressReporter:
    """Counts a task's progress. Made in the loop's thread, whose CPU time it measures."""

    def __init__(
        self,
        progress: TaskProgress,
        lookups: Sequence[Lookup],
        chain: Chain,
        attempts: AttemptCounts,
        now_us: Callable[[], int],
        *,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._progress = progress
        self._lookups = lookups
        self._chain = chain
        self._attempts = attempts
        self._now_us, self._cpu_time = now_us, cpu_time
        self._began = now_us(), cpu_time()

    def progress(self, rows: int) -> TaskProgress:
        """Return the progress until now, with this number of rows that have left."""
        progress = self._progress
        progress.rows = rows
        progress.in_flight = sum(
            operator.statistics().running for operator in self._chain.operators
        )
        progress.take(self._attempts)
        progress.seconds = (self._now_us() - self._began[0]) / 1e6
        progress.loop_s = self._cpu_time() - self._began[1]
        for lookup, watch, lease in zip(
            self._lookups, self._chain.watches, self._chain.leases, strict=True
        ):
            closed_s, progress.down_s[lookup.name] = watch.closed_seconds()
            shared_s = 0.0 if lease is None else min(closed_s, lease.shared_s)
            progress.throttled_s[lookup.name] = closed_s - shared_s
            progress.shared_s[lookup.name] = shared_s
            observed = None if lease is None else lease.observed
            progress.adapted_s[lookup.name] = 0.0 if observed is None else observed.adapted_s
            progress.requests[lookup.name] = counts_of(lookup.name).so_far()
        return progress
