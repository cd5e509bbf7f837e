"""Draws the lookups of a declaration, each by itself, from seeds."""

import random
from dataclasses import replace
from typing import Any

from tests.jobs.run.drawn.declarations import BY_PATHS, IN_SQL, PATIENT, call, ttl_of
from tests.jobs.run.drawn.input_files import COLUMNS
from tests.jobs.run.drawn.money import with_money
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
HANGING = ("http", "body", "pages", "coroutine")
# a condition, and what it says of a row
OF_NUMBER = ("number > 3", lambda row: row["number"] is not None and row["number"] > 3)
ONLY_CARRIED = ("x", "money")  # only Spark makes keys of them


def draw_look(draws: random.Random, seed: int, name: str, before: list[Look]) -> Look:
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
    """The lookup, possibly of a vendor that denies access once, by a status that stops a run or by
    another one, or whose failed rows stop a run.
    """
    draws = random.Random(f"stops:{seed}:{look.name}")
    denies, fails = draws.random() < 0.15, draws.random() < 0.15
    if denies and look.service and look.has_cache and look.idempotent:
        moods = draws.choice((("denied",), ("barred",), ("denied", "barred")))
        stop_on = draws.choice(((401, 402, 403), (401, 451)))
        look = replace(look, moods=(*look.moods, *moods), stop_on=stop_on)
    if not fails:
        return look
    policies = look.policies | {"on_error": "fail"}
    return replace(look, policies=policies, fields=look.fields | {"on_error": "fail"})


def _with_throttling(look: Look, seed: int) -> Look:
    """The lookup, possibly of a vendor that throttles in answers of status 200."""
    draws = random.Random(f"throttles:{seed}:{look.name}")
    can = look.kind in ("http", "body") and look.has_cache and "on_timeout" not in look.policies
    if not can or draws.random() > 0.3:
        return look
    fields = look.fields | {"throttled_when": [429, 503, "$.over == true"]}
    return replace(look, moods=(*look.moods, "over"), fields=fields)


def _with_hangs(look: Look, seed: int) -> Look:
    """The lookup, possibly of a vendor that leaves some requests without an answer, for the time of
    an attempt or of a row.
    """
    draws = random.Random(f"hangs:{seed}:{look.name}")
    if look.kind not in HANGING or draws.random() > 0.25:
        return look
    once = draws.random() < 0.5 and look.has_cache
    if draws.random() < 0.5 or look.repair:
        mood, fields = "hangs" if once else "stuck", {"attempt_timeout": PATIENCE}
        return replace(look, moods=(*look.moods, mood), fields=look.fields | fields)
    on_timeout = draws.choice(("null", "dead_letter"))
    # a further attempt may wait for the slot of a slow one until its row leaves
    fields = {"timeout": PATIENCE, "retry": call("Retry", retries=0)}
    finishes = look.kind != "coroutine" and look.has_cache and draws.random() < 0.5
    if finishes:
        fields |= {"attempt_timeout": 10 * PATIENCE, "finish_after_timeout": True}
    moods = [mood for mood in look.moods if mood not in ("throttled", "busy")]
    return replace(
        look, moods=(*moods, "dozes" if once else "slow"), finishes=finishes, retries=0,
        policies=look.policies | {"on_timeout": on_timeout},
        fields=look.fields | fields | {"on_timeout": on_timeout},
    )  # fmt: skip


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
        return OF_NUMBER
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
