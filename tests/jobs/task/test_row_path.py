"""What one row and one call cross inside a task, beside the list in docs/design.md."""

import re
import sys
import threading
from collections import Counter

import pyarrow as pa
from aiohttp import web

from jobs.clients import request_counter
from jobs.run.plan.options import RunOptions, plan_ledger
from jobs.task.plan import PartitionPlan
from jobs.task.rows.arrow_batches import BatchLayout
from jobs.task.runner import PartitionRun
from tests.support.sources import ROOT
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Service

FILES_AT_MOST = 37
ROOMS = ("jobs/", "asyncio_core/")
IN_EACH_BATCH = 0.9  # calls a row: fewer are of a batch, or of a part of the ledger


def listed():
    """The files of the table in docs/design.md."""
    text = (ROOT / "docs/design.md").read_text().partition("crosses these")[2].partition("## ")[0]
    rows = re.findall(r"^\| `([a-z_/]+/)` \| (.+) \|$", text, re.MULTILINE)
    return {
        f"{room}{name}" for room, names in rows for name in re.findall(r"`([a-z_/]+\.py)`", names)
    }


def crossed(plan, first, rows):
    """Calls by file while these rows go through a task, each with a request of its own."""
    calls = Counter()

    def note(frame, event, _argument):
        path = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        if event == "call" and path.startswith(ROOMS) and frame.f_code.co_name != "<module>":
            calls[path] += 1

    keys = pa.array([str(first + number) for number in range(rows)])
    columns = {
        "id": keys,
        "_source_file": pa.nulls(rows, pa.string()),
        "_source_row": pa.array(range(rows), pa.int64()),
    }
    request_counter.begin()  # without the meter of a test before
    before = sys.getprofile(), threading.getprofile()
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        list(
            PartitionRun(plan, 0, 0).run(
                iter([pa.RecordBatch.from_pydict(columns | {"__key_0_0": keys})])
            )
        )
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])
    return calls


def test_a_row_and_its_call_cross_only_the_files_that_the_design_lists(service, tmp_path):
    async def answer(request):  # the service's signature
        return web.json_response({"x": 1.5})

    service.answer = answer
    lookup = HttpLookup(
        name="f", service=Service(name="s", url=service.url, max_concurrency=4),
        request="GET /v/{k}", keys={"k": "id"}, returns="x DOUBLE", timeout=20.0,
    )  # fmt: skip
    declared = Enrichment(
        name="b",
        input=Input(path="in"),
        lookups=[lookup],
        output=Output(path="out"),
        ledger=Ledger(str(tmp_path)),
    )
    layout = BatchLayout(
        carried=("id", "_source_file", "_source_row"), keys=(("__key_0_0",),), order_key=(),
        event_time=None, max_out_of_orderness_ms=0, lookups=("f",), answers=(lookup.columns,),
        key_names=(("k",),),
    )  # fmt: skip

    def plan(run):
        return PartitionPlan(
            (lookup,),
            ((4,),),
            "ordered",
            layout,
            None,
            ledgers=(plan_ledger(declared, lookup, run, RunOptions()),),
        )

    def found(turn):
        few, many = (
            crossed(plan(f"few{turn}"), 2000 * turn, 20),
            crossed(plan(f"many{turn}"), 2000 * turn + 1000, 60),
        )
        return {path for path in many if (many[path] - few[path]) / 40 >= IN_EACH_BATCH}

    way = found(0)
    for turn in range(1, 10):  # in a slow turn, threads that look again after a time count as well
        if way <= listed():
            break
        way &= found(turn)
    assert {
        "jobs/task/lookup/lookup_function.py",
        "jobs/clients/http/http_client.py",
        "jobs/task/lookup/task_ledger.py",
    } <= way
    assert way - listed() == set()
    assert len(listed()) <= FILES_AT_MOST
    assert all((ROOT / path).is_file() for path in listed())
