"""An answer that comes in pages, asked for one after the other and put together again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from yarl import URL

from jobs.clients.client import CallFailed
from jobs.clients.http_session import Response, ServiceSession
from jobs.declare.addresses import is_below, with_parameter
from jobs.declare.batch import Pages
from jobs.declare.json_paths import JsonPath
from jobs.declare.lookup import Key


class PageReader:
    """Follows `next` from page to page. Pages are asked for at the service's own address only: our token goes along.

    All pages are one attempt: one time limit, one largest size, and a failure at any of them fails the answer.
    """

    def __init__(self, rule: Pages, session: ServiceSession, *, attempt_timeout: float | None) -> None:
        self._rule = rule
        self._session = session
        self._attempt_timeout = attempt_timeout
        self._next = JsonPath("pages.next", rule.next)
        self._items = None if rule.items is None else JsonPath("pages.items", rule.items)

    async def request(
        self, url: URL, *, keys: Sequence[Key], misses: Collection[int], check: Callable[[Response], None]
    ) -> Response:
        """All pages, as one response. keys: whose answer it is. misses: statuses of the first page. check: called with
        every page.
        """
        pages: list[Response] = []
        try:
            async with asyncio.timeout(self._attempt_timeout):
                await self._follow(url, pages, keys, misses, check)
        except TimeoutError as error:
            raise CallFailed(
                f"no answer within {self._attempt_timeout} s, with {len(pages)} pages read", passing=True
            ) from error
        return pages[0] if pages[0].is_miss else replace(pages[0], content=self._together(pages))

    async def _follow(
        self,
        first: URL,
        pages: list[Response],
        keys: Sequence[Key],
        misses: Collection[int],
        check: Callable[[Response], None],
    ) -> None:
        asked: list[URL] = []
        following: URL | None = first
        while following is not None:
            if following in asked:
                raise self._wrong(f"page {len(asked) + 1} is page {asked.index(following) + 1} again")
            if len(asked) == self._rule.max_pages:
                raise self._wrong(f"the answer has more than {self._rule.max_pages} pages (max_pages)")
            asked.append(following)
            received = sum(page.size for page in pages)
            page = await self._session.request(
                "GET", following, misses=() if pages else misses, received=received, items=0 if pages else 1, keys=keys
            )
            pages.append(page)
            if page.is_miss:
                return
            check(page)
            following = self._following(page.content, first, following)

    def _following(self, page: Any, first: URL, current: URL) -> URL | None:
        """Where the next page is, if there is one."""
        value = self._next.value(page)
        if value is None or value is False or value == "":
            return None
        if self._rule.parameter is not None:
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise self._wrong(f"{self._rule.next} is {value!r}, no value for {self._rule.parameter}")
            return with_parameter(first, self._rule.parameter, str(value))
        if not isinstance(value, str):  # an object that holds the address, say
            raise self._wrong(f"{self._rule.next} is {value!r}, no address of a page")
        try:
            link = current.join(URL(value)).with_fragment(None)
            elsewhere = link.origin()
        except (ValueError, TypeError) as error:
            raise self._wrong(f"{self._rule.next} is {value!r}, no address of a page") from error
        if elsewhere != _as_links_are(first).origin() or link.user is not None:
            raise self._wrong(
                f"the next page is said to be at {elsewhere}; pages are asked for at {first.origin()} only"
            )
        if not is_below(self._session.base_url, link):
            raise self._wrong(
                f"the next page is said to be at {link.raw_path!r}, which is not below the service's url; it is not "
                "asked for"
            )
        return link

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
            lists[0].extend(more)  # where it lies in the first page
        return pages[0].content

    def _wrong(self, reason: str) -> CallFailed:
        return CallFailed(self._session.masked(reason), passing=False)


def _as_links_are(page: URL) -> URL:
    """With host and port as yarl writes those of a link; ours are as declared."""
    return URL(str(page))
