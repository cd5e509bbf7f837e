"""Authentication at services: names of environment variables, no secrets. Free of aiohttp."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal
from urllib.parse import urlsplit

from jobs.declare.values.env import Env
from jobs.declare.values.fingerprint import WHERE_DECLARED
from jobs.declare.values.type_checks import require_types
from jobs.errors import DeclarationError


@dataclass(frozen=True)
class ApiKey:
    """An API key in a header, or in a query parameter instead.

    Attributes:
        key: The variable that contains the key.
        header: Name of the header.
        query: Name of the query parameter for the key, in place of the header.
    """

    key: Env
    header: str = field(default="X-Api-Key", kw_only=True)
    query: str | None = field(default=None, kw_only=True, metadata=WHERE_DECLARED)

    def __post_init__(self) -> None:
        _require_names("api key", key=self.key)
        require_types(self, "auth")
        if not self.header or not all(letter.isalnum() or letter in "-_" for letter in self.header):
            raise DeclarationError(
                f"auth: header is {self.header!r}; it must be letters, digits, - and _."
            )
        if self.query == "":
            raise DeclarationError(
                "auth: query is empty; it must name a query parameter, as api_key, or be None."
            )


@dataclass(frozen=True)
class Bearer:
    """`Authorization: Bearer <token>`, for a token that another system renews.

    Attributes:
        token: The variable that contains the token.
    """

    token: Env

    def __post_init__(self) -> None:
        _require_names("bearer", token=self.token)


@dataclass(frozen=True)
class Basic:
    """HTTP Basic: a user and a password, in UTF-8.

    Attributes:
        user: The variable that contains the user.
        password: The variable that contains the password.
    """

    user: Env
    password: Env

    def __post_init__(self) -> None:
        _require_names("basic", user=self.user, password=self.password)


@dataclass(frozen=True, kw_only=True)
class OAuth2ClientCredentials:
    """OAuth 2 client credentials: one token per Python process of Spark.

    The token is renewed before it ends, and once after a 401.

    Attributes:
        token_url: Address for the token request (POST).
        client_id: The variable that contains the client's id.
        client_secret: The variable that contains the client's secret.
        scope: Scope of the token request.
        client_auth: Where the request sends id and secret: in the Authorization header, which RFC
            6749 requires every server to support, or in the body.
        refresh_before: Time before its end at which a token is renewed, at most half its life.
    """

    token_url: str | Env
    client_id: Env
    client_secret: Env
    scope: str | None = None
    client_auth: Literal["header", "body"] = "header"
    refresh_before: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        _require_names("oauth2", client_id=self.client_id, client_secret=self.client_secret)
        require_types(self, "auth")
        if isinstance(self.token_url, str):
            require_token_url(self.token_url)
        if self.refresh_before < timedelta(0):
            raise DeclarationError(
                f"auth: refresh_before is {self.refresh_before}; it must be 0 or more."
            )


Auth = ApiKey | Bearer | Basic | OAuth2ClientCredentials


def require_token_url(url: str) -> None:
    """Check the address. The DeclarationError does not show it, as it may contain a secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise DeclarationError(
            "auth: token_url is not an http:// or https:// address with a host and no password."
        )


def _require_names(kind: str, **values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, Env):  # without the value, which may be the secret
            raise DeclarationError(
                f'auth: {kind}: {name} is a {type(value).__name__}; it must be Env("NAME"), the '
                "name of an environment variable, as a declaration is no place for a secret."
            )
