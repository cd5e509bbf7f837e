"""Calls the methods of a class that @jobs decorates, through the session of its service."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from jobs.clients.client import CallFailed, Throttled, Unclear
from jobs.clients.coroutine import Asking, CoroutineClient, Requests
from jobs.clients.http.http_session import ServiceSession
from jobs.clients.http.refusals import StatusFailed
from jobs.clients.request_counter import RequestCounts
from jobs.declare.lookup import Key
from jobs.declare.values.prices import priced_units
from jobs.declare.vendor_jobs import Answer, Item, JobLookup, NotKnownYet, Over, Refused, Running
from jobs.errors import AccessRefused, TidegateError
from jobs.schema.personal import PERSONAL, http_status
from jobs.wording import described, innermost_frame, one_line

# statuses of 400 to 499 after which a vendor may have taken the request: the gateway gave up
# (408, 499), or a copy of the request that the network repeated came second (409)
NO_REFUSAL = (408, 409, 499)
# ends of a job that repeat no personal key
ENDS = ("completed", "ended", "succeeded", "failed", "expired", "cancelled", "canceled")


class NotSubmitted(Exception):  # noqa: N818  # what happened
    """The vendor took no job.

    Attributes:
        later: The vendor takes it later.
        requests: Requests of the submission, of which it refused the last.
        about_us: The error that must stop the run.
    """

    def __init__(
        self,
        reason: str,
        *,
        later: bool = False,
        requests: int = 0,
        about_us: AccessRefused | None = None,
    ) -> None:
        super().__init__(reason)
        self.later, self.requests, self.about_us = later, requests, about_us


class InDoubt(Exception):  # noqa: N818  # what happened
    """The vendor may have taken the job."""


class NotNow(Exception):  # noqa: N818  # what happened
    """Asking the vendor about a job failed; nothing is lost, and a later request may succeed."""


class Unread(NotNow):
    """The vendor gave an answer that cannot be read, such as results that are paid for."""


class JobClient(CoroutineClient):
    """Maps stored results to columns in a task, which makes no call."""

    async def open(self) -> None:
        """Open nothing."""

    async def close(self) -> None:
        """Close nothing."""

    async def call(self, key: Key) -> Any:  # noqa: ARG002
        raise CallFailed(
            "its stored answer cannot be read, and no job is submitted while rows are enriched"
        )


class _Requests(Requests):
    """Requests about jobs, which the vendor must know: 404 is an error unless the class names it
    as a miss.
    """

    def get(self, path: str, *, miss: Collection[int] = (), **options: Any) -> Asking:
        return super().get(path, miss=miss, **options)

    def delete(self, path: str, *, miss: Collection[int] = (), **options: Any) -> Asking:
        return super().delete(path, miss=miss, **options)


@dataclass
class Reading:
    """What reading the results of a job tells besides the results.

    Attributes:
        billed: The units that the class billed.
        is_whole: HTTP marked the end of each answer; otherwise the connection may have been cut.
    """

    billed: Counter[str] = field(default_factory=Counter)
    is_whole: bool = True


class VendorSession:
    """The vendor of a lookup, for a look at its jobs; `async with` opens and closes it."""

    def __init__(self, lookup: JobLookup, *, hidden: bool, at_most: float | None = None) -> None:
        """Create it.

        Args:
            lookup: As declared.
            hidden: Whether keys are personal; errors may repeat them.
            at_most: Seconds for a request, if that is less than declared.
        """
        self._lookup, self._hidden = lookup, hidden
        self._vendor: Any = lookup.function()  # type: ignore[call-arg,misc]
        self._counts = RequestCounts(lookup=lookup.name, model=lookup.model)
        self._session = ServiceSession(
            lookup.service,
            lookup.service.max_concurrency,
            attempt_timeout=min(filter(None, (lookup.attempt_timeout, at_most)), default=None),
            max_answer_bytes=lookup.max_answer_bytes,
            throttled=lookup.throttled_when,
            counts=self._counts,
        )

    async def __aenter__(self) -> Self:
        await self._session.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def _requests(self) -> _Requests:
        units = set(priced_units(self._lookup.prices))
        return _Requests(self._session, self._counts, units, ())

    async def submit(self, items: Sequence[Item], token: str) -> str:
        """Submit a job, once. Returns the vendor's id.

        Raises:
            NotSubmitted: The vendor took no job: nothing was sent, or it refused the last request.
            InDoubt: Anything else went wrong.
        """
        before = self._counts.sent.total()
        try:
            async with asyncio.timeout(self._lookup.longest_submit), self._requests() as requests:
                job = await self._vendor.submit(items, token, requests)
        except Exception as error:
            reason, sent = self._words(error), self._counts.sent.total() - before
            if isinstance(error, TimeoutError) and not str(error):
                reason = f"its submission takes longer than {self._lookup.longest_submit:g} s"
            if isinstance(error, AccessRefused):
                refused = self._refused(error)
                raise NotSubmitted(str(refused), requests=sent, about_us=refused) from None
            if not sent:
                later = isinstance(error, CallFailed | Throttled | OSError)
                reason = reason if later else str(self.class_error(reason))
                raise NotSubmitted(reason, later=later) from error
            if self._is_refusal(error):
                later = not isinstance(error, StatusFailed)
                raise NotSubmitted(reason, later=later, requests=sent) from error
            raise InDoubt(reason) from error
        if not _is_id(job):
            raise InDoubt(f"submit gave {_named(job)}; it must give the id of the job")
        return str(job)

    def _is_refusal(self, error: Exception) -> bool:
        """Return whether the vendor took nothing: it said so, or got nothing."""
        if isinstance(error, CallFailed) and not error.may_have_acted:
            return True
        if not isinstance(error, Throttled | StatusFailed):
            return False
        return 400 <= error.status < 500 and error.status not in NO_REFUSAL

    async def state(self, job: str) -> Running | Over | Refused:
        """Return the job's state. Raises NotNow, AccessRefused, TidegateError."""
        found = await self._called("state", job)
        if not isinstance(found, Running | Over | Refused):
            raise self.class_error(
                f"state gave {type(found).__name__}; it must give Running, Over or Refused"
            )
        if isinstance(found, Running) or (isinstance(found, Over) and found.reason in ENDS):
            return found
        return replace(found, reason=self._shown(found.reason))

    async def find(self, token: str) -> str | None:
        """Return the id of the job with this token; None if the vendor has no such job.

        Raises NotNow, also where the vendor may list it later; AccessRefused, TidegateError.
        """
        found = await self._called("find", token)
        if isinstance(found, NotKnownYet):
            raise NotNow("the vendor does not list it yet")
        if found is not None and not _is_id(found):
            raise self.class_error(
                f"find gave {_named(found)}; it must give the id of the job, None or NOT_KNOWN_YET"
            )
        return None if found is None else str(found)

    async def cancel(self, job: str) -> bool:
        """Cancel the job; False if the class has no cancel. Raises as `state`."""
        if not hasattr(self._vendor, "cancel"):
            return False
        await self._called("cancel", job)
        return True

    async def results(self, job: str, reading: Reading) -> AsyncIterator[tuple[str, Answer]]:
        """Yield the results of the vendor's job; `reading` is set at the end. Raises as `state`."""
        try:
            async with self._requests() as requests:
                async for pair in self._vendor.results(job, requests):
                    yield pair
        except Exception as error:
            raise self._translated(error) from error
        reading.billed, reading.is_whole = requests.billed, requests.are_whole

    async def _called(self, name: str, argument: str) -> Any:
        try:
            async with self._requests() as requests:
                return await getattr(self._vendor, name)(argument, requests)
        except Exception as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, AccessRefused):
            return self._refused(error)
        if isinstance(error, TidegateError | NotNow):
            return error
        reason = self._words(error)
        if isinstance(error, Unclear):
            return Unread(reason)
        if isinstance(error, Throttled | OSError | CallFailed):
            return NotNow(reason)
        return self.class_error(reason)

    def _refused(self, error: AccessRefused) -> AccessRefused:
        return AccessRefused(error.without_reply) if self._hidden else error

    def _words(self, error: Exception) -> str:
        if isinstance(error, CallFailed | Throttled | TidegateError):
            return self._shown(str(error))
        # `try`, which shows personal keys, submits no jobs
        place = f"{self._place(error)}: " if self._hidden else ""
        return f"{place}{self._shown(described(error))}"

    def _place(self, error: Exception) -> str:
        """Return the type of an error, and its innermost line in the package of the class."""
        found = innermost_frame(error, self._vendor.submit.__module__.partition(".")[0])
        at = f" at line {found[1]} of {Path(found[0].f_code.co_filename).name}" if found else ""
        return f"{type(error).__name__}{at}"

    def _shown(self, text: str) -> str:
        """Return the vendor's words without secrets, and without what may be a personal key."""
        words = one_line(self._session.masked(text))
        return (http_status(words) or PERSONAL) if self._hidden else words

    def class_error(self, reason: str) -> TidegateError:
        """Return the error to raise for a fault of the decorated class."""
        return TidegateError(
            f"lookup {self._lookup.name}: its class {self._lookup.function.__name__} failed: "
            f"{reason}. Nothing was lost; correct it and start again."
        )


def _is_id(job: object) -> bool:
    return isinstance(job, str | int) and not isinstance(job, bool) and job != ""


def _named(value: object) -> str:
    """Return a wrong id without its content, which may repeat a key or a secret."""
    return "an empty text" if value == "" else type(value).__name__
