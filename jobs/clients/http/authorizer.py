"""Adds authentication to requests."""

from collections.abc import Hashable, Mapping
from types import MappingProxyType

from jobs.clients.http.secret_texts import without_secrets


class Authorizer:
    """Adds authentication to requests: headers, or a query parameter with its secret.

    Bound to the event loop of one partition.
    """

    def __init__(
        self,
        headers: Mapping[str, str] = MappingProxyType({}),
        secrets: tuple[str, ...] = (),
        parameter: tuple[str, str] | None = None,
    ) -> None:
        self._headers: Mapping[str, str] = headers
        self.parameter = parameter
        self._secrets = secrets

    async def open(self) -> None:
        """Fetch what the first request needs. Raises ServiceDown if that fails."""

    async def close(self) -> None:
        """End the requests that `open` and `headers` began."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers of a request.

        Raises:
            CallFailed: No token is available now.
            Throttled: The server of tokens asks to wait.
            AccessRefused: The server refuses a token.
        """
        return self._headers

    def accepted(self, headers: Mapping[str, str], request: Hashable) -> None:
        """Note that the service accepted these headers; `request` is equal for equal requests."""

    def refused(self, headers: Mapping[str, str], request: Hashable) -> bool:  # noqa: ARG002  # the headers never change
        """Handle a 401 to these headers; return True if the request is to be sent with new headers.

        `request` is equal for equal requests.
        """
        return False

    def masked(self, text: str) -> str:
        return without_secrets(text, self._secrets)
