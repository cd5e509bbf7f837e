"""The base of clients over a ServiceSession, which they open, close and query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jobs.declare.lookup import Key

if TYPE_CHECKING:  # aiohttp: only clients that use it load it
    from jobs.clients.http.http_session import ServiceSession


class SessionClient:
    _session: ServiceSession

    def masked(self, text: str) -> str:
        return self._session.masked(text)

    def fallback(self, key: Key) -> None:  # noqa: ARG002  # an HTTP service has no fallback
        return None

    async def open(self) -> None:
        await self._session.open()

    async def close(self) -> None:
        await self._session.close()

    def tell_doubt(self, tell: Callable[[Sequence[Key]], None]) -> None:
        """Register `tell`, which is called with keys whose answers turn out to be of other keys."""
        self._session.tell_doubt(tell)

    def note_used_up(self, note: Callable[[float], None]) -> None:
        """Register `note`: an answer says that a limit is used up, and in how many s it is not."""
        self._session.note_used_up(note)

    async def settle(self) -> None:
        """Wait until no answer can come into doubt any more; no call follows."""
        await self._session.settle()
