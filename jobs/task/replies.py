"""What came of one attempt at a service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Reply:
    """What came of one attempt: an answer, a miss, an error, or nothing yet (outcome None: come again).

    Rows that share a call share its reply: nobody changes one.
    """

    outcome: str | None
    answer: tuple[Any, ...] | None = None
    answered_at: int | None = None  # µs since the epoch
    error: str | None = None
    throttled: bool = False  # the service said "not now"
    passing: bool = False  # an error that may pass: worth a retry
    down: bool = False  # the service is at fault, not this row: it keeps its retries
    kept: bool = False  # the ledger holds what came back
