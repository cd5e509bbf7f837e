"""What the nights of jobs enrich: days of rows with a text, by a lookup that submits jobs to a
vendor of any dialect.
"""

import functools
import random
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812  # Spark's own name for it

from jobs.clients.billing_meter import Meters
from jobs.declare.ledger_settings import Ttl
from jobs.declare.vendor_jobs import JobLookup
from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.store import LedgerFolder
from jobs.schema import columns as schema
from jobs.task.plan import PartitionPlan
from jobs.task.rows.arrow_batches import BatchLayout
from tests.simulation.declared import LEDGER
from tests.simulation.frames import ROWS_PER_BATCH, Frame
from tests.simulation.spark import Spark
from tests.simulation.vendor_jobs.dialects import DIALECTS, Dialect
from tests.simulation.vendor_jobs.night import GIVE_UP, JobsNight
from tests.simulation.vendor_jobs.vendor import CREATED, ITEM, MOST_TOKENS, REFUSED, TOKEN
from tidegate import (
    NOT_KNOWN_YET,
    Budget,
    Enrichment,
    Failed,
    Input,
    Ledger,
    Output,
    Over,
    Price,
    Refused,
    Retry,
    Running,
    Service,
    jobs,
)

URL = "http://192.0.2.9"
KEY = "__key_t"
ANSWERS_WITHIN = 20.0  # s


class Vendor:
    """The vendor as a user declares it; dialect: as its documentation says."""

    dialect: Dialect

    async def submit(self, items: Sequence[Any], token: str, http: Any) -> str:
        lines = [{"id": item.id, "text": item.row.t} for item in items]
        body: dict[str, Any] = {"token": token, "items": lines}
        if self.dialect.takes == "file":
            body = {"token": token, "file": (await http.post("/files", lines=lines))["file"]}
        job: str = (await http.post("/jobs", json=body))["id"]
        if self.dialect.takes == "start":
            await http.post(f"/jobs/{job}/start", json={})
        return job

    async def state(self, job: str, http: Any) -> Any:
        found = await http.get(f"/jobs/{job}", miss=())
        word = found["state"]
        if word in (CREATED, *self.dialect.running):
            return Running(found["done"])
        return Refused("line 1") if word == self.dialect.word(REFUSED) else Over(word)

    async def results(self, job: str, http: Any) -> AsyncIterator[tuple[str, Any]]:
        counted = set()
        async for line in self._lines(job, http):
            if self.dialect.by_token and "tokens" in line and line["id"] not in counted:
                http.bill(tokens=line["tokens"])
                counted.add(line["id"])
            if "error" in line:
                billed = self.dialect.bills != "answered"
                yield line["id"], Failed(line["error"], again=not line["final"], billed=billed)
            else:
                yield line["id"], line["answer"]

    async def _lines(self, job: str, http: Any) -> AsyncIterator[dict[str, Any]]:
        match self.dialect.gives:
            case "inline":
                for line in (await http.get(f"/jobs/{job}", miss=()))["results"]:
                    yield line
            case "pages":
                number, more = 0, True
                while more:
                    page = await http.get(f"/jobs/{job}/pages/{number}", miss=())
                    for line in page["rows"]:
                        yield line
                    number, more = number + 1, page["more"]
            case _:
                files = ["/answers", "/errors"] if self.dialect.gives == "two files" else [""]
                for file in files:
                    async for line in http.lines(f"/jobs/{job}/results{file}"):
                        yield line


async def _find(self: Vendor, token: str, http: Any) -> Any:
    first, page = 0, {"more": True, "complete": True}
    while page["more"]:
        page = await http.get("/jobs", params={"after": first})
        first += len(page["jobs"])
        for job in page["jobs"]:
            if job["token"] == token:
                if job["state"] == CREATED:
                    await http.post(f"/jobs/{job['id']}/start", json={})
                return job["id"]
    return None if page["complete"] else NOT_KNOWN_YET


async def _cancel(_self: Vendor, job: str, http: Any) -> None:
    await http.post(f"/jobs/{job}/cancel", json={})


