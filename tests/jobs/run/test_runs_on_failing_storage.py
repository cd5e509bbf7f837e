"""A day run in Spark on a ledger that fails at one operation, at each in turn: the driver's, a
task's, of either phase.

No answer is lost, and no call is made that the error does not explain.
"""

import itertools
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from asyncio_core import AsyncFunction
from jobs.commands.replaying.replay import prepare
from jobs.declare.ledger_settings import FOR_EVER
from jobs.errors import TidegateError
from jobs.ledger.answers import as_answers
from jobs.ledger.changes.compaction import compact
from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.keys import key_text
from jobs.ledger.selection import select
from jobs.ledger.store import LedgerFolder
from jobs.run.day import run_day
from jobs.run.plan.options import RunOptions
from jobs.storage import durable
from jobs.tables.publishing import publish
from jobs.tables.records import run_records
from tests.support import failing_storage
from tests.support.failing_storage import CounterOfAll, FailingStorage, InWorkers, put_under
from tidegate import AsyncFunctionLookup, Enrichment, Input, Ledger, Output, Retry

pytestmark = pytest.mark.spark
DAY = "2024-05-01"
KEYS = [*range(20), 17, 18, 18]  # 17 and 18 are asked before the rows
STORED = range(12)
MISSES = (0, 5, 10, 15)  # of the service
REPLAY = RunOptions(ignore_ttl=True)
FEW = (8, 40)  # the operations that `make test` has fail
EACH = range(1, 10_000)
KINDS = ("EIO", False), ("503", True), ("ETIMEDOUT", True), ("ESTALE", False)


class Project:
    """A day of input, a ledger that knows some of its keys, and a function that notes each call in
    a file.
    """

    def __init__(self, folder):
        self.ledger, self.calls, self.counter = (
            folder / "ledger",
            folder / "calls",
            CounterOfAll(folder / "counter"),
        )
        self.calls.touch()
        self._runs = itertools.count()

    def begin(self, kind, applied, monkeypatch):
        """Have the ledger fail so, when the counter says at which operation."""
        put_under(self.ledger, FailingStorage(kind, applied, self.counter), monkeypatch.setattr)
        self.counter.fail_at(None)
        in_workers, calls = InWorkers(self.ledger, kind, applied, self.counter), str(self.calls)

        class Noting(AsyncFunction):
            storage = in_workers  # travels with the class

            async def async_invoke(self, value):
                with open(calls, "a") as file:  # noqa: ASYNC230, PTH123  # a line that is there when the call is made
                    file.write(f"{value['k']}\n")
                return [] if value["k"] in MISSES else [{"x": value["k"]}]

        lookup = AsyncFunctionLookup(
            name="score", function=Noting, keys={"k": "k"}, returns="x BIGINT", timeout=20.0,
            max_concurrency=4, retry=Retry(retries=0), on_miss="dead_letter",
        )  # fmt: skip
        self.enrichment = Enrichment(
            name="things", input=Input(path="raw", row_id=["id"]), output=Output(path="published"),
            lookups=[lookup], ledger=Ledger(str(self.ledger), flush_rows=4, flush_seconds=0.02),
        )  # fmt: skip
        self.folder = LedgerFolder(str(self.ledger), "score", request_fingerprint(lookup))

    def given(self, keys):
        folder = Path("raw", f"date={DAY}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        table = {"id": pa.array(range(len(keys)), pa.int64()), "k": pa.array(keys, pa.int64())}
        pq.write_table(pa.table(table), folder / "part-0.parquet")

    def run(self, rules=None):
        run_id = f"r{next(self._runs)}"
        # whoever starts Spark keeps one
        durable.replace(run_records.run_log("things", DAY, run_id), b"")
        return run_day(self.enrichment, DAY, run_id, rules=rules)

    def known(self):
        wanted = pa.array([key_text((key,)) for key in range(20)])
        found = as_answers(select(self.folder, wanted, now_us=2**60, ttl=FOR_EVER).answers)
        return {int(answer.key.strip("[]")) for answer in found if answer.outcome in ("ok", "miss")}

    def asked(self):
        return Counter(map(int, self.calls.read_text().split()))


@pytest.fixture
def project(request, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    cloudpickle.register_pickle_by_value(failing_storage)  # workers have no tests
    project = Project(here)
    project.begin(*request.param, monkeypatch)
    yield project
    cloudpickle.unregister_pickle_by_value(failing_storage)


def at_each_step(project, steps, job):
    """Whatever operation fails of a job that starts from what there is now: gives what failed, and
    what was raised.
    """
    before = Path("../before")
    shutil.copytree(".", before)
    for step in steps:
        for path in Path().iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(before, ".", dirs_exist_ok=True)
        raised = None
        project.counter.fail_at(step)
        try:
            job()
        except TidegateError as error:
            raised = error
        failed = project.counter.failed
        project.counter.fail_at(None)
        if failed is None:
            assert step > 40, "next to nothing was done"
            return
        assert raised is None or sentence(raised), (step, failed, raised)
        yield step, failed, raised


def sentence(error):
    text = str(error)
    return text.startswith(("ledger ", "ledger: ")) and text.endswith(".") and "\n" not in text


STEPS = pytest.mark.parametrize(
    ("project", "steps"),
    [
        pytest.param(KINDS[0], FEW, id="a few"),
        *(pytest.param(kind, EACH, id=f"each {kind}", marks=pytest.mark.proof) for kind in KINDS),
    ],
    indirect=["project"],
)


@STEPS
def test_a_run_loses_no_answer_and_asks_no_stored_key_whatever_operation_fails(
    spark, project, steps
):
    project.given(STORED)
    project.run()
    compact(project.folder)
    project.given(KEYS)
    assert project.asked() == Counter(STORED)
    for message in at_each_step(project, steps, project.run):
        stored, asked = project.known(), project.asked()
        assert stored >= {*STORED}, message
        assert {key for key in STORED if asked[key] > 1} == set(), message
        project.run()
        assert project.known() == {*range(20)}, message
        again = project.asked() - asked
        assert again == Counter({*range(20)} - stored), message


@STEPS
def test_a_replay_calls_only_for_its_dead_letters_whatever_operation_fails(spark, project, steps):
    project.given(KEYS)
    publish(project.run())
    assert project.asked() == Counter(range(20))

    def replay():
        assert prepare(project.enrichment, DAY) == len(MISSES)
        project.run(REPLAY)

    for message in at_each_step(project, steps, replay):
        stored, asked = project.known(), project.asked()
        assert stored >= {*range(20)} - {*MISSES}, message
        assert {key for key in asked if asked[key] > 1} <= {*MISSES}, message
        answered_again = {key for key in MISSES if asked[key] > 1 and key in stored}
        assert all(asked[key] <= 2 for key in MISSES), message
        replay()
        assert project.known() == {*range(20)}, message
        again = project.asked() - asked
        assert again == Counter({*MISSES} - answered_again), message
