"""The base of declared lookups: frozen, checked at construction, free of Spark."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import urlsplit

from jobs.declare.ledger_settings import Ttl
from jobs.declare.limits.adaptive import Adaptive
from jobs.declare.limits.budgets import Budget
from jobs.declare.limits.rates import REQUEST, Rate
from jobs.declare.services import Cache, Outage, Retry, Service
from jobs.declare.values.fingerprint import NOT_IN_FINGERPRINT, WHERE_DECLARED
from jobs.declare.values.prices import prices_of_model, reported_units, singular
from jobs.declare.values.type_checks import require_name, require_types
from jobs.errors import DeclarationError, naming
from jobs.schema.records import ChoiceFacts, LookupFacts, PriceFacts
from jobs.wording import did_you_mean

if TYPE_CHECKING:
    from jobs.declare.answers.answer_casts import AnswerColumn
    from jobs.declare.values.env import Env

Policy = Literal["null", "dead_letter", "fail"]

Key = tuple[Any, ...]  # the values that a lookup sends, in the order of `keys`


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """The fields of every lookup.

    Attributes:
        name: Prefix of the columns that it adds: lower-case letters, digits and _.
        keys: Name -> Spark SQL expression over the input's columns, and over the answer columns and
            `<lookup>_status` of lookups before it.
        returns: Spark DDL of the answer's columns, all nullable.
        timeout: Seconds over all attempts and the waits between them, from the first call; None
            waits without limit.
        retry: How transient failures of calls are retried.
        on_null_key: Of a row with a null in its key: "skip" makes no call, "fail" fails the run.
        on_miss: Policy for a row whose key the service does not have. "null": its answer is null;
            "dead_letter": its answer is null, and the table's dead letters list the row with its
            reason; "fail": the run fails.
        on_timeout: The same for a row whose time limit expired.
        on_error: The same for a row that ended as an error, as unknown, or was not asked, which
            fails no run.
        ranges: Column -> (smallest, largest) of an answer that is a number, None for no bound.
        null_share: Column -> largest share of nulls among ok rows, 0 to 1. Like ranges, it is
            checked on the output, not during the run.
        cache: Reuses answers within a task, and makes equal requests in flight a single call; with
            None every row makes a call.
        ttl: How long a stored answer replaces a call.
        idempotent: False for a call that must not be made twice: the ledger marks the call before
            it is made, and no run repeats it. If a crash loses the answer, the row is `unknown`.
        version: Raise it to repeat all calls.
        when: Spark SQL condition over what keys may read. A row for which it is false or null makes
            no call and ends as `skipped`, whatever `on_null_key` is.
        choice: Set by a waterfall of which the lookup is a vendor.
        source: Set by an enrichment with a waterfall: the lookup, or its waterfall, as the user
            wrote it.
    """

    name: str
    keys: Mapping[str, str]
    returns: str
    timeout: float | None
    retry: Retry = field(default_factory=Retry)
    on_null_key: Literal["skip", "fail"] = "skip"
    on_miss: Policy = "null"
    on_timeout: Policy = "dead_letter"
    on_error: Policy = "dead_letter"
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    null_share: Mapping[str, float] = field(default_factory=dict)
    cache: Cache | None = field(default_factory=Cache)
    ttl: Ttl = field(default_factory=Ttl)
    idempotent: bool = True
    version: int = 1
    when: str | None = field(default=None, metadata=WHERE_DECLARED)
    choice: ChoiceFacts | None = field(default=None, metadata=WHERE_DECLARED, repr=False)
    source: Any = field(default=None, metadata=NOT_IN_FINGERPRINT, repr=False)

    kind = "lookup"
    model: ClassVar[str | None] = None  # whose prices hold
    bill: ClassVar[Mapping[str, str | int]] = {}  # unit -> where an answer reports its number
    repair: ClassVar[int] = 0  # requests for another answer where one does not fit
    finish_after_timeout = False  # a call without a waiting row is cancelled
    # a slow call is not made a second time
    hedge_after: ClassVar[float | Literal["p95"] | None] = None

    def __post_init__(self) -> None:
        require_name("lookup", self.name)
        with naming(f"lookup {self.name}"):
            self._check_types()
            self._check()

    def _check_types(self) -> None:
        require_types(self)

    def _check(self) -> None:
        if self.timeout is not None and not 0 < self.timeout < math.inf:
            raise DeclarationError(
                f"timeout is {self.timeout} s; it must be over 0, or None to wait without limit."
            )
        attempt = getattr(self, "attempt_timeout", None)
        if attempt is not None and not 0 < attempt < math.inf:
            raise DeclarationError(f"attempt_timeout is {attempt} s; it must be over 0.")
        self._check_keys()
        self._require_columns(ranges=self.ranges, null_share=self.null_share)
        self._check_ranges()
        for column, share in self.null_share.items():
            if not 0 <= share <= 1:
                raise DeclarationError(
                    f"null_share: {column} is {share}; it is a share of the ok rows, from 0 to 1."
                )
        self._check_units()
        if not self.repeatable and (self.retry.retries > 0 or self.cache is None):
            raise DeclarationError(
                "idempotent=False: a repeated call, or one for each of two equal rows, may act "
                "twice; write retry=Retry(retries=0), and leave the cache on."
            )

    def _check_ranges(self) -> None:
        """Refuse a range that answers_in_range could not judge, or that no answer is in."""
        for column in self.columns:
            low, high = self.ranges.get(column.name, (None, None))
            if (low is not None or high is not None) and not column.is_number:
                raise DeclarationError(
                    f"ranges: {column.name} is {column.spark_type}; only a number has a range."
                )
            lowest = -math.inf if low is None else low
            highest = math.inf if high is None else high
            if not lowest <= highest:  # false of NaN too
                raise DeclarationError(
                    f"ranges: {column.name} is ({low}, {high}); write the smallest value, then the "
                    "largest."
                )

    def _check_units(self) -> None:
        if self.http_service is not None and self.http_service.prices and not self.prices:
            named = sorted({str(price.model) for price in self.http_service.prices})
            needs = "declare model" if self.model is None else f"none is for {self.model!r}"
            raise DeclarationError(
                f"model: its service has prices for the models {', '.join(named)}; {needs}."
            )
        reported = self.billed_units()
        for kind, unit in [
            *(("price per", unit) for unit in reported_units(self.prices)),
            *(("rate of", rate.unit) for rate in self.rates if rate.unit != REQUEST),
        ]:
            if reported is not None and unit not in reported:
                raise DeclarationError(
                    f"bill: its service has a {kind} {unit}, and bill does not say where an answer "
                    f'reports {unit}s; write bill={{"{unit}s": "$.usage.{unit}s"}}, or report them '
                    "from a coroutine with http.bill(...)."
                )

    def billed_units(self) -> Collection[str] | None:
        """Return the units that its answers report; None if its code reports them."""
        return {singular(unit) for unit in self.bill}

    def _require_columns(self, **named: Collection[str]) -> None:
        """Raise DeclarationError for a name in a field that is no column of `returns`."""
        answers = [column.name for column in self.columns]
        for field_name, names in named.items():
            if unknown := sorted({*names} - {*answers}):
                raise DeclarationError(
                    f"{field_name}: {unknown[0]!r} is not a column of returns "
                    f"({', '.join(sorted(answers))}).{did_you_mean(unknown[0], answers)}"
                )

    def _check_keys(self) -> None:
        from jobs.declare.values.key_expressions import (
            columns_in,  # not above: a worker needs no SQL parser, and it is 40 MB
        )

        if not self.keys:
            raise DeclarationError(
                "keys is empty; it must name at least one key and the Spark SQL that gives it."
            )
        by_lower_name: dict[str, str] = {}
        for name, expression in self.keys.items():
            columns_in(f"keys.{name}", expression)
            if by_lower_name.setdefault(name.lower(), name) != name:  # keys are fields of a struct
                first = by_lower_name[name.lower()]
                raise DeclarationError(
                    f"keys: {first!r} and {name!r} differ only in case, which Spark ignores; "
                    "rename one."
                )
        if self.when is not None:
            columns_in("when", self.when)

    @property
    def as_written(self) -> Lookup:
        """The lookup with the keys and the condition that the user wrote, for texts to users."""
        written: Sequence[Lookup] = getattr(self.source, "of", [self.source or self])
        return next(vendor for vendor in written if vendor.name == self.name)

    @property
    def key_sql(self) -> dict[str, str]:
        """The expressions that a row's key is made of: null where `when` does not hold."""
        if self.when is None:
            return dict(self.keys)
        return {
            name: f"CASE WHEN {enclosed(self.when)} THEN {enclosed(text)} END"
            for name, text in self.keys.items()
        }

    def reads(self, columns: Collection[str]) -> bool:
        """Return whether a key or `when` reads one of these columns, ignoring case, as Spark does.

        Args:
            columns: Names of columns of the input, or of answers.
        """
        wanted = {column.lower() for column in columns}
        return any(name.lower() in wanted for _, name in self.columns_read())

    def columns_read(self) -> Iterator[tuple[str, str]]:
        """Yield the field and the name of each column that a key or `when` reads."""
        from jobs.declare.values.key_expressions import columns_in

        for key, text in self.keys.items():
            yield from ((f"keys.{key}", name) for name in sorted(columns_in(f"keys.{key}", text)))
        if self.when is not None:
            yield from (("when", name) for name in sorted(columns_in("when", self.when)))

    @functools.cached_property
    def columns(self) -> tuple[AnswerColumn, ...]:
        """The columns of an answer; they travel to the workers with the lookup."""
        from jobs.declare.answers.answer_types import read_ddl

        return read_ddl(self.returns)

    @functools.cached_property
    def written(self) -> tuple[AnswerColumn, ...]:
        """The columns of an answer as a run writes them: a waterfall's vendor has its own."""
        if self.choice is None:
            return self.columns
        return tuple(
            replace(column, name=self._written_name(column.name)) for column in self.columns
        )

    def answer_path(self, column: str) -> str:
        """Return where an answer has the value of a column: a JSON path, else a name.

        Args:
            column: A column of `returns`.
        """
        return column

    def _written_name(self, column: str) -> str:
        return column if self.choice is None else f"{self.name}_{column}"

    @property
    def _system(self) -> Any:
        """The object that declares name and limits: the HTTP service, else the lookup itself."""
        return self.http_service or self

    @property
    def concurrency(self) -> int:
        """Calls in flight over all tasks of a run."""
        return int(self._system.max_concurrency)

    @property
    def longest_call(self) -> float | None:
        """Highest number of seconds of a call; None without a limit."""
        return self.timeout

    @property
    def repeatable(self) -> bool:
        """Whether a call whose answer was lost may be made again."""
        return self.idempotent

    @property
    def denial_settles(self) -> bool:
        """Whether a call that ended in denied access has done nothing."""
        return False

    @property
    def batch_size(self) -> int:
        """Highest number of keys in a call."""
        return 1

    @property
    def service_name(self) -> str:
        """The service's name in messages."""
        return str(self._system.name)

    @property
    def service_key(self) -> tuple[str, str]:
        """Equal for lookups of the same service, which share its gate and calls in flight."""
        return self.kind, self.service_name

    @property
    def address(self) -> str:
        """The service's address without secrets; empty if unknown."""
        if self.http_service is None:
            return ""
        return urlsplit(self.http_service.base_url).netloc.rpartition("@")[2]

    @property
    def prices(self) -> tuple[PriceFacts, ...]:
        """The service's prices of its model."""
        service = self.http_service
        declared = () if service is None else tuple(price.facts for price in service.prices)
        return prices_of_model(declared, self.model)

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The service's rates."""
        return tuple(getattr(self._system, "rate", ()))

    @property
    def adaptive(self) -> Adaptive | None:
        """How the service's capacity is found; None if it is fixed."""
        return None if self.http_service is None else self.http_service.adaptive

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The service's budgets."""
        return () if self.http_service is None else tuple(self.http_service.budget)

    @property
    def http_service(self) -> Service | None:
        """The declared service of a lookup over HTTP."""
        service = getattr(self, "service", None)
        return service if isinstance(service, Service) else None

    def variables(self) -> Iterator[Env]:
        """Yield the environment variables that its calls need."""
        yield from () if self.http_service is None else self.http_service.variables()

    @property
    def trusts(self) -> str | None:
        """What its answers do not prove and the lookup trusts; None if it trusts nothing."""
        return None

    @property
    def judges_answers(self) -> bool:
        """Whether the declaration marks some answers as errors, stored for the errors' ttl."""
        return False

    @property
    def spills_outage(self) -> bool:
        """Whether the next vendor of its waterfall is asked if its service is down."""
        choice = self.choice
        return choice is not None and choice.spills_outage and self.name != choice.vendors[-1]

    @property
    def outage_rule(self) -> Outage:
        found: Outage = self._system.outage
        return found

    def request_facts(self) -> dict[str, Any]:
        """Return the facts that a raw answer depends on, without secrets.

        The ledger answers while they are unchanged.
        """
        return {"kind": self.kind, "keys": list(self.keys), "version": self.version}

    def facts(self) -> LookupFacts:
        retries = self.retry.retries
        return LookupFacts(
            name=self.name,
            kind=self.kind,
            service=self.service_name,
            returns=tuple((column.name, column.spark_type) for column in self.written),
            paths=tuple(
                (self._written_name(column.name), self.answer_path(column.name))
                for column in self.columns
            ),
            choice="" if self.choice is None else self.choice.name,
            timeout=self.timeout,
            max_concurrency=self.concurrency,
            keys=tuple(self.key_sql.items()),
            when=self.when or "",
            batch_size=self.batch_size,
            retries=retries,
            initial_delay=self.retry.initial_delay if retries else 0.0,
            max_delay=self.retry.max_delay if retries else 0.0,
            multiplier=self.retry.multiplier,
            ranges=tuple(
                (self._written_name(name), low, high) for name, (low, high) in self.ranges.items()
            ),
            null_share=tuple(
                (self._written_name(name), share) for name, share in self.null_share.items()
            ),
            dead_letters=self.dead_letters,
            prices=self.prices,
            version=self.version,
            asks_once=self.cache is not None,
        )

    @property
    def dead_letters(self) -> tuple[str, ...]:
        """The outcomes whose policy is dead_letter."""
        policies = {"miss": self.on_miss, "timeout": self.on_timeout}
        policies |= dict.fromkeys(("error", "unknown", "not_asked"), self.on_error)
        return tuple(outcome for outcome, policy in policies.items() if policy == "dead_letter")


def enclosed(sql: str) -> str:
    """Return an expression in parentheses; a comment at its end does not reach them."""
    return f"({sql}\n)" if "--" in sql else f"({sql})"


def service_identity(lookup: Lookup) -> str:
    """Return a text that is equal for lookups, of any run, that call the same service."""
    kind, name = lookup.service_key
    return f"{kind} {name} at {lookup.address}" if lookup.address else f"{kind} {name}"
