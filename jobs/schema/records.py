"""The facts of declarations, runs and days, as records that a process hands to another or keeps in
a file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

from jobs.schema.columns import (
    Column,
    Mode,
    Panes,
    Severity,
    WindowKind,
    in_sql,
    published_columns,
)
from jobs.schema.costs import sum_by_currency
from jobs.schema.facts import Facts, plain


@dataclass(frozen=True)
class PriceFacts(Facts):
    """The price of a service: `amount` for every `per` units, from the day `since`."""

    amount: str  # decimal, as "0.0040"
    currency: str  # USD
    unit: str  # item, request, or a unit that answers report, such as token
    per: int = 1
    since: str | None = None  # 2026-12-01; None: from ever
    model: str | None = None  # the model whose calls have this price; None: any
    at_most: int | None = None  # units that answers report of a call


@dataclass(frozen=True)
class LookupFacts(Facts):
    """The declared promises of a lookup."""

    name: str
    kind: str  # http, sql, function, coroutine
    service: str  # display name: "weather_api"
    returns: tuple[tuple[str, str], ...]  # column, Spark DDL type
    timeout: float | None  # s, all attempts and the waits between them
    max_concurrency: int  # calls in flight, over all tasks of the run
    retries: int = 0  # after the first attempt
    # s; pause after attempt n >= min(max_delay, initial_delay * multiplier**(n-1))
    initial_delay: float = 0.0
    max_delay: float = 0.0
    multiplier: float = 1.0
    # column, smallest, largest value of an answer
    ranges: tuple[tuple[str, float | None, float | None], ...] = ()
    null_share: tuple[tuple[str, float], ...] = ()  # column, largest share of nulls among ok rows
    # outcomes that make a row a dead letter; it stays in the day too
    dead_letters: tuple[str, ...] = ()
    hidden_key: bool = False  # a part of the key is personal: it is hashed outside the run's files
    batch_size: int = 1  # the highest number of keys of one call; attempts are counted per key
    prices: tuple[PriceFacts, ...] = ()  # the price in force on the day of a call applies
    version: int = 1
    # part of the key, its Spark SQL over the input's columns and earlier answers, with `when`
    keys: tuple[tuple[str, str], ...] = ()
    asks_once: bool = True  # one call per key and run; False without a cache
    when: str = ""  # the condition of a call; empty: every row with a key
    choice: str = ""  # the waterfall of which it is a vendor; empty: none
    # column, where its value stands in an answer: a JSON path, else a name
    paths: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the answer columns."""
        return tuple(name for name, _ in self.returns)

    @property
    def max_attempts_at_once(self) -> int:
        """Over all tasks of the run."""
        return self.max_concurrency * self.batch_size

    def rows_judged(self, outcomes: Mapping[Any, int]) -> int:
        """Return the rows that shares and tolerances are of: with `when`, those not skipped.

        Args:
            outcomes: Rows by outcome.
        """
        return sum(outcomes.values()) - (outcomes.get("skipped", 0) if self.when else 0)


@dataclass(frozen=True)
class ChoiceFacts(Facts):
    """A waterfall: its columns have the answer of the vendor that is chosen for the row.

    That is the first vendor with an accepted answer; else the row ends as the first vendor that
    failed, else with the last answer, else as the last vendor that was asked.
    """

    name: str
    vendors: tuple[str, ...]  # lookups, in order
    columns: tuple[tuple[str, str], ...]  # name, Spark DDL type
    accepted: tuple[str, ...]  # by vendor: Spark SQL that accepts its answer
    spills_outage: bool = False  # the next vendor is asked where one is down

    @property
    def status(self) -> str:
        return f"{self.name}_status"

    @property
    def answered_at(self) -> str:
        return f"{self.name}_answered_at"

    @property
    def vendor(self) -> str:
        return f"{self.name}_vendor"

    def published(self) -> list[Column]:
        """Return the columns that readers see."""
        status, answered_at = published_columns(self.name)
        vendor = Column(self.vendor, "STRING", f"The lookup whose answer {self.name} has.")
        return [
            *(Column(name, kind, "") for name, kind in self.columns),
            status,
            answered_at,
            vendor,
        ]

    def as_sql(self) -> dict[str, str]:
        """Return Spark SQL over the vendors' columns, by column, that later lookups may read."""
        statuses = [f"{vendor}_status" for vendor in self.vendors]
        answered = [f"{status} IN ('ok', 'fallback')" for status in statuses]
        failed = [
            f"{status} IN ('timeout', 'error', 'unknown', 'not_asked')" for status in statuses
        ]
        accepts = [
            f"({has_answer} AND {accepted})"
            for has_answer, accepted in zip(answered, self.accepted, strict=True)
        ]
        places = range(len(statuses))
        backwards = places[::-1]

        def chosen(answers: Sequence[str], otherwise: Sequence[str], last: str) -> str:
            branches = [f"WHEN {accepts[place]} THEN {answers[place]}" for place in places]
            branches += [f"WHEN {failed[place]} THEN {otherwise[place]}" for place in places]
            branches += [f"WHEN {answered[place]} THEN {answers[place]}" for place in backwards]
            return f"CASE {' '.join(branches)} {last} END"

        none = ["NULL"] * len(statuses)
        found = {}
        for column, _ in self.columns:
            values = [in_sql(f"{vendor}_{column}") for vendor in self.vendors]
            found[column.lower()] = chosen(values, none, "")
        asked = [
            f"WHEN {statuses[place]} <> 'skipped' THEN {statuses[place]}" for place in backwards
        ]
        found[self.status] = chosen(statuses, statuses, f"{' '.join(asked)} ELSE 'skipped'")
        found[self.vendor] = chosen([f"'{vendor}'" for vendor in self.vendors], none, "")
        return found


