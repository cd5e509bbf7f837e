"""The declaration of an enrichment, from which the program derives all else. Free of Spark."""

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from jobs.declare.chains import (
    check_chains,
    levels,
    lookups_below,
    personal_lookups,
    readable_columns,
)
from jobs.declare.inputs import Input
from jobs.declare.ledger_settings import Ledger
from jobs.declare.limits.budgets import Budget, check_budgets
from jobs.declare.lookup import Lookup
from jobs.declare.published.outputs import Output
from jobs.declare.published.shown import as_html, as_text
from jobs.declare.published.windows import Window
from jobs.declare.services import Service
from jobs.declare.values.calendar import is_cron, require_day, require_zone
from jobs.declare.values.fingerprint import NOT_IN_FINGERPRINT, WHERE_DECLARED, fields, fingerprint
from jobs.declare.values.table_conflicts import TablePath, find_own_conflict, tables_beside
from jobs.declare.values.type_checks import (
    require_folder_name,
    require_name,
    require_type,
    require_types,
)
from jobs.declare.vendor_jobs import JobLookup
from jobs.declare.waterfall import Waterfall, read_choices
from jobs.errors import DeclarationError, naming
from jobs.schema import columns as schema
from jobs.schema.columns import Mode, Severity
from jobs.schema.records import ChoiceFacts, DeclaredFacts, EventTimeFacts, ExpectationFacts

if TYPE_CHECKING:

    class _Lookups:
        """Tells a type checker that waterfalls may be given, and that only lookups are read."""

        def __get__(self, enrichment: object, owner: object) -> Sequence[Lookup]: ...
        def __set__(self, enrichment: object, given: Sequence[Lookup | Waterfall]) -> None: ...

else:
    _Lookups = Sequence[Lookup]

OWNER = re.compile(r"team:.+|[\w.%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}", re.ASCII)  # Dagster's


@dataclass(frozen=True)
class EventTime:
    """The column with event times; the watermark is the maximum, minus the bound, minus 1 ms.

    Attributes:
        column: A timestamp column of the input.
        max_out_of_orderness: How far a row may be behind the latest row; a row further behind is
            late.
    """

    column: str
    max_out_of_orderness: dt.timedelta = field(kw_only=True)

    def __post_init__(self) -> None:
        require_types(self, "event_time")
        if self.max_out_of_orderness < dt.timedelta(0):
            raise DeclarationError(
                f"event_time: max_out_of_orderness is {self.max_out_of_orderness}; it must be 0 or "
                "more."
            )


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Highest tolerated shares of a day's rows, per lookup; above them, the day is held back.

    Attributes:
        timeout: Share, 0 to 1, of rows that timed out.
        error: Share, 0 to 1, of rows that ended as an error.
        miss_change: Largest change of the share of misses against the last 28 days; None disables
            the check.
        answer_change: Largest change, against the last 28 days, of the share of a column's answers
            that are null, are a frequent text, or are at most a value; only answers that came by a
            call count. None disables the check.
    """

    timeout: float = 0.0
    error: float = 0.0
    miss_change: float | None = None
    answer_change: float | None = field(default=None, metadata=WHERE_DECLARED)

    def __post_init__(self) -> None:
        require_types(self, "tolerance")
        for name in ("timeout", "error", "miss_change", "answer_change"):
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1:
                raise DeclarationError(
                    f"tolerance: {name} is {share}; it is a share of rows, from 0 to 1."
                )


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A small table for readers, made from a published day by an SQL query and published with it.

    Attributes:
        name: Name of its asset, and of its folder beside the published table.
        sql: A SELECT over the enrichment's name, in DataFusion's dialect, optionally with a WITH;
            its input is the day's published columns. The summary always has the day's column, even
            if the SELECT omits it.
        description: Description of its asset.
    """

    name: str
    sql: str
    description: str = ""

    def __post_init__(self) -> None:
        require_types(self, "summary")
        require_folder_name("summary", self.name)


class Expectation:
    """A Great Expectations rule for columns of the table.

        Expectation("expect_column_values_to_not_be_null", column="temp_c", severity="warn")

    Args:
        type_: The name of the rule.
        severity: "error" holds the day back, "warn" does not.
        arguments: The arguments of the rule.
    """

    def __init__(self, type_: str, *, severity: Severity = "error", **arguments: Any) -> None:
        require_type(f"{type_}: severity", severity, Severity)
        self.facts = ExpectationFacts(type_, arguments, severity)

    def __repr__(self) -> str:
        return repr(self.facts)


