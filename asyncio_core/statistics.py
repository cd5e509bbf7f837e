"""The figures of one operator at one moment."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """What an operator holds now, and what it has done since it was opened."""

    capacity: int  # places in the queue
    concurrency: int  # calls that may run at once
    queued: int  # elements in the queue now
    running: int  # calls running now, those included whose time limit expired and that swallow the cancellation
    waiting_for_retry: int  # records now between two attempts
    outstanding: int  # at most so many calls run at once from now on, if no record is added
    records: int  # records taken into the queue
    watermarks: int  # watermarks taken into the queue
    emitted: int  # elements that left the queue, with none to many results: records + watermarks - queued while open
    attempts: int  # calls started
    retries: int  # calls started after the first of their record
    timeouts: int  # records whose time limit expired
    failures: int  # calls that raised
    cancelled: int  # calls cancelled by a time limit or by close()
