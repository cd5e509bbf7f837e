"""Lookups whose answers come from jobs of a vendor, declared with @jobs: submit, poll, fetch."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from jobs.declare.chains import levels
from jobs.declare.coroutine_lookup import CoroutineLookup, Row
from jobs.declare.limits.budgets import Budget
from jobs.declare.lookup import Lookup
from jobs.declare.services import Service
from jobs.declare.values.prices import SENT
from jobs.declare.values.type_checks import require_count
from jobs.errors import DeclarationError

Recovery = Literal["token", "list", "none"]
METHODS = {"submit": 3, "state": 2, "results": 2, "find": 2, "cancel": 2}  # -> arguments
OPTIONAL = ("find", "cancel")
RETRY_PAUSE = timedelta(seconds=30)


@dataclass(frozen=True)
class Item:
    """A key of a job.

    Attributes:
        id: 22 characters of A-Z a-z 0-9 - and _, the same for the key in every job; the results
            name their item by it.
        row: The keys of the lookup.
    """

    id: str
    row: Row


@dataclass(frozen=True)
class Running:
    """The job is not over.

    Attributes:
        done: Finished items, if the vendor tells them.
        total: Has no effect, because a run knows how many items it submitted.
    """

    done: int | None = None
    total: int | None = None

    def __post_init__(self) -> None:
        _require_fields(self, int | None, "done", "total")


@dataclass(frozen=True)
class Over:
    """The job has ended, and its results, however many, can be read.

    Attributes:
        reason: The vendor's word.
    """

    reason: str = "completed"

    def __post_init__(self) -> None:
        _require_fields(self, str, "reason")


@dataclass(frozen=True)
class Refused:
    """The vendor refused the job as a whole and billed nothing.

    Attributes:
        reason: The vendor's first error.
        later: Whether the vendor may take the job later, as when its queue is full: the items are
            then submitted again. Otherwise the request is wrong, and the run ends.
    """

    reason: str
    later: bool = False

    def __post_init__(self) -> None:
        _require_fields(self, str, "reason")
        _require_fields(self, bool, "later")


@dataclass(frozen=True)
class Failed:
    """An item without an answer.

    Attributes:
        reason: The vendor's words.
        again: Whether the item may be sent again, up to `retry.retries` times.
        billed: Whether the vendor bills the item all the same.
    """

    reason: str
    again: bool = True
    billed: bool = False

    def __post_init__(self) -> None:
        _require_fields(self, str, "reason")
        _require_fields(self, bool, "again", "billed")


class NotKnownYet:
    """What `find` returns if the vendor may list the job later: it is asked again."""


NOT_KNOWN_YET = NotKnownYet()

Answer = Mapping[str, Any] | Failed | None


def _require_fields(result: object, wanted: Any, *names: str) -> None:
    """Refuse a value of a wrong type where a class makes it, as of a vendor's error object."""
    for name in names:
        value = getattr(result, name)
        if not isinstance(value, wanted):
            kind, found = getattr(wanted, "__name__", str(wanted)), type(value).__name__
            raise TypeError(f"{type(result).__name__}.{name} must be {kind}, not {found}")


