"""Pairs of runs that start together, below Spark by the code of its tasks: counted at a real HTTP
service.
"""

import asyncio
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pytest
from aiohttp import web

from jobs.declare.http_lookup import HttpLookup
from jobs.declare.ledger_settings import Ttl
from jobs.declare.services import Service
from jobs.ledger.changes.compaction import compact
from jobs.ledger.plan import LedgerPlan, run_of_keys
from jobs.ledger.selection import Search
from jobs.run.keys.claims.task_keys import SharedLookup
from jobs.run.keys.hits import known_answers
from jobs.run.keys.kept_keys import keep_keys, release_prefetched
from jobs.run.keys.key_texts import TEXT
from jobs.run.keys.prefetch_task import PLACE, SharedKeys, run_prefetch
from jobs.run.keys.registration import look_at_ledger, registered
from jobs.schema import columns as schema
from jobs.task.plan import PartitionPlan
from jobs.task.rows.arrow_batches import BatchLayout
from jobs.task.runner import run_partition
from tests.support.places import everywhere, place_of

pytestmark = [pytest.mark.process]
TASKS, IN_FLIGHT = 2, 8
PAIRS_IN_A_LEDGER = 2


@dataclass(frozen=True)
class Task:
    """What a task asks of its TaskContext."""

    number: int

    def partitionId(self):  # noqa: N802  # Spark's name for it
        return self.number

    def stageId(self):  # noqa: N802
        return 0

    def attemptNumber(self):  # noqa: N802
        return 0


def lookup_of(service):
    return HttpLookup(
        name="score", service=Service(name="s", url=service.url, max_concurrency=IN_FLIGHT),
        request="GET /score/{k}", keys={"k": "k"}, returns="twice BIGINT", timeout=60.0,
    )  # fmt: skip


def task_plan(lookup, ledger):
    layout = BatchLayout(
        carried=(TEXT, PLACE, schema.SOURCE_FILE, schema.SOURCE_ROW), keys=(("k",),), order_key=(),
        event_time=None, max_out_of_orderness_ms=0, lookups=(lookup.name,),
        answers=(lookup.columns,),
    )  # fmt: skip
    shares = ((IN_FLIGHT // TASKS,) * TASKS,)
    return PartitionPlan((lookup,), shares, "unordered", layout, None, ledgers=(ledger,))


def rows_of(keys):
    return pa.table(
        {
            TEXT: [f"[{key}]" for key in keys],
            PLACE: pa.array([0] * len(keys), pa.int32()),
            "k": pa.array(keys, pa.int64()),
            schema.SOURCE_FILE: ["f"] * len(keys),
            schema.SOURCE_ROW: pa.array(keys, pa.int64()),
        }
    )


def run(root, run_id, lookup, keys, *, by_row, seed):
    """A run as `prepare_keys` does it, with tasks in threads. Returns the keys that it has
    answers for.
    """
    ledger = LedgerPlan(root, "score", "f" * 16, run_id, Ttl(), flush_rows=20, flush_seconds=0.05)
    with registered([ledger]):
        alone = not look_at_ledger(ledger).others
        by_row = by_row and alone
        search = Search(ledger.open_folder(), pa.array([f"[{key}]" for key in keys]))
        known = {*known_answers(search, lookup, ledger)["key"].to_pylist()}
        missing = [key for key in keys if f"[{key}]" not in known]
        texts = pa.array([f"[{key}]" for key in missing], pa.string())
        keep_keys(
            ledger, texts if by_row else texts.slice(0, 0),
            prefetched=texts if alone and not by_row else None,
        )  # fmt: skip
        shared = SharedKeys({0: SharedLookup(ledger, lookup, search.seen)}, alone, seed)
        of_keys = LedgerPlan(
            root,
            "score",
            "f" * 16,
            run_id if by_row else run_of_keys(run_id),
            Ttl(),
            flush_rows=20,
            flush_seconds=0.05,
        )

        def task(number):
            batches = iter(rows_of(missing[number::TASKS]).to_batches(max_chunksize=100))
            plan = task_plan(lookup, of_keys)
            if by_row:
                return [*run_partition(plan, batches, Task(number))]
            return [*run_prefetch(shared, plan, batches, Task(number))]

        with ThreadPoolExecutor(TASKS) as pool:
            list(pool.map(task, range(TASKS)))
        if alone and not by_row:
            release_prefetched(ledger)
        return {
            *known_answers(Search(ledger.open_folder(), rows_of(keys)[TEXT]), lookup, ledger)[
                "key"
            ].to_pylist()
        }


def a_pair(root, service, draw, number):
    """Two runs with keys in common that begin in the same moment, or nearly; some beside a
    compaction.
    """
    base = 1000 * number
    keys = [range(base, base + 40), range(base + 10, base + 60)]
    start = threading.Barrier(2)

    def one(which):
        own = [*keys[which]]
        draws = random.Random(draw.random())
        draws.shuffle(own)
        delay, by_row = draws.choice([0.0, 0.0, 0.002, 0.02, 0.1]), draws.random() < 0.3
        start.wait()
        time.sleep(delay)
        return run(
            root,
            f"run-{number}-{which}",
            lookup_of(service),
            own,
            by_row=by_row,
            seed=draws.getrandbits(31),
        )

    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(one, which) for which in (0, 1)]
        if draw.random() < 0.2:
            compact(LedgerPlan(root, "score", "f" * 16, "", Ttl(), 20, 0.05).open_folder())
        found = [pending.result(120) for pending in runs]
    for which in (0, 1):
        assert found[which] == {f"[{key}]" for key in keys[which]}


@pytest.fixture
def root(tmp_path, request):
    return f"{place_of(request, str(tmp_path))}/ledger"


def asks_each_key_once(service, root, pairs):
    async def answer(request):
        await asyncio.sleep(0.003)
        return web.json_response({"twice": 2})

    service.answer = answer
    draw = random.Random(pairs)
    ledgers = [f"{root}/{number}" for number in range(-(-pairs // PAIRS_IN_A_LEDGER))]
    for number in range(pairs):
        a_pair(ledgers[number // PAIRS_IN_A_LEDGER], service, draw, number)
    asked = Counter(service.log)
    assert {key: count for key, count in asked.items() if count > 1} == {}
    assert len(asked) == 60 * pairs
    for ledger in ledgers:
        assert (
            LedgerPlan(ledger, "score", "f" * 16, "", Ttl(), 20, 0.05).open_folder().names("runs")
            == []
        )


@pytest.mark.slow
def test_two_runs_that_start_together_call_for_no_key_twice(service, root):
    asks_each_key_once(service, root, 4)


@pytest.mark.proof
@everywhere("root")
def test_200_pairs_of_runs_that_start_together_call_for_no_key_twice(service, root):
    asks_each_key_once(service, root, 200)