@functools.lru_cache(maxsize=256)
def _lookup(name: str, max_items: int, most_open: int, retries: int, budget: int) -> JobLookup:
    dialect = DIALECTS[name]
    methods: dict[str, Any] = {"dialect": dialect}
    methods |= {"find": _find} if dialect.recovery == "list" else {}
    methods |= {"cancel": _cancel} if dialect.cancels else {}
    prices = [Price(f"{ITEM} USD", per="item")]
    if dialect.by_token:
        prices.append(Price(f"{TOKEN} USD", per="token", at_most=MOST_TOKENS))
    most = ITEM + (MOST_TOKENS * TOKEN if dialect.by_token else 0)
    service = Service(
        name=name, url=URL, max_concurrency=most_open, prices=prices,
        budget=[Budget(f"{budget * most} USD", per="month")] if budget else [],
    )  # fmt: skip
    return jobs(
        service=service, keys={"t": "t"}, returns="label STRING", recovery=dialect.recovery,
        max_items=max_items, give_up=timedelta(seconds=GIVE_UP), retry=Retry(retries=retries),
        attempt_timeout=ANSWERS_WITHIN, ttl=Ttl(miss=None), name="labels",
    )(type("Labels", (Vendor,), methods))  # fmt: skip


def lookup_of(night: JobsNight) -> JobLookup:
    return _lookup(night.dialect, night.max_items, night.most_open, night.retries, night.budget)


def enrichment_of(night: JobsNight) -> Enrichment:
    return Enrichment(
        name="reviews", input=Input(path="raw", row_id=["id"]), lookups=[lookup_of(night)],
        output=Output(path="published"), ledger=Ledger(LEDGER), pii=["t"] if night.personal else [],
    )  # fmt: skip


def folder_of(night: JobsNight) -> LedgerFolder:
    return LedgerFolder(LEDGER, "labels", request_fingerprint(lookup_of(night)))


def draw_texts(night: JobsNight, day: int) -> list[str | None]:
    """The text of each row of a day; the keys of all days are the same ones."""
    draws = random.Random(f"texts:{night.seed}:{day}")
    return [
        None if draws.random() < 0.03 else f"t{draws.randrange(night.keys)}"
        for _ in range(night.rows)
    ]


def frame_of(texts: Sequence[str | None], spark: Spark) -> Frame:
    """The rows as a run has prepared them, for one task."""
    numbers, keys = pa.array(range(len(texts)), pa.int64()), pa.array(texts, pa.string())
    table = pa.table(
        {
            "id": numbers, schema.SOURCE_ROW: numbers,
            schema.SOURCE_FILE: pa.array(["file:///day"] * len(texts), pa.string()),
            "t": keys, KEY: keys,
        }
    )  # fmt: skip
    types = T.StructType(
        [
            T.StructField(field.name, T.LongType() if field.type == pa.int64() else T.StringType())
            for field in table.schema
        ]
    )
    return Frame(spark, types, [table.to_batches(ROWS_PER_BATCH)])


def plan_of(night: JobsNight, run_id: str, meters: str, started_at: str) -> PartitionPlan:
    """The plan of a run."""
    lookup = lookup_of(night)
    layout = BatchLayout(
        carried=("id", "t", schema.SOURCE_FILE, schema.SOURCE_ROW), keys=((KEY,),), order_key=(),
        event_time=None, max_out_of_orderness_ms=0, lookups=("labels",), answers=(lookup.columns,),
        key_names=(("t",),), chained=(),
    )  # fmt: skip
    ledger = LedgerPlan(
        LEDGER, "labels", request_fingerprint(lookup), run_id, lookup.ttl, 20, 0.5,
        hidden=night.personal, idempotent=lookup.repeatable,
    )  # fmt: skip
    return PartitionPlan(
        lookups=(lookup,), shares=((1,),), mode="unordered", layout=layout, progress=None,
        ledgers=(ledger,), may_call=True, meters=Meters(meters, {}, run_id, started_at),
    )  # fmt: skip