@dataclass(frozen=True, kw_only=True)
class Enrichment:
    """A table, the lookups for each of its rows, and the checks before a day is published.

    Attributes:
        name: Name of assets, jobs, records and reports: lower-case letters, digits and _.
        input: The input.
        lookups: The lookups, at least one. A Waterfall may stand among them; its vendors take its
            place.
        output: The published table.
        mode: The order of a task's output rows (Flink's wait modes).
        key: The key columns of mode key_ordered.
        event_time: Enables watermarks and late rows; None disables both.
        tolerance: The tolerated failures of a published day.
        schedule: Cron in `zone`; a run enriches the previous day, the previous hour, or all named
            partitions.
        publish_by: "HH:MM" in `zone`, on the following day; until then a stopped day is restarted.
        zone: Time zone of schedule, publish_by and the input's days, as "Europe/Berlin".
        start: First day in `zone`, for backfills.
        end: The day after the last day; None for no end.
        owners: Owners of the Dagster asset: mail addresses, or team:name.
        description: Description of the Dagster asset.
        summaries: Small tables made from each published day.
        severities: Check name -> error or warn, to change the default.
        expectations: Further rules.
        ledger: Where answers are stored, so that no run pays for an answer twice; None stores none.
        pii: Personal columns of the input; the ledger hashes keys made from them, and keys made
            from answers to such keys.
        runbook: The http address of instructions for a day that is not published.
        budget: The most that its runs may spend in a day or a month, a list of Budget; exactly one
            service needs prices.
        windows: Tables of windows over the event times of each day's rows; they need event_time.
    """

    name: str
    input: Input
    # no default: mypy reads a field as a descriptor only where a value is assigned
    lookups: _Lookups = cast("_Lookups", MISSING)  # noqa: RUF009
    output: Output
    mode: Mode = "unordered"
    key: Sequence[str] = ()
    event_time: EventTime | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    schedule: str | None = None
    publish_by: str | None = None
    zone: str = field(default="UTC", metadata=WHERE_DECLARED)
    start: str = "2020-01-01"
    end: str | None = None
    owners: Sequence[str] = ()
    description: str = ""
    summaries: Sequence[Summary] = ()
    severities: Mapping[str, Severity] = field(default_factory=dict)
    expectations: Sequence[Expectation] = ()
    ledger: Ledger | None = field(default_factory=Ledger)
    pii: Sequence[str] = ()
    runbook: str | None = field(default=None, metadata=NOT_IN_FINGERPRINT)
    budget: Sequence[Budget] = field(default=(), metadata=NOT_IN_FINGERPRINT)
    windows: Sequence[Window] = field(default=(), metadata=WHERE_DECLARED)

    def __post_init__(self) -> None:
        require_name("enrichment", self.name)
        with naming(self.name):
            object.__setattr__(
                self, "budget", (self.budget,) if isinstance(self.budget, Budget) else self.budget
            )
            object.__setattr__(self, "lookups", read_choices(self.lookups))
            require_types(self)
            require_type("input: row_id", self.input.row_id, Sequence[str])
            self._check_lookups()
            check_chains(self.lookups)
            self._check_names()
            self._check_services()
            self._check_order()
            self._check_times()
            self._check_windows()
            self._check_tables()

    def __repr__(self) -> str:
        return as_text(self._title, self.lookups)

    def _repr_html_(self) -> str:
        return as_html(self._title, self.lookups)

    @property
    def _title(self) -> str:
        return f"Enrichment {self.name}: {self.input.place} to {self.output.path}, {self.mode}"

    def _check_lookups(self) -> None:
        if not self.lookups:
            raise DeclarationError("lookups is empty; an enrichment needs at least one.")
        written: dict[str, str] = {}
        for place, lookup in enumerate(self.lookups):
            if lookup.name in {other.name for other in self.lookups if other is not lookup}:
                raise DeclarationError(
                    f"two lookups are named {lookup.name!r}; columns are named after them; "
                    "rename one of them."
                )
            self._check_ledger_of(lookup)
            if isinstance(lookup, JobLookup):
                below = [self.lookups[other] for other in lookups_below(self.lookups, place)]
                has_ledger = self.ledger is not None
                lookup.check_in(has_ledger=has_ledger, budgets=self.budget, below=below)
        for whose, column in columns_added(self):
            if column.lower() in written:
                raise DeclarationError(
                    f"{whose}: returns: {written[column.lower()]} has {column!r} too; "
                    "rename one of them."
                )
            if column.lower() == self.input.partition.lower():
                raise DeclarationError(
                    f"{whose}: returns: {column!r} is the column of the table's days. Rename it "
                    "here."
                )
            if column.startswith("_"):
                raise DeclarationError(
                    f"{whose}: returns: {column!r} starts with _, as the audit columns do; "
                    "rename it."
                )
            written[column.lower()] = whose

    def _check_ledger_of(self, lookup: Lookup) -> None:
        why = ""
        if not lookup.repeatable:
            why = "idempotent=False needs a ledger, which remembers what was asked."
        elif lookup.spills_outage:
            why = "spill_on has 'outage', which needs a ledger: it keeps what was answered before."
        if why and self.ledger is None:
            raise DeclarationError(f"lookup {lookup.name}: {why}")

    def _check_names(self) -> None:
        """Refuse row_id and day columns whose names the audit table or the dead letters use."""
        taken = {schema.RUN_ID, *schema.LETTER_COLUMNS, *schema.ROW_COLUMNS}
        taken |= {
            column.lower()
            for lookup in self.lookups
            for column in schema.audit_columns(lookup.name)
        }
        for where, name in (
            ("partition", self.input.partition),
            *(("row_id", name) for name in self.input.row_id),
        ):
            if name.lower() in taken:
                raise DeclarationError(
                    f"input: {where}: {name!r} is a column of the audit table or the dead letters; "
                    "rename it."
                )

    def _check_services(self) -> None:
        services: dict[str, list[Service]] = {}
        for lookup in self.lookups:
            if lookup.http_service is not None:
                services.setdefault(lookup.http_service.name, []).append(lookup.http_service)
        for name, asked in services.items():
            if any(service != asked[0] for service in asked):
                raise DeclarationError(
                    f"service {name} is declared twice with different values, and its limits apply "
                    "to all its lookups; declare it once, or rename one of the services."
                )
            if asked[0].max_concurrency < len(asked):
                raise DeclarationError(
                    f"service {name}: max_concurrency is {asked[0].max_concurrency}, and "
                    f"{len(asked)} lookups share it; each needs at least 1 call in flight."
                )
        if self.budget:
            paid = [asked[0] for asked in services.values() if asked[0].prices]
            if len(paid) > 1:
                raise DeclarationError(
                    f"budget: {len(paid)} services of the enrichment have prices, and its budget "
                    "may pay for one only; declare the budgets at the services."
                )
            check_budgets("enrichment", self.budget, paid[0].prices if paid else ())

    def _check_order(self) -> None:
        if (self.mode == "key_ordered") != bool(self.key):
            raise DeclarationError(
                "key names the columns of mode='key_ordered': it needs them, and no other mode "
                "does."
            )

    def _check_times(self) -> None:
        if self.schedule is not None and not is_cron(self.schedule):
            raise DeclarationError(
                f"schedule is {self.schedule!r}; it must be five cron fields, such as '15 2 * * *'."
            )
        if self.publish_by is not None and not re.fullmatch(
            r"([01]\d|2[0-3]):[0-5]\d", self.publish_by
        ):
            raise DeclarationError(
                f"publish_by is {self.publish_by!r}; it must be a time of day, such as '06:30'."
            )
        if self.input.every != "day":
            self._check_no_days()
        require_zone(self.zone)
        self._check_start_and_end()
        if self.runbook is not None and not re.fullmatch(r"https?://[^\s/]+\S*", self.runbook):
            raise DeclarationError(
                f"runbook is {self.runbook!r}; it must be an http:// or https:// address."
            )
        for owner in self.owners:
            if not OWNER.fullmatch(owner):
                raise DeclarationError(
                    f"owners: {owner!r} must be a mail address, or a team such as 'team:data'."
                )

    def _check_start_and_end(self) -> None:
        for name in ("start", "end"):
            if getattr(self, name) is not None:
                require_day(getattr(self, name), name)
        if self.end is not None and self.end <= self.start:
            raise DeclarationError(
                f"end is {self.end!r}, and start {self.start!r}; end is the day after the last "
                "day, so it must be later."
            )

    def _check_no_days(self) -> None:
        """Refuse fields that need days, where the input is by hours or by names."""
        every = self.input.every
        if every == "hour" and self.schedule is not None and self.schedule.split()[1] != "*":
            raise DeclarationError(
                f"schedule is {self.schedule!r}, and each run enriches the hour before; its second "
                "field must be *, as in '5 * * * *'."
            )
        for name in ("publish_by", "windows"):
            if getattr(self, name):
                shown = '"hour"' if every == "hour" else repr([*every])
                raise DeclarationError(
                    f"{name} is given, and needs days; leave it out with Input(every={shown})."
                )

    def _check_windows(self) -> None:
        if self.windows and self.event_time is None:
            raise DeclarationError(
                f"windows: {self.windows[0].name} needs event times: declare event_time, such as "
                'EventTime("at", max_out_of_orderness=timedelta(minutes=5)).'
            )
        for window in self.windows:
            taken = {*schema.WINDOW_COLUMNS, self.input.partition.lower()}
            if column := next((column for column in window.key if column.lower() in taken), None):
                raise DeclarationError(
                    f"window {window.name}: key: {column!r} is a column that every window has."
                )

    def _check_tables(self) -> None:
        ledger = "" if self.ledger is None else self.ledger.path
        if message := find_own_conflict(
            self.input.path, self.tables(), parquet=self.output.parquet, ledger=ledger
        ):
            raise DeclarationError(message)
        if self.input.table and self.input.table == self.output.iceberg:
            raise DeclarationError(
                f"output: iceberg is {self.input.table!r}, the input itself; name another table."
            )

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change with every declared value; code counts by its name."""
        return fingerprint(self)

    @property
    def choices(self) -> tuple[ChoiceFacts, ...]:
        """The waterfalls, whose vendors are among the lookups."""
        found = {
            lookup.choice.name: lookup.choice
            for lookup in self.lookups
            if lookup.choice is not None
        }
        return tuple(found.values())

    @property
    def has_chains(self) -> bool:
        """Whether a lookup reads answers of another."""
        return any(levels(self.lookups))

    def has_personal_key(self, lookup: Lookup) -> bool:
        """Return whether a part of the lookup's key is personal, also through earlier answers.

        Args:
            lookup: A lookup of this enrichment.
        """
        return bool(self.pii) and lookup.name in personal_lookups(self.lookups, self.pii)

    @property
    def personal_columns(self) -> frozenset[str]:
        """Personal columns, in lower case: of the input, and answers to keys that read them."""
        answers = (
            column.name
            for lookup in self.lookups
            if self.has_personal_key(lookup)
            for column in (*lookup.columns, *lookup.written)
        )
        return frozenset(name.lower() for name in (*self.pii, *answers))

    def tables(self) -> list[TablePath]:
        """Return the published table and all tables beside it."""
        return tables_beside(
            self.output.path,
            summaries=(summary.name for summary in self.summaries),
            windows=(window.name for window in self.windows),
        )

    def facts(self) -> DeclaredFacts:
        """Return the declared promises as plain data for checks, report and orchestration."""
        return DeclaredFacts(
            enrichment=self.name,
            table=self.output.path,
            input_path=self.input.place,
            partition=self.input.partition,
            mode=self.mode,
            lookups=tuple(
                replace(lookup.facts(), hidden_key=self.has_personal_key(lookup))
                for lookup in self.lookups
            ),
            row_id=tuple(self.input.row_id) or schema.SOURCE_IDENTITY,
            order_key=tuple(self.key),
            event_time=None
            if self.event_time is None
            else EventTimeFacts(
                self.event_time.column, self.event_time.max_out_of_orderness.total_seconds()
            ),
            timeout_tolerance=self.tolerance.timeout,
            error_tolerance=self.tolerance.error,
            miss_change=self.tolerance.miss_change,
            answer_change=self.tolerance.answer_change,
            publish_by=self.publish_by,
            zone=self.zone,
            severities=dict(self.severities),
            expectations=tuple(expectation.facts for expectation in self.expectations),
            ledger=None if self.ledger is None else self.ledger.path,
            fingerprint=self.fingerprint,
            fields=fields(self),
            windows=tuple(replace(window.facts(), zone=self.zone) for window in self.windows),
            iceberg=self.output.iceberg,
            parquet=self.output.parquet,
            choices=self.choices,
            personal=tuple(sorted(self.personal_columns)),
        )


def columns_added(enrichment: Enrichment) -> Iterator[tuple[str, str]]:
    """Yield whose column it is, and its name, for each answer column that a run writes."""
    for lookup in enrichment.lookups:
        yield from ((f"lookup {lookup.name}", column) for column in written_columns(lookup))
    for choice in enrichment.choices:
        yield from ((f"waterfall {choice.name}", column.name) for column in choice.published())


def written_columns(lookup: Lookup) -> list[str]:
    return [*readable_columns(lookup), schema.published_answered_at(lookup.name)]
