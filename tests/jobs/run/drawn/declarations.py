"""Draws whole declarations, with their input, from seeds."""

import datetime as dt
import itertools
import math
import random
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from tests.jobs.run.drawn.input_files import COLUMNS, FORMATS, SCHEMA, in_format
from tests.jobs.run.drawn.money import most_of_call, most_units, with_money
from tests.jobs.run.drawn.natures import MEMBERS, ONCE, PATIENCE, Look

OF_HTTP = (
    "missing", "refused", "broken", "flaky", "dropped", "throttled", "busy", "misfit", "lacks",
    "wrong", "twice", "garbage", "empty", "large", "later", "moved", "mended", "found", "none",
)  # fmt: skip
MOODS = {
    "http": OF_HTTP,
    "body": OF_HTTP,
    "pages": (*OF_HTTP[:6], "misfit", "long"),
    "batch": (
        "none", "refused", "broken", "flaky", "throttled", "misfit", "lacks", "wrong", "left out",
    ),
    "coroutine": (*OF_HTTP[:6], "misfit", "lacks", "garbage"),
    "function": ("missing", "broken", "flaky", "misfit", "lacks", "two"),
    "table": ("missing", "misfit", "two"),
    "select": ("missing", "misfit", "two"),
}  # fmt: skip
KINDS = (
    "http", "http", "body", "body", "pages", "batch", "batch", "coroutine", "function", "table",
    "select",
)  # fmt: skip
IN_SQL = ("table", "select")
HANGING = ("http", "body", "pages", "coroutine")
BY_PATHS = ("http", "body", "pages", "batch")
AUTHS = ("", "", "", "oauth header", "oauth body", "bearer", "basic", "header", "query")
ACTS = (
    "run", "run", "days", "capped", "replay", "remap", "refresh", "try", "forget", "forget",
    "price", "version", "judges", "required", "column", "error ttl", "budget",
)  # fmt: skip
TEXTS = (
    "", "a", "a/b", "..", "ä", "a\u0308", "漢字", "😀", " padded ", "1e5", "null", "?x=1&y", "%2F",
    '"', "a\nb", "\\", "x" * 300, "0", "A", "+", "#", "{k}", "\u200b", "true",
)  # fmt: skip
ONLY_CARRIED = ("x", "money")  # only Spark makes keys of them
HEAD = """from datetime import timedelta

from tests.jobs.run.drawn.functions import Answers, ask_vendor
from tidegate import *
from tidegate import lookup
"""


# -- texts -----------------------------------------------------------------------------------------
@dataclass
class Call:
    """A call in the text of a declaration, as `Price('1 USD', per='item')`."""

    name: str
    given: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        named = (f"{name}={value!r}" for name, value in self.named.items())
        return f"{self.name}({', '.join([*map(repr, self.given), *named])})"


@dataclass
class Bare:
    """A name in the text."""

    name: str

    def __repr__(self) -> str:
        return self.name


def call(_name: str, *given: Any, **named: Any) -> Call:
    return Call(_name, given, named)


PATIENT = call("Outage", after=100_000)


def ttl_of(*, miss: bool, error: bool) -> Call:
    """The times to live. miss: misses count for ever; error: errors count for a day."""
    nothing = call("timedelta", 0)
    return call("Ttl", miss=None if miss else nothing, error=call("timedelta", days=int(error)))


