"""Requests the pages of an answer in sequence, and joins them."""

import asyncio
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urljoin

from multidict import MultiMapping
from yarl import URL

from jobs.clients.client import CallFailed, DeclaredError, Throttled, Unclear, unsettled
from jobs.clients.http.http_session import ServiceSession, ask_renewing
from jobs.clients.http.responses import Response
from jobs.declare.answers.json_paths import JsonPath
from jobs.declare.batch import LINK, Pages
from jobs.declare.lookup import Key
from jobs.declare.values.addresses import (
    OF_ADDRESSES,
    is_below,
    leads_elsewhere,
    with_escapes,
    with_parameter,
)

ONE_LINK = re.compile(r'<([^>]*)>((?:"[^"]*"|[^<"])*)')
NEXT = re.compile(
    r""";\s*rel\s*=\s*(?:(["'])(?:[^"']*\s)?next(?:\s[^"']*)?\1|next\s*(?:[;,]|$))""",
    re.IGNORECASE,
)


def next_link(headers: MultiMapping[str]) -> str | None:
    """Return the address of rel="next" in the Link headers of a page; None without one."""
    links = ONE_LINK.findall(", ".join(headers.getall("Link", ())))
    return next((address for address, parameters in links if NEXT.search(parameters)), None)


class PageReader:
    """Follows `next` from page to page, only at the service, because credentials are sent.

    All pages are a single attempt: they share a time limit and a size limit, and a failed page
    fails the answer.
    """

    def __init__(
        self,
        rule: Pages,
        session: ServiceSession,
        *,
        attempt_timeout: float | None,
        repeatable: bool,
    ) -> None:
        self._rule = rule
        self._session = session
        self._repeatable = repeatable
        self._attempt_timeout = attempt_timeout
        self._next = None if rule.next == LINK else JsonPath("pages.next", rule.next)
        self._more = None if rule.more is None else JsonPath("pages.more", rule.more)
        self._items = None if rule.items is None else JsonPath("pages.items", rule.items)

    async def request(
        self,
        url: URL,
        *,
        keys: Sequence[Key],
        misses: Collection[int],
        check: Callable[..., None],
    ) -> Response:
        """Return all pages as a single response.

        Args:
            url: The first page.
            keys: The keys of the answer.
            misses: Statuses of a miss for the first page.
            check: Called with every page, and `is_first`.

        Raises:
            CallFailed: A page failed, or the time is over.
        """
        pages: list[Response] = []
        try:
            async with asyncio.timeout(self._attempt_timeout):
                await self._follow(url, pages, keys, misses, check)
        except TimeoutError as error:
            raise CallFailed(
                f"no answer within {self._attempt_timeout} s, with {len(pages)} pages read",
                passing=True,
            ) from error
        except (CallFailed, Throttled) as error:
            if self._repeatable or not pages:
                raise
            raise unsettled(error) from error  # a new call would ask for the first page again
        except DeclaredError as error:
            if self._repeatable or not pages:
                raise
            raise Unclear(str(error)) from error
        return pages[0] if pages[0].is_miss else replace(pages[0], content=self._together(pages))

    async def _follow(
        self,
        first: URL,
        pages: list[Response],
        keys: Sequence[Key],
        misses: Collection[int],
        check: Callable[..., None],
    ) -> None:
        asked: list[URL] = []
        following: URL | None = first
        while following is not None:
            if following in asked:
                raise self._wrong(
                    f"page {len(asked) + 1} is page {asked.index(following) + 1} again"
                )
            if len(asked) == self._rule.max_pages:
                raise self._wrong(
                    f"the answer has more than {self._rule.max_pages} pages (max_pages)"
                )
            asked.append(following)
            received = sum(page.size for page in pages)
            ask = partial(
                self._session.request, "GET", following,
                misses=() if pages else misses, received=received, items=0 if pages else 1,
                keys=keys,
            )  # fmt: skip
            page = await ask_renewing(ask, is_paid=bool(pages))
            if not page.is_miss:
                check(page, is_first=not pages)
            pages.append(page)
            if page.is_miss:
                return
            following = self._following(pages, first, following)

    def _following(self, pages: Sequence[Response], first: URL, current: URL) -> URL | None:
        """Return the address of the next page; None after the last page."""
        value = self._next_value(pages)
        if value is None or value is False or value == "":
            return None
        if self._rule.parameter is not None:
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise self._wrong(
                    f"{self._rule.next} is {value!r}, not a value for {self._rule.parameter}"
                )
            return with_parameter(first, self._rule.parameter, str(value))
        if not isinstance(value, str):  # such as an object with the address
            raise self._wrong(f"{self._rule.next} is {value!r}, not an address of a page")
        try:
            # as text, because yarl would undo escapes of the current page's path
            written = urljoin(str(current), value)
            link = URL(written).with_fragment(None)
            page = URL(with_escapes(written, OF_ADDRESSES), encoded=True).with_fragment(None)
            elsewhere = link.origin()
        except (ValueError, TypeError) as error:
            raise self._wrong(
                f"{self._rule.next} is {value!r}, not an address of a page"
            ) from error
        if (
            elsewhere != URL(str(first)).origin() or link.user is not None
        ):  # parsed again, because yarl normalizes links
            raise self._wrong(
                f"the next page is at {elsewhere}; pages are requested only at {first.origin()}"
            )
        if not is_below(self._session.base_url, link):
            raise self._wrong(
                f"the next page is at {link.raw_path!r}, which is not below the "
                "service's url; it is not requested"
            )
        is_same = URL(str(page)) == URL(str(link)) and not leads_elsewhere(page.raw_path)
        return page if is_same else link

    def _next_value(self, pages: Sequence[Response]) -> Any:
        """Return what leads to the next page; None after a page that says that it is the last."""
        page = pages[-1]
        more = None if self._more is None else self._more.value(page.content)
        if not (more is None or isinstance(more, bool)):
            raise self._wrong(f"{self._rule.more} is {more!r}, not true or false")
        # many services leave out a false; where no page had `more`, its path may be mistyped
        if (
            self._more is not None
            and not more
            and any(self._more.values(read.content) for read in reversed(pages))
        ):
            return None
        value = next_link(page.headers) if self._next is None else self._next.value(page.content)
        if more and value in (None, False, ""):
            raise self._wrong(f"{self._rule.more} is true, but {self._rule.next} leads nowhere")
        return value

    def _together(self, pages: list[Response]) -> Any:
        if self._items is None:
            return [page.content for page in pages]
        if len(pages) == 1:
            return pages[0].content
        lists = []
        for number, page in enumerate(pages, 1):
            found = self._items.value(page.content)
            if not isinstance(found, list):
                raise self._wrong(f"page {number} has no list at {self._rule.items}")
            lists.append(found)
        for more in lists[1:]:
            lists[0].extend(more)  # in its place in the first page
        return pages[0].content

    def _wrong(self, reason: str) -> Unclear:
        return Unclear(self._session.masked(reason))
