"""Writes drawn declarations as the modules that declare them."""

import random
import re
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.jobs.run.drawn.input_files import COLUMNS, schema_of
from tests.jobs.run.drawn.money import most_of_call, most_units
from tests.jobs.run.drawn.natures import MEMBERS, Look
from tests.jobs.run.drawn.shapes import Shape

IN_SQL = ("table", "select")
BY_PATHS = ("http", "body", "pages", "batch")
HEAD = """from datetime import timedelta

from tests.jobs.run.drawn.functions import Answers, ask_vendor
from tidegate import *
from tidegate import lookup
"""


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


def words_of(look: Look) -> list[str]:
    """The words in the SQL that reads its keys and its condition."""
    return re.findall(r"\w+", " ".join([look.when, *(sql for sql, _ in look.keys.values())]))


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
    shown: dict[str, str] = field(default_factory=dict)  # where the table is shown otherwise, too
    tolerance: float = 1.0  # the share of rows that may fail
    shapes: dict[str, Shape] = field(
        default_factory=lambda: defaultdict(Shape)
    )  # of days; one in text

    @property
    def columns_read(self) -> set[str]:
        """The columns of the input that lookups read."""
        words = {word for look in self.looks for word in words_of(look)}
        return words & {*COLUMNS}

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
            beside = [other for other in self.looks if other.service == look.service != ""]
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
            read["schema"] = schema_of(next(iter(self.shapes.values())))
        it = call(
            "Enrichment", name="drawn", input=call("Input", **read),
            lookups=lookups, output=call("Output", path="published", **self.shown), mode=self.mode,
            ledger=call("Ledger", path="ledger"),
            tolerance=call("Tolerance", error=self.tolerance, timeout=self.tolerance),
            budget=budgets,
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
    types |= {"v": "STRING", "n": look.of_n, "items": "ARRAY<STRING>"}
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
        budget=_budgets_of(look), rate=_rates_of(look), stop_on=[*look.stop_on],
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