@dataclass(frozen=True)
class EventTimeFacts(Facts):
    column: str
    max_out_of_orderness: float  # s


@dataclass(frozen=True)
class WindowFacts(Facts):
    """Windows over the enriched rows, as declared."""

    name: str
    kind: WindowKind
    size_ms: int  # from start to end; of a session its gap
    every_ms: int  # from one start to the next; 0 for a session
    lateness_ms: int
    key: tuple[str, ...]
    sql: str  # aggregates, in Spark's SQL
    panes: Panes
    zone: str = "UTC"  # of the day that a window starts on


@dataclass(frozen=True)
class ExpectationFacts(Facts):
    """An expectation of the user, by its Great Expectations name."""

    type: str
    arguments: dict[str, Any]  # as the user wrote them, of any type
    severity: Severity = "error"

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | {"arguments": plain(self.arguments)}


@dataclass(frozen=True)
class DeclaredFacts(Facts):
    """The declared promises of an enrichment; the same for every day."""

    enrichment: str
    table: str  # root of the published table
    input_path: str  # root of the input, or the name of its table
    partition: str  # name of the day's partition column
    mode: Mode
    lookups: tuple[LookupFacts, ...]
    row_id: tuple[str, ...]  # columns that identify a row in evidence
    order_key: tuple[str, ...] = ()  # key_ordered only
    event_time: EventTimeFacts | None = None
    timeout_tolerance: float = 0.0  # largest share of rows, per lookup
    error_tolerance: float = 0.0
    # largest change of the miss share in 28 days; None: not checked
    miss_change: float | None = None
    # likewise, largest change of the answers in each column
    answer_change: float | None = None
    time_slack: float = 0.25  # s, allowed over a time limit before a row counts as too slow
    publish_by: str | None = None  # "06:30", in `zone`, on the day after
    zone: str = "UTC"  # time zone of the input's days
    # check name -> severity, against its default
    severities: dict[str, Severity] = field(default_factory=dict)
    expectations: tuple[ExpectationFacts, ...] = ()
    ledger: str | None = None  # where answers are stored; None: nowhere
    fingerprint: str = ""
    windows: tuple[WindowFacts, ...] = ()
    fields: dict[str, str] = field(default_factory=dict)  # declared field -> a hash of its value
    iceberg: str = ""  # the Iceberg table that shows the published one; empty: none
    parquet: str = ""  # the folder of Parquet that shows it; empty: none
    choices: tuple[ChoiceFacts, ...] = ()
    personal: tuple[str, ...] = ()  # columns with personal values, in lower case

    @property
    def can_be_replayed(self) -> bool:
        """Whether `replay` takes its days: it needs stored answers, and submits no jobs."""
        return self.ledger is not None and all(lookup.kind != "jobs" for lookup in self.lookups)

    def find_choice(self, lookup: LookupFacts) -> ChoiceFacts | None:
        """Return the waterfall of which a lookup is a vendor."""
        return next((choice for choice in self.choices if choice.name == lookup.choice), None)

    def published_answers(self) -> list[Column]:
        """Return the columns that readers see beside the input's: those of each lookup, and of each
        waterfall once, in place of its last vendor's.
        """
        choices = {choice.vendors[-1]: choice for choice in self.choices}
        found: list[Column] = []
        for lookup in self.lookups:
            if not lookup.choice:
                found += [Column(name, kind, "") for name, kind in lookup.returns]
                found += published_columns(lookup.name)
            elif lookup.name in choices:
                found += choices[lookup.name].published()
        return found


