"""Services, with their limits, retries and outages."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from jobs.declare.auth import Auth
from jobs.declare.limits.adaptive import Adaptive, check_adaptive
from jobs.declare.limits.budgets import Budget, check_budgets
from jobs.declare.limits.rates import Rate, check_rates
from jobs.declare.values.env import Env, resolve, variables_in
from jobs.declare.values.fingerprint import NOT_IN_FINGERPRINT, WHERE_DECLARED
from jobs.declare.values.prices import Price, check_prices
from jobs.declare.values.type_checks import require_count, require_types
from jobs.errors import DeclarationError


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Retries of transient failures: 5xx, dropped connection, attempt time limit.

    The pause after attempt n is min(max_delay, initial_delay * multiplier**(n-1)) s, times
    uniform[1, 1 + jitter].

    Attributes:
        retries: Attempts after the first attempt.
        initial_delay: Seconds before the second attempt.
        max_delay: Longest pause, in seconds.
        multiplier: Growth of the pause with each further attempt, at least 1.
        jitter: Largest random share that is added to a pause.
    """

    retries: int = 3
    initial_delay: float = 0.1
    max_delay: float = 5.0
    multiplier: float = 2.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        require_types(self, "retry")
        if self.retries < 0:
            raise DeclarationError(
                f"retry: retries is {self.retries}; it must be 0 or more (attempts after the "
                "first)."
            )
        finite = all(
            map(math.isfinite, (self.initial_delay, self.max_delay, self.multiplier, self.jitter))
        )
        if (
            not finite
            or self.initial_delay <= 0
            or self.max_delay <= 0
            or self.multiplier < 1
            or self.jitter < 0
        ):
            raise DeclarationError(
                f"retry: delays are {self.initial_delay} s up to {self.max_delay} s, times "
                f"{self.multiplier}, jitter {self.jitter}; delays must be over 0, multiplier at "
                "least 1, jitter at least 0."
            )