@dataclass(frozen=True, kw_only=True)
class JobLookup(CoroutineLookup):
    """A class that submits the keys of a day as jobs of a vendor, and reads their results later.

    The driver submits, before any row, and stores the results in the ledger; rows find them there.
    A job's keys are stored durably before its request leaves, so no run submits a key that another
    run, also a killed run, has submitted. A day whose jobs are not over ends as `waiting`; the same
    command continues.

    Attributes:
        function: The class; @jobs sets it.
        timeout: None: rows wait for no job.
        attempt_timeout: Seconds for a request.
        recovery: How a job is recovered whose submission was interrupted. "token": the same submit
            with the same token again is safe. "list": `find` finds it. "none": its rows are
            `unknown`, and it is never submitted again, until `tidegate jobs forget`.
        max_items: Highest number of items in a job.
        give_up: Time after which a job that is not over counts as lost: it is cancelled, and its
            items are errors.
        poll_every: Time until the first look at a job; later looks come up to 20 times as late.
    """

    timeout: float | None = None
    attempt_timeout: float | None = 300.0
    recovery: Recovery
    max_items: int
    give_up: timedelta
    poll_every: timedelta = RETRY_PAUSE

    kind = "jobs"

    @property
    def longest_submit(self) -> float:
        """Seconds after which a submission is interrupted: those of an upload and of a request."""
        return 2 * (self.attempt_timeout or 300.0)

    @property
    def grace(self) -> float:
        """Seconds after give_up in which a cancelled job may still end, and an outage pass."""
        return min(self.give_up.total_seconds(), 3600.0)

    def _check_function(self) -> None:
        if not inspect.isclass(self.function):
            raise DeclarationError("@jobs must decorate a class with submit, state and results.")
        for name, count in METHODS.items():
            self._check_method(name, count)
        if (self.recovery == "list") != hasattr(self.function, "find"):
            raise DeclarationError(
                'recovery="list" and the method find belong together: find recovers the job whose '
                "submission was interrupted."
            )
        require_count("max_items", self.max_items)
        if self.give_up <= timedelta(0) or self.poll_every <= timedelta(0):
            raise DeclarationError(
                f"give_up is {self.give_up}, poll_every {self.poll_every}; both must be over 0."
            )
        self._refuse_what_jobs_lack()

    def _check_method(self, name: str, count: int) -> None:
        method = getattr(self.function, name, None)
        if method is None:
            if name in OPTIONAL:
                return
            raise DeclarationError(f"the class has no method {name}; jobs need one.")
        is_right = inspect.isasyncgenfunction if name == "results" else inspect.iscoroutinefunction
        if not is_right(method):
            why = " that yields" if name == "results" else ""
            raise DeclarationError(f"{name} must be an async def{why}.")
        if len(inspect.signature(method).parameters) != count + 1:  # self
            raise DeclarationError(f"{name} must take self and {count} arguments.")

    def _refuse_what_jobs_lack(self) -> None:
        if self.timeout is not None:
            raise DeclarationError("timeout: rows wait for no job; declare give_up instead.")
        if self.cache is None or not self.idempotent:
            raise DeclarationError(
                "a job asks each key once and is never repeated; leave cache and idempotent out."
            )
        if self.ttl.ok is not None and self.ttl.ok < self.give_up:
            raise DeclarationError(
                f"ttl.ok is {self.ttl.ok}, and give_up {self.give_up}: answers would expire while "
                "the day waits for others; raise ttl.ok, or lower give_up."
            )
        for name in ("rate", "adaptive"):
            if getattr(self.service, name):
                raise DeclarationError(
                    f"service {self.service.name}: {name} is not supported for jobs; give them a "
                    "Service without it."
                )
        self._refuse_at_most(f"service {self.service.name}", self.service.budget)
        for price in self.prices:
            if price.unit not in SENT and price.at_most is None:
                raise DeclarationError(
                    f"service {self.service.name}: only results report how many {price.unit}s an "
                    "item cost, and an open job counts at its most; declare the most of an item "
                    "in the price, such as at_most=2_000."
                )

    def _refuse_at_most(self, where: str, budgets: Iterable[Budget]) -> None:
        for budget in budgets:
            if budget.at_most is not None:
                raise DeclarationError(
                    f"{where}: budget: at_most is {budget.at_most!r}, the most that a call costs, "
                    f"and lookup {self.name} makes no calls but jobs; leave it out, and declare "
                    "the most of an item in each price that needs it, such as at_most=2_000."
                )

    def check_in(
        self, *, has_ledger: bool, budgets: Iterable[Budget], below: Iterable[Lookup]
    ) -> None:
        """Raise DeclarationError if an enrichment does not fit its jobs.

        Args:
            has_ledger: Whether it has a ledger.
            budgets: Its own budgets.
            below: Its lookups on whose answers the keys depend.
        """
        for read in below:
            if read.ttl.ok is not None and read.ttl.ok < self.give_up:
                raise DeclarationError(
                    f"lookup {self.name} reads answers of {read.name}, whose ttl.ok is "
                    f"{read.ttl.ok}, and give_up is {self.give_up}: the answers would expire while "
                    "the day waits, and new ones make new keys, which are submitted again; raise "
                    f"{read.name}'s ttl.ok, or lower give_up."
                )
        if self.prices:  # other lookups are not in its budgets
            self._refuse_at_most("enrichment", budgets)
        if not has_ledger:
            raise DeclarationError(
                f"lookup {self.name}: jobs need a ledger, which remembers what was submitted."
            )

    @property
    def trusts(self) -> str | None:
        return None


def jobs(
    *,
    service: Service,
    keys: Mapping[str, str],
    returns: str,
    recovery: Recovery,
    max_items: int,
    give_up: timedelta,
    name: str | None = None,
    **fields: Any,
) -> Callable[[type], JobLookup]:
    """Turn the decorated class into a lookup.

    Args:
        service: The vendor; its max_concurrency is the highest number of open jobs of this lookup.
        keys: Name -> Spark SQL expression over the input's columns.
        returns: Spark DDL of the answer's columns.
        recovery: How a job is recovered whose submission was interrupted: token, list or none.
        max_items: Highest number of items in a job.
        give_up: Time after which a job that is not over counts as lost.
        name: Name of the lookup; by default the name of the class in lower case.
        fields: Further fields of JobLookup, such as version, retry, ttl, poll_every.

    Returns:
        The decorator, which returns the lookup in place of the class.

    Raises:
        DeclarationError: The declaration is wrong.
    """

    def declare(vendor: Any) -> JobLookup:
        named = getattr(vendor, "__name__", "")
        return JobLookup(
            name=name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", named).lower(),
            service=service,
            keys=keys,
            returns=returns,
            function=vendor,
            recovery=recovery,
            max_items=max_items,
            give_up=give_up,
            **fields,
        )

    return declare


def places_of_jobs(lookups: Sequence[Lookup]) -> list[int]:
    """Return the places of the lookups with jobs whose keys read no answers."""
    return [
        place
        for place, level in enumerate(levels(lookups))
        if not level and isinstance(lookups[place], JobLookup)
    ]


def refuse_jobs(lookups: Iterable[Lookup], command: str) -> None:
    """Refuse lookups that submit jobs, for which this command cannot wait.

    Raises:
        DeclarationError: A lookup submits jobs.
    """
    for lookup in lookups:
        if isinstance(lookup, JobLookup):
            raise DeclarationError(
                f"lookup {lookup.name}: {command} submits no jobs, as it cannot wait for them; "
                "`tidegate run` does."
            )