@dataclass(frozen=True)
class ShareGiven(Facts):
    """A task's share per lookup from `since` on: larger when others end, none at its own end."""

    task: int
    shares: tuple[int, ...]
    since: int  # µs since the epoch, by the task's clock
    attempt: int = 0  # of the task: a number among all attempts


@dataclass(frozen=True)
class WrittenFile(Facts):
    """A file as its task wrote it."""

    place: str
    bytes: int
    rows: int


@dataclass(frozen=True)
class WrittenWindows(Facts):
    """The windows that a run made of its rows. Every row is in a window, or was dropped, or has no
    event time.
    """

    name: str
    files: tuple[str, ...]  # absolute paths, Parquet: a row per window, or per firing
    dropped_files: tuple[str, ...]  # absolute paths, Parquet: the rows that are in no window
    windows: int  # rows in `files`
    rows: int  # rows of the day that are in at least one window
    dropped: int  # late for every window
    no_event_time: int


@dataclass(frozen=True)
class RowChanges(Facts):
    """The rows of a run of `Input(rows="changed")`, compared with those that readers saw when it
    began.
    """

    new: int  # in the input, and not published
    changed: int  # with another value in a column of the input
    expired: int  # unchanged, with an answer past its `ttl` or none at all
    gone: int  # published, and not in the input any more
    kept: int  # published, and neither enriched nor judged again
    # publications of the day so far: this run replaces the last of them and no later one
    over: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """The counts of rows by their names."""
        return {name: getattr(self, name) for name in ("new", "changed", "expired", "gone", "kept")}

    @property
    def sentence(self) -> str:
        """As `10 new, 990 changed, 5,000 expired, 5 gone, 994,000 kept`."""
        return ", ".join(f"{count:,} {name}" for name, count in self.counts.items())