@dataclass(frozen=True, kw_only=True)
class Cache:
    """A cache of answers and misses in each task, for equal keys; errors are not cached.

    Attributes:
        max_entries: Highest number of answers in a task; the least recently used are evicted
            first.
        ttl: Time to live of an entry; None for the whole task.
        max_bytes: Highest size of texts and lists of keys and answers in a task; the least recently
            used are evicted first.
    """

    max_entries: int = 10_000
    ttl: timedelta | None = None
    max_bytes: int = field(default=64 << 20, metadata=WHERE_DECLARED)

    def __post_init__(self) -> None:
        require_types(self, "cache")
        require_count("cache: max_bytes", self.max_bytes)
        if self.max_entries < 1 or (self.ttl is not None and self.ttl <= timedelta(0)):
            raise DeclarationError(
                f"cache: max_entries={self.max_entries}, ttl={self.ttl!r}; max_entries must be a "
                "whole number, at least 1, and ttl over 0 or None. Without a cache: cache=None."
            )


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A service is down after `after` consecutive failed rows, or if too many attempts fail.

    Then the gate closes: no call starts and record clocks stand still, except for probes every
    `probe_every`. After `wait_at_most` the run stops; it publishes nothing, and can continue later.
    Of a waterfall with `spill_on=["outage"]` it goes on with the next vendor.

    Attributes:
        after: Consecutive failed rows.
        probe_every: Time between two probes while the service is down.
        wait_at_most: Time after which the run stops.
        failing: Share of failed attempts, such as 0.5, among a task's attempts `within` this time,
            at least `after` of them, that is an outage too; None: only consecutive failures count.
        within: See `failing`.
    """

    after: int = 20
    probe_every: timedelta = timedelta(seconds=30)
    wait_at_most: timedelta = timedelta(minutes=30)
    failing: float | None = field(default=None, metadata=WHERE_DECLARED)
    within: timedelta = field(default=timedelta(minutes=1), metadata=WHERE_DECLARED)

    def __post_init__(self) -> None:
        require_types(self, "outage")
        if self.after < 1 or self.probe_every <= timedelta(0) or self.wait_at_most < timedelta(0):
            raise DeclarationError(
                f"outage: after={self.after}, probe_every={self.probe_every}, "
                f"wait_at_most={self.wait_at_most}; "
                "after must be at least 1, probe_every over 0, wait_at_most 0 or more."
            )
        if (self.failing is not None and not 0 < self.failing <= 1) or self.within <= timedelta(0):
            raise DeclarationError(
                f"outage: failing={self.failing}, within={self.within}; failing must be over 0 and "
                "at most 1 (a share of the attempts), or None, and within over 0."
            )


@dataclass(frozen=True, kw_only=True)
class Service:
    """An outside system and the limits of its calls.

    Attributes:
        name: Name of the service; all lookups that name it share its limits.
        url: Http or https; every request is below it.
        max_concurrency: Calls in flight over all tasks of a run, divided among the tasks that run
            at once.
        rate: At most so many requests, or units, in any period; a list of Rate. Like
            max_concurrency it holds over all runs that share their limits (docs/limits.md).
        adaptive: Finds how many calls in flight the service bears, up to max_concurrency; None: the
            limit is always max_concurrency.
        outage: When the service counts as down.
        stop_on: HTTP statuses about the client, not about a key; they stop the run with a
            sentence.
        auth: ApiKey, Bearer, Basic or OAuth2ClientCredentials; secrets are names of environment
            variables.
        prices: Prices by the day of the call; a changed price repeats no call.
        budget: The most that all runs together may spend here in a day or a month, a list of
            Budget; a run that would exceed it stops and can continue later (docs/limits.md).
        tenant: The owner of the answers, where a url and its variables serve several owners; part
            of the fingerprint of stored answers.
        proxy: Address, http:// or https://; by default that of HTTPS_PROXY, HTTP_PROXY and
            NO_PROXY, none for loopback.
        ca: PEM file of the trusted authorities, in place of the system's.
        client_certificate: PEM file of the client's certificate; it may contain the key too.
        client_key: PEM file of that certificate's key, if it is a separate file.
    """

    name: str
    url: str | Env
    max_concurrency: int
    outage: Outage = field(default_factory=Outage)
    stop_on: tuple[int, ...] = (401, 402, 403)
    auth: Auth | None = None
    prices: Sequence[Price] = field(default=(), metadata=NOT_IN_FINGERPRINT)
    rate: Sequence[Rate] = field(default=(), metadata=NOT_IN_FINGERPRINT)
    budget: Sequence[Budget] = field(default=(), metadata=NOT_IN_FINGERPRINT)
    adaptive: Adaptive | None = field(default=None, metadata=NOT_IN_FINGERPRINT)
    tenant: str | None = field(default=None, metadata=WHERE_DECLARED)
    proxy: str | Env | None = field(default=None, metadata=NOT_IN_FINGERPRINT)
    ca: str | Env | None = field(default=None, metadata=NOT_IN_FINGERPRINT)
    client_certificate: str | Env | None = field(default=None, metadata=NOT_IN_FINGERPRINT)
    client_key: str | Env | None = field(default=None, metadata=NOT_IN_FINGERPRINT)

    def __post_init__(self) -> None:
        for name, kind in (("prices", Price), ("rate", Rate), ("budget", Budget)):
            if isinstance(getattr(self, name), kind):
                object.__setattr__(self, name, (getattr(self, name),))
        require_types(self, f"service {self.name}")
        object.__setattr__(self, "stop_on", tuple(self.stop_on))
        if HTTPStatus.OK in self.stop_on:
            raise DeclarationError(
                f"service {self.name}: stop_on: 200 is the status of an answer; name statuses of a "
                "refusal, such as 403."
            )
        for name in ("prices", "rate", "budget"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check_rates(f"service {self.name}", self.rate)
        check_prices(f"service {self.name}", self.prices)
        check_budgets(f"service {self.name}", self.budget, self.prices)
        require_concurrency(f"service {self.name}", self.max_concurrency)
        check_adaptive(f"service {self.name}", self.adaptive, self.max_concurrency)
        if self.client_key is not None and self.client_certificate is None:
            raise DeclarationError(
                f"service {self.name}: client_key is declared without a client_certificate."
            )
        if isinstance(self.proxy, str) and "@" in self.proxy:
            raise DeclarationError(
                f'service {self.name}: proxy holds a user; it must be Env("NAME"), the name of an '
                "environment variable that holds the whole address."
            )
        if self.tenant == "":
            raise DeclarationError(
                f"service {self.name}: tenant is empty; it must be a name, or None."
            )
        if isinstance(self.url, str):
            require_http_url(f"service {self.name}", self.url)

    def variables(self) -> Iterator[Env]:
        """Yield the environment variables of a request."""
        yield from variables_in(self)
        yield from variables_in(self.auth) if self.auth else ()

    def request_facts(self) -> dict[str, Any]:
        """Return the facts that a stored answer depends on."""
        facts: dict[str, Any] = {"name": self.name, "url": self.url}
        return facts if self.tenant is None else facts | {"tenant": self.tenant}

    @property
    def base_url(self) -> str:
        """The resolved URL without a trailing slash. Raises DeclarationError if it is unusable."""
        url = resolve(self.url)
        require_http_url(f"service {self.name}", url, of=self.url)
        return url.rstrip("/")

    @property
    def shown_url(self) -> str:
        """`base_url` for messages; only scheme, host and port if it comes from the environment."""
        return without_path(self.base_url) if isinstance(self.url, Env) else self.base_url


def require_concurrency(where: str, max_concurrency: int) -> None:
    if max_concurrency < 1:
        raise DeclarationError(
            f"{where}: max_concurrency is {max_concurrency}; it must be a whole number, at least "
            "1 (calls in flight)."
        )


def require_http_url(where: str, url: str, *, of: str | Env = "") -> None:
    """Check the address of a service.

    Args:
        where: Start of the error message.
        url: The address.
        of: The declared value. An Env's value is never shown, as it may be a secret.

    Raises:
        DeclarationError: The address is not http or https, or has more than host, port and path.
    """
    try:
        parts = urlsplit(url)
        fits = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:  # a port that is not a number
        fits = False
    if not fits:
        # a password may precede an @
        shown = f"***@{url.rpartition('@')[2]}" if "@" in url else url
        value = f"url is Env({of.name!r}), whose value" if isinstance(of, Env) else f"url {shown!r}"
        raise DeclarationError(
            f"{where}: {value} is not an http:// or https:// address with a host."
        )
    if parts.query or parts.fragment or parts.username is not None:
        raise DeclarationError(
            f"{where}: url must be only scheme, host, port and path; put the rest into `request`."
        )


def without_path(url: str) -> str:
    """Return scheme, host and port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
