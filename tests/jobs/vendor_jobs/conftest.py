"""Days of an enrichment `reviews` whose lookup submits jobs, by the local engine."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.job_files import JobFiles
from jobs.ledger.store import LedgerFolder
from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import ENGINE, LOCAL
from tests.support.program_here import in_this_session
from tests.support.vendor import PRICE, Vendor
from tidegate.__main__ import main

DECLARATION = """
from datetime import timedelta

from tidegate import (
    NOT_KNOWN_YET, Budget, Enrichment, Env, Failed, Input, Ledger, Output, Over, Price, Refused, Retry,
    Running, Service, Tolerance, Ttl, jobs, lookup,
)

vendor = Service(
    name="vendor", url=Env("VENDOR_URL"), max_concurrency={open_jobs}, prices=[{prices}],
    budget={budget},
)


@jobs(
    service=vendor, keys={{"text": "review"}}, returns="label STRING", recovery="{recovery}",
    max_items={max_items}, give_up=timedelta(seconds={give_up}), retry=Retry(retries={retries}),
    on_error="dead_letter", poll_every=timedelta(seconds={poll_every}),
    attempt_timeout={attempt_timeout}, ttl={ttl},
)
class Labels:
    async def submit(self, items, token, http):
        lines = [{{"id": item.id, "text": item.row.text}} for item in items]
        answer = await http.post("/jobs", json={{"token": token, "items": lines}})
        return answer["id"]

    async def state(self, job, http):
        found = await http.get(f"/jobs/{{job}}")
        match found["status"]:
            case "running":
                return Running(found["done"], found.get("total"))
            case "full":
                return Refused("too many tokens are enqueued", later=True)
            case "rejected":
                return Refused("line 1 is no item")
            case reason:
                return Over(reason)

    async def results(self, job, http):
        async for line in http.lines(f"/jobs/{{job}}/results"):
            if "error" in line:
                yield line["id"], Failed(line["error"], again=not line["final"])
            else:
                yield line["id"], line["answer"]
{more}

reviews = Enrichment(
    name="reviews",
    input=Input(path="data/raw/reviews", row_id=["number"]),
    lookups=[Labels],
    output=Output(path="data/published/reviews"),
    ledger=Ledger("{ledger}"),
    tolerance=Tolerance(error=1.0, timeout=1.0),
    pii={pii},
    budget={own_budget},
)
"""
FIND = """
    async def find(self, token, http):
        found = await http.get("/jobs")
        if found["more"]:
            return NOT_KNOWN_YET
        return next((job["id"] for job in found["data"] if job["token"] == token), None)
"""
SECOND = """

@jobs(
    name="others", service=vendor, keys={"text": "review"}, returns="other STRING",
    recovery="list", max_items=10, give_up=timedelta(hours=1),
)
class Others(Labels.function):
    async def results(self, job, http):
        async for item, answer in super().results(job, http):
            yield item, {"other": answer["label"]}


reviews = """
CANCEL = """
    async def cancel(self, job, http):
        await http.post(f"/jobs/{job}/cancel")
"""


class Reviews:
    """Days of `reviews`, their vendor, and what its ledger says."""

    ledger = "data/ledger"  # its place

    def __init__(self, vendor):
        self.vendor = vendor

    def declare(
        self, recovery="list", *, max_items=10, open_jobs=5, retries=1, give_up=3600, pii=(),
        cancels=True, poll_every=30, attempt_timeout=20, ttl="Ttl()", second=False, budget="[]",
        own_budget="[]", prices=f'Price("{PRICE} USD")',
    ):  # fmt: skip
        Path("declared").mkdir(exist_ok=True)
        Path("declared/__init__.py").touch()
        more = (FIND if recovery == "list" else "") + (CANCEL if cancels else "")
        text = DECLARATION.format(
            recovery=recovery, max_items=max_items, open_jobs=open_jobs, retries=retries,
            give_up=give_up, more=more, prices=prices, pii=list(pii),
            poll_every=poll_every, attempt_timeout=attempt_timeout, ttl=ttl,
            ledger=self.ledger, budget=budget, own_budget=own_budget,
        )  # fmt: skip
        if second:
            text = text.replace("lookups=[Labels]", "lookups=[Labels, Others]")
            text = text.replace("\nreviews = ", SECOND)
        Path("declared/reviews.py").write_text(text)
        for name in ("declared", "declared.reviews"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        self.vendor.recognizes_tokens = recovery == "token"

    def add_lookup(self, text):
        """Adds `called`, declared by this text before the enrichment."""
        path = Path("declared/reviews.py")
        declared = path.read_text().replace("lookups=[Labels]", "lookups=[Labels, called]")
        path.write_text(declared.replace("\nreviews = ", text))

    def write_input(self, day, texts):
        folder = Path(f"data/raw/reviews/date={day}")
        folder.mkdir(parents=True)
        rows = {"number": pa.array(range(len(texts)), pa.int32()), "review": pa.array(texts)}
        pq.write_table(pa.table(rows), folder / "part-0.parquet")

    def run(self, day, *options, command="run"):
        return main([command, "reviews", "--package", "declared", "--day", day, *options])

    def run_until_over(self, day, *, most=20):
        """The last exit status; the day waits at most so often."""
        for _ in range(most):
            if (status := self.run(day)) != 10:
                return status
        return 10

    def run_killed(self, day, point):
        """Runs the day in a process that kills itself at this point; its exit status."""
        program = ["-m", "tests.support.killed_job_run", point]
        return self.run_elsewhere(day, *program, options=["--engine", os.environ[ENGINE]])

    def run_elsewhere(self, day, *program, options=()):
        """Runs the day by this program in a process; its exit status."""
        command = ["run", "reviews", "--package", "declared", "--day", day, *options]
        root = Path(__file__).parents[3]
        path = {"PYTHONPATH": os.pathsep.join([str(root), str(Path.cwd())])}
        done = subprocess.run(
            [sys.executable, *program, *command], env=os.environ | path, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        self.output = done.stdout + done.stderr
        return done.returncode

    @property
    def lookup(self):
        return importlib.import_module("declared.reviews").Labels

    @property
    def files(self):
        return JobFiles(LedgerFolder(self.ledger, "labels", request_fingerprint(self.lookup)))

    @property
    def bill(self):
        """What the ledger says that jobs cost."""
        from decimal import Decimal

        return sum(Decimal(job.done.get("cost", "0")) for job in self.files.jobs())

    def rows(self, day="2013-01-10"):
        """Text -> (status, label) of the published rows."""
        from deltalake import DeltaTable

        table = DeltaTable("data/published/reviews").to_pyarrow_table()
        days = [str(day) for day in table["date"].to_pylist()]
        lines = zip(
            days, table["review"].to_pylist(), table["labels_status"].to_pylist(),
            table["label"].to_pylist(), strict=True,
        )  # fmt: skip
        return {text: (status, label) for of, text, status, label in lines if of == day}


@pytest.fixture
def reviews(tmp_path, monkeypatch, service):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("VENDOR_URL", service.url)
    monkeypatch.setenv(ENGINE, LOCAL)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    project = Reviews(Vendor(service))
    project.declare()
    return project