@dataclass
class Drawn:
    """A drawn enrichment with its days, and what is done with it after its first run."""

    looks: list[Look]
    days: dict[str, list[dict[str, Any]]]  # their rows
    files: int
    auth: dict[str, str]  # service -> how it knows its client
    mode: str
    acts: list[str]
    bounds_itself: bool = False  # the budget is the enrichment's, not the service's
    form: str = "parquet"  # of the input's files

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of all days."""
        return [row for rows in self.days.values() for row in rows]

    def text(self, url: str) -> str:
        """The module that declares it as `it`."""
        lookups: list[Call] = []
        budgets: list[Call] = []
        for look in self.looks:
            if self.bounds_itself:
                budgets += _budgets_of(look)
            beside = [one for one in self.looks if one.service == look.service != ""]
            service = _service_of(beside, url, self.auth[look.service]) if beside else None
            if self.bounds_itself and service:
                service.named["budget"] = []
            one = _declared(look, service)
            if not look.waterfall:
                lookups.append(one)
            elif not lookups or lookups[-1].named["name"] != look.waterfall:
                accept = look.accept or None
                lookups.append(call(
                    "Waterfall", name=look.waterfall, of=[one], accept=accept,
                    spill_on=[*look.spills],
                ))  # fmt: skip
            else:
                lookups[-1].named["of"].append(one)
        read = {"path": "raw", "row_id": ["id"], "format": self.form}
        if self.form != "parquet":
            read["schema"] = SCHEMA
        it = call(
            "Enrichment", name="drawn", input=call("Input", **read),
            lookups=lookups, output=call("Output", path="published"), mode=self.mode,
            ledger=call("Ledger", path="ledger"),
            tolerance=call("Tolerance", error=1.0, timeout=1.0), budget=budgets,
        )  # fmt: skip
        return "\n\n".join([HEAD, *map(_function_of, self.looks), f"it = {it!r}\n"])


def _function_of(look: Look) -> str:
    if look.kind == "coroutine":
        asks = f"ask_vendor({look.name!r}, {[*look.keys]!r}, row, http)"
        return f"async def {look.name}_asks(row, http):\n    return await {asks}\n"
    if look.kind == "function":
        return f"class {look.name.title()}Answers(Answers):\n    name = {look.name!r}\n"
    return ""


def _declared(look: Look, service: Call | None) -> Call:
    types = {name: kind for name, (kind, _) in MEMBERS.items()}
    types |= {"v": "STRING", "items": "ARRAY<STRING>"}
    named = {
        "name": look.name, "keys": {name: sql for name, (sql, _) in look.keys.items()},
        "returns": ", ".join(f"{look.column(name)} {types[name]}" for name in look.members),
        "version": look.version, "when": look.when or None, **look.fields,
    }  # fmt: skip
    if service:
        named["service"] = service
    if look.kind in BY_PATHS:
        named["paths"] = {look.column(member): f"$.{member}" for member in look.members}
        if "items" in look.members:
            named["paths"][look.column("items")] = "$.items[*]"
        named["error_when"] = ["$.state == 'FAILED'"] if look.judges else []
        named["required"] = [look.column(member) for member in look.required]
    if look.kind == "coroutine":
        return call(repr(call("lookup", **named)), Bare(f"{look.name}_asks"))
    if look.kind == "function":
        named["function"] = Bare(f"{look.name.title()}Answers")
        return call("AsyncFunctionLookup", **named)
    if look.kind == "select":
        where = " AND ".join(f"{key} = :{key}" for key in look.keys)
        columns = ", ".join(map(look.column, look.members))
        named["select"] = f"SELECT {columns} FROM of_{look.name} WHERE {where}"
    return call("SqlLookup" if look.kind in IN_SQL else "HttpLookup", **named)


def _service_of(looks: list[Look], url: str, auth: str) -> Call:
    look = looks[0]
    user, secret = (call("Env", f"DRAWN_{name}") for name in ("USER", "SECRET"))
    kind, _, how = auth.partition(" ")
    auths = {
        "bearer": call("Bearer", call("Env", "DRAWN_TOKEN")),
        "basic": call("Basic", user, secret),
        "header": call("ApiKey", call("Env", "DRAWN_KEY"), header="X-Key"),
        "query": call("ApiKey", call("Env", "DRAWN_QUERY"), query="api_key"),
        "oauth": call(
            "OAuth2ClientCredentials", token_url=f"{url}/token", client_id=user,
            client_secret=secret, client_auth=how or "header",
        ),
    }  # fmt: skip
    return call(
        "Service", name=look.service, url=f"{url}/{look.service}", prices=_prices_of(look),
        max_concurrency=len(looks) + len(look.moods) % 6, outage=PATIENT, auth=auths.get(kind),
        budget=_budgets_of(look), rate=_rates_of(look),
    )  # fmt: skip


def _prices_of(look: Look) -> list[Call]:
    prices = []
    for each, unit in look.prices:
        named: dict[str, Any] = {"per": f"1000 {unit}s" if look.in_thousands else unit}
        amount = f"{1000 * Decimal(each)}" if look.in_thousands else each
        if unit in ("token", "hit"):
            named["at_most"] = most_units(look, unit)
        if look.model:
            prices.append(call("Price", "11 USD", **named, model="other"))
        if look.model == "own":
            prices.append(call("Price", "13 USD", **named))
            named["model"] = "mine"
        if look.has_older_prices:
            prices.append(call("Price", "3 USD", **named))
            prices.append(call("Price", "7 USD", since="2090-01-01", **named))
            named["since"] = "2020-01-01"
        prices.append(call("Price", f"{amount} USD", **named))
    return prices


def _rates_of(look: Look) -> list[Call]:
    """Limits that a night may reach, and that pass at once."""
    draws = random.Random(f"rates:{look.seed}:{look.name}")
    return [call("Rate", draws.choice((40, 200)), per="second")] if draws.random() < 0.25 else []


def _budgets_of(look: Look) -> list[Call]:
    if not look.budget:
        return []
    most = {"at_most": f"{most_of_call(look)} USD"} if look.kind == "pages" else {}
    amounts = {"day": look.budget, "month": 3 * look.budget}
    return [call("Budget", f"{amount} USD", per=per, **most) for per, amount in amounts.items()]


# -- drawing ---------------------------------------------------------------------------------------
def draw(seed: int) -> Drawn:
    """The declaration of this seed."""
    draws = random.Random(f"declaration:{seed}")
    form = random.Random(f"form:{seed}").choice(FORMATS)
    rows = [in_format(form, row) for row in _draw_rows(draws)]
    looks: list[Look] = []
    for name in "abc"[: draws.choice((1, 1, 2, 2, 3))]:
        looks.append(_draw_look(draws, seed, name, looks))
    if len(looks) > 1 and draws.random() < 0.35:
        looks[:2] = _as_waterfall(draws, looks)
    looks = _at_one_service(looks, seed)
    auth = {look.service: draws.choice(AUTHS) for look in looks if look.service}
    for place, look in enumerate(looks):
        if look.kind == "pages" and auth[look.service].startswith("oauth"):
            # a token that is renewed within pages repeats them, and so what happens only once
            moods = tuple(mood for mood in look.moods if mood not in ONCE)
            looks[place] = replace(look, moods=moods)
    drawn = Drawn(
        looks, _draw_days(seed, rows), draws.choice((1, 1, 2, 3)), auth,
        draws.choice(("ordered", "unordered")), draws.choices(ACTS, k=draws.choice((2, 3, 4))),
        form=form,
    )  # fmt: skip
    more = random.Random(f"more:{seed}")
    is_alone = sum(bool(look.prices) for look in looks) == 1
    drawn.bounds_itself = more.random() < 0.5 and is_alone
    if more.random() < 0.3:
        drawn.acts.insert(more.randint(0, len(drawn.acts)), "repair")
    return drawn


def _at_one_service(looks: list[Look], seed: int) -> list[Look]:
    """The lookups, possibly two of them at one service, with its prices and its budget."""
    can_share = [one for one in looks if one.kind in ("http", "body", "coroutine")]
    can_share = [one for one in can_share if not one.bills_use]
    if len(can_share) < 2 or random.Random(f"service:{seed}").random() < 0.5:
        return looks
    first, second = can_share[:2]
    fields = {name: value for name, value in second.fields.items() if name != "model"}
    if first.model:
        fields["model"] = first.fields["model"]
    shared = ("service", "prices", "budget", "has_older_prices", "in_thousands", "model")
    facts = {name: getattr(first, name) for name in shared}
    return [replace(one, fields=fields, **facts) if one is second else one for one in looks]


def _draw_rows(draws: random.Random) -> list[dict[str, Any]]:
    count, nulls = draws.choice((3, 10, 25, 40, 60)), draws.choice((0.0, 0.1, 0.3))
    return [
        {"id": number}
        | {
            name: None if draws.random() < nulls else _draw_value(draws, kind)
            for name, kind in COLUMNS.items()
        }
        for number in range(count)
    ]


def _draw_days(seed: int, rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by their day, at least one in each."""
    draws = random.Random(f"days:{seed}")
    ends = draws.sample(range(1, len(rows)), draws.choice((0, 0, 1, 2)))
    starts = [0, *sorted(ends), len(rows)]
    parts = [rows[start:end] for start, end in itertools.pairwise(starts)]
    return {f"2026-01-{number:02}": part for number, part in enumerate(parts, start=1)}


