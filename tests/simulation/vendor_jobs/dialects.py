"""Eight ways in which vendors take jobs, list them, give results, and bill."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Dialect:
    """How a vendor works.

    Attributes:
        recovery: By what a job is found whose id was lost.
        takes: The items: in the request, in a file uploaded before, or in a job that is created for
            nothing and started afterwards.
        gives: The results: as lines, in two files, in numbered pages, or in the answer that tells
            the state.
        bills: Items with an answer, all that it looked at, or all at the start.
        running: The vendor's words for a job that is not over, in order.
        over: By our word, the vendor's for a job that is.
        cancels: Whether jobs can be cancelled.
        by_token: Tokens of text are billed beside items.
    """

    recovery: Literal["token", "list", "none"]
    takes: Literal["inline", "file", "start"] = "inline"
    gives: Literal["lines", "two files", "pages", "inline"] = "lines"
    bills: Literal["answered", "processed", "all"] = "answered"
    running: tuple[str, ...] = ("running",)
    over: dict[str, str] = field(default_factory=dict)
    cancels: bool = True
    by_token: bool = False

    def word(self, ours: str) -> str:
        return self.over.get(ours, ours)


DIALECTS = {
    "openai": Dialect(
        "list", takes="file", gives="two files", by_token=True,
        running=("validating", "in_progress", "finalizing"), over={"refused": "failed"},
    ),
    "anthropic": Dialect(
        "none", running=("in_progress",),
        over=dict.fromkeys(("completed", "expired", "cancelled"), "ended"),
    ),
    "gemini": Dialect(
        "list", gives="inline", running=("JOB_STATE_PENDING", "JOB_STATE_RUNNING"),
        over={"completed": "JOB_STATE_SUCCEEDED", "refused": "JOB_STATE_FAILED"},
    ),
    "bedrock": Dialect(
        "token", takes="file", bills="processed", running=("Submitted", "InProgress"),
        over={"completed": "Completed", "expired": "PartiallyCompleted", "cancelled": "Stopped"},
    ),
    "snowflake": Dialect("token", gives="pages", running=("202",), over={"completed": "200"}),
    "apify": Dialect("list", running=("READY", "RUNNING"), over={"expired": "TIMED-OUT"}),
    "neverbounce": Dialect(
        "list", takes="start", bills="all", running=("parsing", "running"), cancels=False
    ),
    "geoapify": Dialect("none", running=("pending",), cancels=False),
}  # fmt: skip
