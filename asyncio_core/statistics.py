"""The statistics of an operator at a moment."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """An operator's current contents, and its counts since it was opened.

    Attributes:
        capacity: Places in the queue.
        concurrency: Calls that may run at once.
        queued: Elements in the queue now; more than `capacity` for a while after `resize` lowers
            it.
        running: Calls running now, including calls that swallow their cancellation after the time
            limit, and calls of `take_slot`; more than `concurrency` for a while after `resize`
            lowers it.
        waiting_for_retry: Records now between two attempts.
        outstanding: The highest number of concurrent calls from now on, if no record is added.
        records: Records taken into the queue.
        watermarks: Watermarks taken into the queue.
        emitted: Elements that left the queue, with any number of results: records + watermarks -
            queued while open.
        attempts: Calls started.
        retries: Calls started after the first call of their record.
        timeouts: Records whose time limit expired.
        failures: Calls that raised.
        cancelled: Calls cancelled by a time limit or by close().
    """

    capacity: int
    concurrency: int
    queued: int
    running: int
    waiting_for_retry: int
    outstanding: int
    records: int
    watermarks: int
    emitted: int
    attempts: int
    retries: int
    timeouts: int
    failures: int
    cancelled: int