def _draw_value(draws: random.Random, kind: str) -> Any:
    few = draws.randrange(20)
    if kind == "text":
        return draws.choice((*TEXTS, *(f"key {few + one}" for one in range(len(TEXTS)))))
    if kind == "date":
        return dt.date(2026, 1, 1) + dt.timedelta(days=few // 2)
    if kind == "time":
        micros = draws.choice((0, 0, 1, 500_000))
        at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        return at + dt.timedelta(hours=few // 2, microseconds=micros)
    return draws.choice({
        "number": (0, -1, 2**53 + 1, -(2**63), 2**63 - 1, few),
        "double": (0.0, -0.0, math.nan, math.inf, 0.1, 1e20, 1e-7, float(few)),
        "decimal": (Decimal("-0.0001"), Decimal("12345678901234.5678"), Decimal(few)),
        "bool": (True, False),
    }[kind])  # fmt: skip


def _draw_look(draws: random.Random, seed: int, name: str, before: list[Look]) -> Look:
    kind = draws.choice(KINDS)
    found: dict[str, Any] = {
        "retries": draws.choice((0, 1, 2)), "has_cache": draws.random() < 0.9,
        "miss_ttl": draws.random() < 0.7, "error_ttl": draws.random() < 0.25,
        "policies": {on: draws.choice(("null", "dead_letter")) for on in ("on_miss", "on_error")},
    }  # fmt: skip
    rare = draws.sample(MOODS[kind], draws.randint(0, min(6, len(MOODS[kind]))))
    if not found["has_cache"]:  # which of equal rows comes first is not said
        rare = [mood for mood in rare if mood not in ONCE]
    found["moods"] = ("ok",) * draws.choice((1, 4, 12)) + tuple(rare)
    found["members"] = ("v", "n")
    if kind not in IN_SQL:
        others = [member for member in MEMBERS if member != "n"]
        found["members"] += tuple(draws.sample(others, draws.randint(0, 3)))
    if found["has_cache"] and draws.random() < 0.25:
        found |= {"idempotent": False, "retries": 0}
    found |= _draw_keys(draws, kind, before)
    pauses = {"initial_delay": 0.005, "max_delay": 0.01, "multiplier": 1.5, "jitter": 0.5}
    fields: dict[str, Any] = {
        "timeout": 30.0, "retry": call("Retry", retries=found["retries"], **pauses),
        "ttl": ttl_of(miss=found["miss_ttl"], error=found["error_ttl"]),
        "idempotent": found.get("idempotent", True), **found["policies"],
    }  # fmt: skip
    if not found["has_cache"]:
        fields["cache"] = None
    elif draws.random() < 0.3:
        fields["cache"] = call("Cache", max_entries=draws.choice((1, 2, 100)))
    if kind in IN_SQL:
        fields |= _fields_of_sql(draws, kind, name)
    elif kind == "function":
        fields |= {"max_concurrency": draws.randint(1, 5), "outage": PATIENT}
    else:
        found |= {"service": f"s{name}", "prices": _draw_prices(draws, kind)}
    look = Look(name=name, seed=seed, kind=kind, fields=fields, **found)
    if kind in BY_PATHS:
        look = _with_conditions(_with_request(draws, look), seed)
    return _with_stops(_with_throttling(_with_hangs(with_money(look, seed), seed), seed), seed)


def _with_conditions(look: Look, seed: int) -> Look:
    """The lookup, possibly with answers that name their key, or that are cut."""
    draws = random.Random(f"conditions:{seed}:{look.name}")
    fields, moods = dict(look.fields), look.moods
    if look.kind != "batch" and draws.random() < 0.3:
        fields["echo"] = {key: f"$.asked.{key}" for key in look.keys}
    if look.kind in ("http", "body") and draws.random() < 0.3:
        fields["cut_when"] = "$.finish == 'length'"
        moods += ("cut",)
    return replace(look, fields=fields, moods=moods)


def _with_stops(look: Look, seed: int) -> Look:
    """The lookup, possibly of a vendor that denies access once, or whose failed rows stop a run."""
    draws = random.Random(f"stops:{seed}:{look.name}")
    denies, fails = draws.random() < 0.15, draws.random() < 0.15
    if denies and look.service and look.has_cache and look.idempotent:
        look = replace(look, moods=(*look.moods, "denied"))
    if not fails:
        return look
    policies = look.policies | {"on_error": "fail"}
    return replace(look, policies=policies, fields=look.fields | {"on_error": "fail"})


def _with_throttling(look: Look, seed: int) -> Look:
    """The lookup, possibly of a vendor that throttles in answers of status 200."""
    draws = random.Random(f"throttles:{seed}:{look.name}")
    if look.kind not in ("http", "body") or not look.has_cache or draws.random() > 0.3:
        return look
    fields = look.fields | {"throttled_when": [429, 503, "$.over == true"]}
    return replace(look, moods=(*look.moods, "over"), fields=fields)


def _with_hangs(look: Look, seed: int) -> Look:
    """The lookup, possibly of a vendor that leaves some requests without an answer."""
    draws = random.Random(f"hangs:{seed}:{look.name}")
    if look.kind not in HANGING or draws.random() > 0.25:
        return look
    mood = draws.choice(("hangs", "stuck")) if look.has_cache else "stuck"
    fields = look.fields | {"attempt_timeout": PATIENCE}
    return replace(look, moods=(*look.moods, mood), fields=fields)


def _draw_keys(draws: random.Random, kind: str, before: list[Look]) -> dict[str, Any]:
    """The keys, how each is read from a row, and the condition of a call."""
    chained = [look for look in before if look.has_cache and kind not in IN_SQL]
    columns = {name: of for name, of in COLUMNS.items() if name not in ONLY_CARRIED}
    if kind in IN_SQL:
        columns = {"k": "text", "number": "number"}
    keys, reads = {}, {}
    for name in draws.sample(["p", "q"], 1 if kind == "table" else draws.choice((1, 1, 1, 2))):
        column = draws.choice([*columns])
        if chained and draws.random() < 0.5:
            member = draws.choice(("v", "n"))
            column = draws.choice(chained).column(member)
            keys[name] = (column, "text" if member == "v" else "number")
            reads[name] = _value_of(column)
        elif columns[column] == "text" and draws.random() < 0.4:
            keys[name] = (f"trim({column})", "text")
            reads[name] = _trimmed(column)
        else:
            keys[name] = (column, columns[column])
            reads[name] = _value_of(column)
    found: dict[str, Any] = {"keys": keys, "reads": reads}
    if draws.random() < 0.25:
        found["when"], found["holds"] = _draw_condition(draws, chained)
    return found


def _value_of(column: str) -> Any:
    return lambda row: row[column]


def _trimmed(column: str) -> Any:
    return lambda row: None if row[column] is None else row[column].strip(" ")


def _draw_condition(draws: random.Random, chained: list[Look]) -> Any:
    if not chained or draws.random() < 0.3:
        return "number > 3", lambda row: row["number"] is not None and row["number"] > 3
    other = draws.choice(chained).name
    status, number = f"{other}_status", f"{other}_n"
    return draws.choice((
        (f"{status} = 'ok'", lambda row: row[status] == "ok"),
        (f"{status} IN ('miss', 'error')", lambda row: row[status] in ("miss", "error")),
        (f"{number} > 50", lambda row: row[number] is not None and row[number] > 50),
    ))  # fmt: skip


def _draw_prices(draws: random.Random, kind: str) -> tuple[tuple[str, str], ...]:
    units = [draws.choice(("item", "request"))] if draws.random() < 0.6 else []
    if draws.random() < 0.4:
        units.append("token" if kind == "coroutine" else draws.choice(("token", "token", "hit")))
    amounts = {"token": "0.000123", "hit": "0.0010"}
    return tuple((amounts.get(unit, "0.0040"), unit) for unit in units)


def _fields_of_sql(draws: random.Random, kind: str, name: str) -> dict[str, Any]:
    found = {
        "url": "sqlite+aiosqlite:///answers.db", "max_concurrency": draws.randint(1, 4),
        "outage": PATIENT,
    }  # fmt: skip
    if kind == "table":
        found["table"] = f"of_{name}"
        if draws.random() < 0.6:
            found |= {"batch_size": draws.randint(2, 9), "max_wait": 0.01}
    return found


def _with_request(draws: random.Random, look: Look) -> Look:
    """The lookup with its request, and how its answers are read."""
    in_path = look.kind in ("http", "pages")
    path = "/".join(["", look.name, *(f"{{{key}}}" for key in look.keys if in_path)])
    fields: dict[str, Any] = {"request": f"{'GET' if in_path else 'POST'} {path}"}
    facts: dict[str, Any] = {"judges": draws.random() < 0.5}
    item = {key: f"{{{key}}}" for key in look.keys}
    if look.bills_use:
        fields["bill"] = {"hits": 1} if look.bills_hits else {"tokens": "$.usage.tokens"}
    if look.kind != "pages" and draws.random() < 0.5:
        facts["required"] = ("n",)
    if look.kind in ("http", "body"):
        fields |= {"miss_when": [404, "$.none == true"], "max_answer_bytes": 2500}
        if draws.random() < 0.3:
            facts["takes_202"], fields["answer_when"] = True, [202]
    if look.kind == "body":
        fields["body"] = item
        if look.idempotent and look.has_cache and draws.random() < 0.4:
            facts["repair"] = fields["repair"] = 1
            fields["body"]["again"] = "again{repair}"
    if look.kind in ("http", "body") and "repair" not in facts and draws.random() < 0.25:
        # a call that may be repeated, because the vendor recognizes it
        facts |= {"has_header": True, "idempotent": True}
        fields |= {"idempotency_header": "X-Call", "idempotent": False}
    elif look.kind == "batch":
        fields["miss_when"] = ["$.none == true"]
        facts |= _draw_batch(draws, item, fields)
    elif look.kind == "pages":
        facts |= {"members": (*look.members, "items"), **_draw_pages(draws, fields)}
    return replace(look, fields=look.fields | fields, **facts)


def _draw_batch(draws: random.Random, item: Any, fields: dict[str, Any]) -> dict[str, Any]:
    most = draws.randint(1, 7)
    batch = call(
        "Batch", max_items=most, max_wait=0.01, body={"items": "{items}"},
        answers="$.answers", item=item,
    )  # fmt: skip
    match, left_out = draws.choice(("match", "position", "")), "error"
    if match == "match":
        item["id"], left_out = "{id}", draws.choice(("error", "miss"))
        batch.named |= {"match": "$.id", "left_out": left_out}
    elif match:
        batch.named["position"] = "$.place"
    fields["batch"] = batch
    return {"batch_match": match, "left_out": left_out, "max_items": most}


def _draw_pages(draws: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    form, most = draws.choice(("parameter", "Link", "address")), draws.randint(1, 4)
    pages = call(
        "Pages", next="Link" if form == "Link" else "$.next", items="$.items", max_pages=most
    )
    if form == "parameter":
        pages.named["parameter"] = "page"
    if form != "Link" and draws.random() < 0.4:
        pages.named["more"] = "$.more"
    fields["pages"] = pages
    return {"page_form": form, "max_pages": most}


def _as_waterfall(draws: random.Random, looks: list[Look]) -> list[Look]:
    """The first two lookups as the vendors of a waterfall, where that can be."""
    read = [sql for look in looks for sql, _ in look.keys.values()] + [look.when for look in looks]
    vendors = looks[:2]
    if any(sql.startswith(("a_", "b_")) for sql in read):
        return vendors
    if not all(look.has_cache for look in vendors):
        return vendors
    members = tuple(one for one in vendors[0].members if one in vendors[1].members)
    accept, accepts = draws.choice((("", _any), ("w_n > 20", _above_20)))
    facts = {
        "members": members, "waterfall": "w", "accept": accept, "accepts": accepts,
        "spills": draws.choice(((), ("error",))),
    }  # fmt: skip
    return [replace(look, **facts) for look in vendors]


def _any(_values: dict[str, Any]) -> bool:
    return True


def _above_20(values: dict[str, Any]) -> bool:
    return values["n"] is not None and values["n"] > 20
