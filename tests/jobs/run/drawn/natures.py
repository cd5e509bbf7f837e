"""What is true of each key of a drawn lookup: the vendor answers by it, and the model expects it.

Nothing here imports the product.
"""

import datetime as dt
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

DENIALS = ("402", "451")  # of which a service declares one to stop a run
PATIENCE = 2.0  # s, of an attempt, or of a row, at a vendor that may hang
ODD_TEXTS = ("", "ß", "e\u0301", "漢字", "😀", '"quoted"', "a\\b", "\u2028", " padded ", "\x7f")


def canonical(value: Any) -> str:
    """A key's value as text, equal for values that are one key."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dt.datetime):
        spec = "microseconds" if value.microsecond else "seconds"
        return value.replace(tzinfo=None).isoformat(timespec=spec) + "Z"
    return value.isoformat() if isinstance(value, dt.date) else str(value)


@dataclass(frozen=True)
class Truth:
    """A member of an answer: as the vendor writes it in JSON, and the value that it stands for."""

    source: str
    value: Any


def _v(draws: random.Random, look: str, key: str, epoch: int) -> Truth:
    text = f"{look}|{key}|{epoch}|{draws.choice(ODD_TEXTS)}"
    return Truth(json.dumps(text, ensure_ascii=draws.random() < 0.5), text)


def _n(draws: random.Random) -> Truth:
    number = draws.choice((draws.randrange(100), 9007199254740993, -5, 0))
    return Truth(f"{number}.0" if draws.random() < 0.1 else str(number), number)


def _amount(draws: random.Random) -> Truth:
    source = draws.choice(("1.005", "-0.0", "12345678901234567.895", "2", "1e3", "0.004999"))
    quoted = f'"{source}"' if draws.random() < 0.3 else source
    half_up = Decimal(source).quantize(Decimal("0.01"), rounding="ROUND_HALF_UP")
    return Truth(quoted, half_up)


def _f(draws: random.Random) -> Truth:
    source = draws.choice(("-0.0", "1e300", "0.1", "5", "123456789.123456789", "5e-324"))
    return Truth(source, float(source))


def _on(draws: random.Random) -> Truth:
    day = dt.date(1900, 1, 1) + dt.timedelta(days=draws.randrange(90_000))
    return Truth(f'"{day:%Y-%m-%d}"', day)


def _at(draws: random.Random) -> Truth:
    at = dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC) + dt.timedelta(
        microseconds=draws.randrange(10**12)
    )
    zone = dt.timezone(dt.timedelta(hours=draws.choice((0, 1, -5))))
    return Truth(f'"{at.astimezone(zone).isoformat()}"', at)


def _flag(draws: random.Random) -> Truth:
    flag = draws.random() < 0.5
    return Truth(json.dumps(flag), flag)


def _inner(draws: random.Random) -> Truth:
    value = {"a": draws.randrange(9), "b": draws.choice(ODD_TEXTS)}
    return Truth(json.dumps(value), value)


# member of an answer -> its type, and how it is drawn
MEMBERS: dict[str, tuple[str, Callable[[random.Random], Truth]]] = {
    "n": ("BIGINT", _n),
    "amount": ("DECIMAL(20,2)", _amount),
    "f": ("DOUBLE", _f),
    "on": ("DATE", _on),
    "at": ("TIMESTAMP", _at),
    "flag": ("BOOLEAN", _flag),
    "inner": ("STRUCT<a: INT, b: STRING>", _inner),
}


@dataclass(frozen=True, kw_only=True)
class Look:
    """A drawn lookup.

    Attributes:
        kind: http, body, pages, batch, coroutine, function, table, or select.
        keys: Name -> its Spark SQL, and the kind of its values.
        reads: Name -> the value of a row, by the columns that the row has so far.
        members: Of its answers, in the order of `returns`.
        moods: The kinds of answers that it gives.
        fields: Of its declaration, beside those above.
        when: The condition of a call, as `holds` decides it by the columns of the row so far.
        prices: Amount in USD, and its unit.
        waterfall: The waterfall of which it is a vendor.
        accept: The condition of its answers, as `accepts` decides it.
        judges: It has an error_when.
        policies: on_miss and on_error.
        max_items: Of a batch.
        budget: In USD, for the day; 0 for none.
        has_older_prices: It declares prices of other days beside those in force.
        finishes: A call whose row has left goes on.
        stop_on: Statuses that stop a run, and are never kept.
        has_header: Its vendor recognizes a repeated call by a header.
        in_thousands: Its prices are of 1,000 units.
        of_n: The type of its column n.
        model: The model that answers: `own` is priced by itself, `any` at the price of all others.
    """

    name: str
    seed: int
    kind: str
    keys: dict[str, tuple[str, str]]
    reads: dict[str, Callable[[dict[str, Any]], Any]]
    members: tuple[str, ...]
    moods: tuple[str, ...]
    fields: dict[str, Any]
    when: str = ""
    holds: Callable[[dict[str, Any]], bool] | None = None
    service: str = ""
    prices: tuple[tuple[str, str], ...] = ()
    waterfall: str = ""
    retries: int = 0
    required: tuple[str, ...] = ()
    judges: bool = False
    takes_202: bool = False
    has_cache: bool = True
    miss_ttl: bool = True
    error_ttl: bool = False
    batch_match: str = ""
    left_out: str = "error"
    max_pages: int = 0
    page_form: str = ""
    version: int = 1
    idempotent: bool = True
    repair: int = 0
    accepts: Callable[[dict[str, Any]], bool] = lambda _values: True
    accept: str = ""
    spills: tuple[str, ...] = ()
    policies: dict[str, str] = field(default_factory=dict)
    max_items: int = 1
    budget: Decimal = Decimal(0)
    has_older_prices: bool = False
    has_header: bool = False
    finishes: bool = False
    stop_on: tuple[int, ...] = (401, 402, 403)
    in_thousands: bool = False
    model: str = ""
    of_n: str = "BIGINT"

    @property
    def bills_hits(self) -> bool:
        """Whether each answer costs, whatever is in it."""
        return any(unit == "hit" for _, unit in self.prices)

    @property
    def bills_use(self) -> bool:
        """Whether only answers tell what they cost."""
        return any(unit in ("token", "hit") for _, unit in self.prices)

    def fails_on(self, status: str) -> bool:
        """Whether a row that ends so fails the run."""
        is_failed = status in ("error", "timeout", "unknown")
        return is_failed and self.policies.get(on(status)) == "fail"

    def stops_at(self, what: str) -> bool:
        return what in DENIALS and int(what) in self.stop_on

    def column(self, member: str) -> str:
        return f"{self.waterfall or self.name}_{member}"

    def draws(self, key: str, what: str = "") -> random.Random:
        return random.Random(f"{self.seed}:{self.name}:{key}:{what}")

    def mood(self, key: str) -> str:
        return self.draws(key, "mood").choice(self.moods)

    def pages_of(self, key: str) -> int:
        if self.kind != "pages":
            return 1
        is_long = self.mood(key) == "long"
        return (
            self.max_pages + 1 if is_long else self.draws(key, "pages").randint(1, self.max_pages)
        )

    def is_too_long(self, key: str) -> bool:
        return self.kind == "pages" and self.pages_of(key) > self.max_pages

    def ends_too_long(self, key: str, what: str) -> bool:
        """Whether the answer to a key's last request had too many pages."""
        return what == "answer" and self.is_too_long(key)

    def pages_asked(self, key: str) -> int:
        return min(self.pages_of(key), self.max_pages) if self.kind == "pages" else 1

    def tokens(self, key: str) -> int:
        return self.draws(key, "tokens").randint(1, 40)

    def truths(self, key: str, epoch: int) -> dict[str, Truth]:
        """The members of the key's answer; one may be null."""
        epoch = 0 if self.kind in ("table", "select") else epoch
        found = {"v": _v(self.draws(key, "v"), self.name, key, epoch)}
        for member, (_, drawn) in MEMBERS.items():
            draws = self.draws(key, member)
            found[member] = drawn(draws)
            if member != "n" and draws.random() < 0.05:
                found[member] = Truth("null", None)
        return found


def on(status: str) -> str:
    """The policy that holds for rows of a status without an answer."""
    return f"on_{status}" if status in ("miss", "timeout") else "on_error"


# what becomes of the n-th request for a key (from 0) of a mood: an answer, or a fault
ONCE = {
    "flaky": "500", "dropped": "drop", "throttled": "429", "busy": "503", "mended": "misfit",
    "found": "404", "hangs": "hang", "over": "over", "denied": "402", "barred": "451", "dozes": "slow",
}  # fmt: skip


def reaction(mood: str, earlier: int) -> str:
    """What the vendor does with a request for a key of the mood, after so many earlier ones."""
    if mood in ONCE:
        return "answer" if earlier else ONCE[mood]
    return {
        "ok": "answer", "long": "answer", "missing": "404", "refused": "400", "broken": "500",
        "moved": "302", "empty": "204", "later": "202", "stuck": "hang",
    }.get(mood, mood)  # fmt: skip