@dataclass(frozen=True)
class DayFacts(Facts):
    """One day as written by one run. The checks read its files before they are published."""

    declared: DeclaredFacts
    day: str  # 2013-01-10
    run_id: str
    input_files: tuple[str, ...]  # absolute paths
    input_columns: tuple[str, ...]
    folder: str  # absolute; the folder of the run's files
    # absolute paths of the Parquet files, as written; empty for an empty day
    files: tuple[str, ...]
    # per lookup, in order: each task's first share, by task number
    shares: tuple[tuple[int, ...], ...]
    started_at: str  # ISO 8601, UTC
    finished_at: str
    versions: dict[str, str] = field(default_factory=dict)
    # per lookup, in order: "row", or "distinct keys: 50,000 of 1,000,000 rows"
    asked_by: tuple[str, ...] = ()
    # sentences: vendors that were down, and whose waterfall went on with the next one; files of the
    # ledger that were damaged
    given_up: tuple[str, ...] = ()
    # types of the input's columns, as Spark's JSON of a struct; empty: Spark infers them
    input_types: str = ""
    shares_given: tuple[ShareGiven, ...] = ()  # in the order of the changes
    # by task number: the attempt that wrote its rows; empty: each task had one
    attempts: tuple[int, ...] = ()
    windows: tuple[WrittenWindows, ...] = ()  # in the order in which they are declared
    # version of the Delta table, or snapshot of the Iceberg table, that is the input
    input_version: int | None = None
    input_table: str = ""  # id of this table
    unread: tuple[str, ...] = ()  # what lies beside the input's files, or in no day of its table
    # set with Input(rows="changed"): `files` then have only the rows that were enriched
    changes: RowChanges | None = None
    # files with the rows that are published again unchanged
    kept_files: tuple[str, ...] = ()
    # facts of the files that tasks wrote on the store of the table
    written: tuple[WrittenFile, ...] = ()
    # files for the tables beside the published table, in the run's folder until it is published
    audit_files: tuple[WrittenFile, ...] = ()
    letter_files: tuple[WrittenFile, ...] = ()
    # version of all files found in the input, from names, sizes and times; empty: unknown
    files_version: str = ""

    @property
    def rows_kept(self) -> int:
        """Rows published again unchanged; each has an answer, a miss, or a null key."""
        return self.changes.kept if self.changes else 0

    @property
    def rows_folder(self) -> str:
        """The folder of the rows' files. Its path has the day, because Polars takes the day from
        there, and ends with the run, because version 0.1.0 of Tidegate takes the run from there.
        """
        return f"{self.folder}/{self.declared.partition}={self.day}/{self.run_id}"

    @property
    def published_files(self) -> tuple[str, ...]:
        """The files that readers see once the run is published."""
        return (*self.files, *self.kept_files)

    def moved(self, folder: str, place: Callable[[str], str]) -> "DayFacts":
        """Return the facts with the run's folder, and its files where `place` says.

        The files for the tables beside the published table stay as they are.
        """

        def places(files: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(map(place, files))

        windows = tuple(
            replace(window, files=places(window.files), dropped_files=places(window.dropped_files))
            for window in self.windows
        )
        files, kept = places(self.files), places(self.kept_files)
        return replace(self, folder=folder, files=files, kept_files=kept, windows=windows)


@dataclass(frozen=True)
class BilledUnit(Facts):
    """What was billed of a unit: an item or a request that was sent, or what answers report."""

    unit: str  # item, request, or a unit of the service, as token
    units: int
    lost: int  # units without an answer: timed out, failed, retried
    cost: str  # decimal, as "12.3400"


@dataclass(frozen=True)
class Billed(Facts):
    """The cost of one lookup's calls at the declared prices."""

    units: int  # number of the first unit with a price
    lost: int
    unit: str
    cost: str  # of all units
    currency: str
    saved: str = "0"  # cost that the ledger's answers saved, each key once
    by_unit: tuple[BilledUnit, ...] = ()  # each unit, if several have a price

    @property
    def parts(self) -> tuple[BilledUnit, ...]:
        """What was billed of each unit."""
        return self.by_unit or (BilledUnit(self.unit, self.units, self.lost, self.cost),)


def sum_bills(bills: Iterable[Billed]) -> dict[str, Decimal]:
    """Return the cost of bills by currency."""
    return sum_by_currency((bill.currency, Decimal(bill.cost)) for bill in bills)


@dataclass(frozen=True)
class RequestMetrics(Facts):
    """The requests sent for one lookup by the successful task attempts."""

    sent: int
    retried: int  # requests with a key that was sent before
    throttled: int  # requests that the service throttled
    answered: int  # requests that brought an answer or a miss, whether it fits or not
    items: int  # keys in them
    most_at_once: tuple[int, ...] = ()  # per task, by number: highest number in flight
    # answers that may be another key's, because their connection brought an extra one
    in_doubt: int = 0
    # requests whose cost is not in the bill: the price needs their use, and no answer had it
    unknown_use: int = 0
    repaired: int = 0  # answers that did not fit and were asked for again


@dataclass(frozen=True)
class LookupMetrics(Facts):
    """The counts of one lookup on one day. Its rows are the sum of the outcomes."""

    name: str
    outcomes: dict[str, int]  # every one of OUTCOMES -> rows
    calls: int  # attempts made, also by task attempts that were lost
    retried: int  # attempts after a row's first
    wall_s: float  # first start to last end of an attempt
    # sum of the attempts' times / allowed concurrent attempts: the shortest possible time
    limit_s: float
    latency_p50_ms: float | None  # of answered rows
    latency_p99_ms: float | None
    # rows that made a call; the others were skipped or got their answer elsewhere
    rows_called: int = 0
    # distinct keys of these rows; None: not counted, as without a cache
    keys_called: int | None = None
    from_ledger: int = 0  # rows whose answer, or error, came from the ledger
    # distinct keys of these rows without those of the run's jobs; counted where a price is declared
    keys_from_ledger: int = 0
    shared: int = 0  # rows that shared the call of an equal row, also one that failed
    jobs: int = 0  # jobs of its vendor that the day submitted; `billed` has their cost
    # rows with an answer or a miss from their own call; where a price is declared, also of its jobs
    answered: int = 0
    stored: int | None = None  # answers and misses that this run stored; None: no ledger
    # attempts that used no retry: throttled, in a pause, with a refused token, or while it was down
    throttled: int = 0
    oldest_answer_at: str | None = None  # ISO 8601, UTC, of the day's answers; None: it has none
    # None: not counted, as a user's function sends its own requests
    requests: RequestMetrics | None = None
    billed: Billed | None = None  # None: no price is declared
    throttled_s: float = 0.0  # time that the gate was closed by throttling; mean over the tasks
    down_s: float = 0.0  # the same, because the service was down
    # time that calls waited because the service bears no more at once; likewise
    adapted_s: float = 0.0
    shared_s: float = 0.0  # time that the gate was closed because other runs hold the limits
    # outage, rate, shared limits, cpu, adaptive, concurrency, service, spark
    # (jobs/run/metrics/limiting_factor.py); empty: nothing was called
    limited_by: str = ""

    @property
    def known_share(self) -> float:
        """Share of the rows that cost no call of their own: answered from the ledger, or by an
        equal row's call. Reports show it.
        """
        rows = sum(self.outcomes.values())
        return (self.from_ledger + self.shared) / rows if rows else 0.0

    @property
    def slots_in_use(self) -> float:
        """The used share of the allowed concurrent calls, on average from the first call to the
        last.
        """
        return self.limit_s / self.wall_s if self.wall_s > 0 else 0.0


@dataclass(frozen=True)
class DayMetrics(Facts):
    rows_in: int
    rows_out: int
    rows_late: int
    lookups: tuple[LookupMetrics, ...]
    job_s: float = 0.0  # from the start of the job's work to its written files
    loop_busy: float | None = None  # CPU time of the tasks' event loops as a share of their time

    @property
    def calls(self) -> int:
        return sum(lookup.calls for lookup in self.lookups)

    @property
    def jobs(self) -> int:
        return sum(lookup.jobs for lookup in self.lookups)

    @property
    def cost(self) -> dict[str, Decimal]:
        """What its lookups were billed, by currency; empty if no price is declared."""
        billed = (lookup.billed for lookup in self.lookups if lookup.billed is not None)
        return dict(sorted(sum_bills(billed).items()))


@dataclass(frozen=True)
class Verdict(Facts):
    """The result of one check for one day."""

    check: str
    status: Literal["passed", "failed", "not_run"]
    severity: Severity
    sentence: str  # for people: what holds, or the fault, its count and the first row
    unexpected_count: int = 0
    element_count: int = 0
    expected: str = ""
    # a bounded sample of the rows at fault, with their identity
    evidence: tuple[dict[str, Any], ...] = ()

    @property
    def holds_back(self) -> bool:
        """Whether this verdict holds the day back: an error check that failed or could not run."""
        return self.severity == "error" and self.status != "passed"


@dataclass(frozen=True)
class DayRecord(Facts):
    """The record of one run of one day; stored as JSON for orchestration, reports and the
    terminal.
    """

    facts: DayFacts
    figures: DayMetrics
    verdicts: tuple[Verdict, ...] = ()
    pictures: dict[str, Any] = field(default_factory=dict)  # counts of data_quality for the report
    state: Literal["written", "published", "held back"] = "written"
    reason: str = ""  # one sentence
    published_version: int | None = None
    published_at: str | None = None
    warnings: tuple[str, ...] = ()  # sentences: faults beside the day that do not hold it back
    # id of the previous batch of a stream, whose figures are in these; its record is obsolete
    adds_to: str = ""
    # when the first batch in these figures was published; empty: they are of this run alone
    first_published_at: str = ""
    # id of the previous run or batch whose rows, but no calls, are in these figures
    counts_too: str = ""

    @property
    def order(self) -> tuple[str, str, int]:
        """The place among records: a record without forgotten rows follows the one it copies."""
        return self.facts.started_at, self.published_at or "", self.published_version or 0

    @property
    def red(self) -> list[Verdict]:
        """The verdicts that hold the day back."""
        return [verdict for verdict in self.verdicts if verdict.holds_back]

    @property
    def rows_published(self) -> int:
        """The rows that readers see of the day once the run is published."""
        return self.figures.rows_out + self.facts.rows_kept

    @property
    def dead_letters(self) -> int:
        """The number of dead letters, counted per lookup; their table has them once the day is
        published.
        """
        wanted = {lookup.name: lookup.dead_letters for lookup in self.facts.declared.lookups}
        return sum(
            lookup.outcomes.get(outcome, 0)
            for lookup in self.figures.lookups
            for outcome in wanted.get(lookup.name, ())
        )


@dataclass(frozen=True)
class UnwrittenRun(Facts):
    """A run of a day that ended without files; stored as JSON for reports and sensors."""

    enrichment: str
    day: str
    run_id: str
    state: str  # failed, crashed, cancelled, or stopped: with the cause (errors.RunStopped)
    reason: str  # one sentence
    next_step: str  # likewise
    started_at: str  # ISO 8601, UTC; not later than its first read of the input
    ended_at: str
    cost: str = ""  # what services billed it, as "0.0460 USD"; filled in for reports
    files_version: str = ""  # as in DayFacts; not later than its first read of the input
    calls: int | None = None  # by its bill, filled in for reports


@dataclass(frozen=True)
class RunBill(Facts):
    """What a run without a record may have had billed; stored as JSON."""

    enrichment: str
    day: str
    run_id: str
    started_at: str  # ISO 8601, UTC
    lookups: tuple[LookupFacts, ...]  # those with a price
    folder: str  # absolute path of the folder with its tasks' counts
    services: tuple[str, ...] = ()  # the service of each of these lookups, as its limits are named
    ledger: str | None = None  # the ledger, which has the bills of jobs
