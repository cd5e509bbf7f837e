"""A token for the requests of a process, renewed before it expires."""

import asyncio
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from jobs.clients.client import CallFailed, Throttled
from jobs.clients.http.authorizer import Authorizer
from jobs.clients.http.secret_texts import without_secrets
from jobs.clients.http.token_request import TokenRequest
from jobs.errors import ServiceDown
from jobs.wording import counted

TOKEN_TRIES = 3
TOKEN_PAUSE = 0.5  # s between them, unless the server says how long
PATIENCE = 60.0  # s; a longer pause is not waited for when a task starts


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    renew_at: float  # both by the monotonic clock, which every loop uses
    ends_at: float


# by client, address and scope; only in this process's memory
_TOKENS: dict[tuple[str, ...], _Token] = {}


class TokenHeaders(Authorizer):
    """OAuth 2 client credentials: a token for all requests of this process.

    Spark runs the tasks of a slot in one process, so a run fetches a token per slot, not per task.
    One request at a time renews the token, in the background before it expires, and once after a
    401. Calls wait only while no token is valid.
    """

    def __init__(self, request: TokenRequest, service: str, renew_before: float) -> None:
        """Prepare the headers; `open` fetches the first token. A token is renewed `renew_before`
        seconds before its end.
        """
        super().__init__()
        self._request, self._service, self._renew_before = request, service, renew_before
        # the last two, as a late answer may be about the previous token
        self._tokens: tuple[str, ...] = ()
        self._renew_at = self._ends_at = 0.0
        self._paused_until = 0.0  # by the server of tokens
        self._taken = False  # the service accepted this token
        self._after_refusal = False  # fetched because the previous token got a 401
        self._refused: set[Hashable] = set()  # requests that got it
        self._fetching: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Fetch the first token, before any clock starts. Raises ServiceDown if that fails."""
        if self._takes_kept(asyncio.get_running_loop().time()):
            return
        for attempt in range(1, TOKEN_TRIES + 1):
            try:
                await self._fetch()
            except (CallFailed, Throttled) as failure:
                pause = failure.seconds if isinstance(failure, Throttled) else TOKEN_PAUSE
                if attempt == TOKEN_TRIES or pause > PATIENCE:
                    message = f"{self._service}: {failure} ({counted(attempt, 'try', 'tries')})."
                    raise ServiceDown(message) from None
                await asyncio.sleep(pause)
            else:
                return

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    async def headers(self) -> Mapping[str, str]:
        now = asyncio.get_running_loop().time()
        if (
            self._fetching is None
            and now >= min(self._renew_at, self._ends_at)
            and not self._takes_kept(now)
        ):
            if now < self._paused_until:
                if now < self._ends_at:
                    return self._headers
                raise self._request.paused(self._paused_until - now)
            self._fetching = asyncio.create_task(self._fetch(), name="tidegate token")
            self._fetching.add_done_callback(self._fetched)
        if now >= self._ends_at and self._fetching is not None:
            await asyncio.shield(self._fetching)
        return self._headers

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        # a waiting call raises it, or the next call retries
        if not task.cancelled() and task.exception() is not None:
            self._renew_at = asyncio.get_running_loop().time() + TOKEN_PAUSE

    def accepted(self, headers: Mapping[str, str], request: Hashable) -> None:
        if self._refused:
            self._refused.discard(request)
        if headers is self._headers:
            self._taken, self._after_refusal = True, False

    def refused(self, headers: Mapping[str, str], request: Hashable) -> bool:
        if headers is not self._headers:
            self._refused.add(request)
            return True  # already renewed
        if request in self._refused:  # with the previous token too, so it is not about the token
            return False
        kept = _TOKENS.get(self._request.client)
        if kept is not None and kept.text == self._tokens[0]:
            del _TOKENS[self._request.client]
        if self._after_refusal and not self._taken:
            return False
        self._after_refusal, self._taken, self._refused = True, False, {request}
        self._renew_at = self._ends_at = 0.0
        self._headers = {}
        return True

    def masked(self, text: str) -> str:
        kept = _TOKENS.get(self._request.client)
        tokens = self._tokens if kept is None else (kept.text, *self._tokens)
        return without_secrets(text, (*self._request.secrets, *tokens))

    async def _fetch(self) -> None:
        """Fetch a new token. Raises the errors of `TokenRequest.send`."""
        time = asyncio.get_running_loop().time
        try:
            token, life = await self._request.send()
        except Throttled as throttled:
            self._paused_until = time() + throttled.seconds
            raise
        now = time()
        renew_at = now + max(life - self._renew_before, life / 2)
        _TOKENS[self._request.client] = fetched = _Token(token, renew_at, now + life)
        self._use(fetched)

    def _takes_kept(self, now: float) -> bool:
        """Use a token that this process fetched meanwhile, if it stays valid long enough."""
        kept = _TOKENS.get(self._request.client)
        if kept is None or kept.text in self._tokens or now >= kept.renew_at:
            return False
        self._use(kept)
        return True

    def _use(self, token: _Token) -> None:
        self._headers = {"Authorization": f"Bearer {token.text}"}
        self._tokens = (token.text, *self._tokens[:1])
        self._taken = False
        self._renew_at, self._ends_at = token.renew_at, token.ends_at
