"""The classes of docs/jobs.md, as they stand there, against stand-ins of their vendors."""

import importlib
import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import ENGINE, LOCAL
from tests.support.documents import blocks
from tests.support.program_here import in_this_session
from tidegate.__main__ import main

BLOCKS = blocks("docs/jobs.md", "python")
DAY = "2013-01-10"
TEXTS = [f"review {number}" for number in range(6)]
DAYS_OF_TOPICS = """
from tidegate import Enrichment, Input, Ledger, Output, Tolerance

topics = Enrichment(
    name="topics", input=Input(path="data/raw/topics", row_id=["id"]), lookups=[Topics],
    output=Output(path="data/published/topics"), ledger=Ledger("data/ledger"),
    tolerance=Tolerance(error=1.0),
)
"""


class Bulk:
    """The verifier: lines of JSON in both directions."""

    def __init__(self):
        self.jobs = {}

    async def answer(self, request):
        parts = request.path.strip("/").split("/")[2:]
        if request.method == "POST":
            lines = [json.loads(line) for line in (await request.text()).splitlines()]
            self.jobs["b1"] = (request.headers["X-Name"], lines)
            return web.json_response({"id": "b1"})
        if not parts:
            found = [key for key, (name, _) in self.jobs.items() if name == request.query["name"]]
            return web.json_response({"jobs": [{"id": key} for key in found]})
        if parts[1:] == ["results"]:
            lines = self.jobs[parts[0]][1]
            return web.Response(text="".join(json.dumps(self.line(line)) + "\n" for line in lines))
        return web.json_response({"status": "completed", "done": 1, "total": 1})

    def line(self, one):
        return {"id": one["id"], "deliverable": one["email"].endswith("@a.org")}


class OpenAi:
    """Files, batches of them with metadata, and two result files."""

    def __init__(self):
        self.files, self.batches, self.looks = {}, {}, 1

    async def answer(self, request):
        assert request.headers["Authorization"] == "Bearer secret"
        parts = request.path.strip("/").split("/")[1:]
        if request.method == "POST" and parts == ["files"]:
            form = await request.post()
            assert form["purpose"] == "batch"
            name = f"file-{len(self.files)}"
            self.files[name] = form["file"].file.read().decode()
            return web.json_response({"id": name})
        if request.method == "POST" and parts == ["batches"]:
            sent = await request.json()
            batch = {
                "id": f"batch-{len(self.batches)}",
                "status": "in_progress",
                "reads": 0,
                **sent,
            }
            self.batches[batch["id"]] = batch
            return web.json_response(batch)
        if parts == ["batches"]:
            found = [*self.batches.values()]
            return web.json_response({"data": found, "has_more": False})
        if parts[0] == "files":
            return web.Response(text=self.files[parts[1]])
        return web.json_response(self.looked_at(self.batches[parts[1]]))

    def looked_at(self, batch):
        lines = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
        done = batch["status"] != "in_progress"
        batch["request_counts"] = {"completed": len(lines) if done else 0, "total": len(lines)}
        if self.looks:
            self.looks -= 1
            batch["request_counts"] = None  # as some gateways do while they validate
        elif batch["status"] == "in_progress":
            answers, errors = [], []
            for line in reversed(lines):
                text = line["body"]["messages"][1]["content"]
                if text == "review 4" and len(self.batches) == 1:
                    error = {"code": "batch_expired", "message": "it was not reached"}
                    expired = {"custom_id": line["custom_id"], "response": None, "error": error}
                    errors.append(expired)
                    continue
                if text == "review 3":
                    error = {"error": {"message": "content_filter"}}
                    response = {"status_code": 400, "body": error}
                    errors.append({"custom_id": line["custom_id"], "response": response})
                    continue
                choice = {"finish_reason": "stop", "message": {"content": f"topic of {text}"}}
                if text == "review 2":
                    choice = {"finish_reason": "content_filter", "message": {"content": None}}
                message = {"choices": [choice]}
                response = {"status_code": 200, "body": message}
                answers.append({"custom_id": line["custom_id"], "response": response})
            batch |= {"status": "completed", "output_file_id": None, "error_file_id": None}
            self.files["out"] = "".join(json.dumps(answer) + "\n" for answer in answers)
            if errors:
                self.files["errors"] = "".join(json.dumps(error) + "\n" for error in errors)
                batch["error_file_id"] = "errors"
        elif batch["reads"]:  # of its end, before its output file is there
            batch["output_file_id"] = "out"
        else:
            batch["reads"] += 1
        return batch


class Anthropic:
    """Inline requests without metadata, and results when all have ended."""

    def __init__(self):
        self.batches = []

    async def answer(self, request):
        assert request.headers["x-api-key"] == "secret"
        assert request.headers["anthropic-version"] == "2023-06-01"
        if request.method == "POST":
            self.batches.append((await request.json())["requests"])
            return web.json_response({"id": f"msgbatch_{len(self.batches) - 1}"})
        parts = request.path.strip("/").split("/")[3:]
        requests = self.batches[int(parts[0].rpartition("_")[2])]
        if parts[1:] == ["results"]:
            lines = [self.line(request) for request in requests]
            return web.Response(text="".join(json.dumps(line) + "\n" for line in lines))
        counts = {"processing": 0, "succeeded": len(requests)}
        return web.json_response({"processing_status": "ended", "request_counts": counts})

    def line(self, one):
        text = one["params"]["messages"][0]["content"]
        thought = {"type": "thinking", "thinking": "a review"}
        content = [thought, {"type": "text", "text": f"topic of {text}"}]
        stop = "max_tokens" if text == "review 2" else "end_turn"
        result = {"type": "succeeded", "message": {"content": content, "stop_reason": stop}}
        if text == "review 3":
            error = {"type": "invalid_request_error", "message": "content_filter"}
            result = {"type": "errored", "error": {"error": error}}
        if text == "review 4" and len(self.batches) == 1:
            result = {"type": "expired"}
        return {"custom_id": one["custom_id"], "result": result}


def run_guide(folder, monkeypatch, code, columns, name):
    """The statuses of the day's runs until it is over, and its published rows."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv(ENGINE, LOCAL)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    (folder / "declared").mkdir()
    (folder / "declared/__init__.py").touch()
    (folder / f"declared/{name}.py").write_text(code)
    for module in [name for name in sys.modules if name.partition(".")[0] == "declared"]:
        del sys.modules[module]
    importlib.invalidate_caches()
    day = folder / f"data/raw/{name}/date={DAY}"
    day.mkdir(parents=True)
    pq.write_table(pa.table(columns), day / "part-0.parquet")
    assert main(["check", "--package", "declared"]) == 0
    command = ["run", name, "--package", "declared", "--day", DAY]
    statuses = [main(command)]
    while statuses[-1] == 10 and len(statuses) < 9:
        statuses.append(main(command))
    from deltalake import DeltaTable

    return statuses, DeltaTable(f"data/published/{name}").to_pyarrow_table().to_pylist()


def test_the_bulk_verifier_of_the_guide_gives_each_row_its_answer(tmp_path, monkeypatch, service):
    service.answer = Bulk().answer
    monkeypatch.setenv("VERIFIER_URL", service.url)
    emails = [" X@A.org", "y@b.org"]
    columns = {"id": [1, 2], "email": emails}
    statuses, rows = run_guide(tmp_path, monkeypatch, BLOCKS[0], columns, "contacts")
    assert statuses == [10, 0]
    assert {row["email"]: row["deliverable"] for row in rows} == {
        " X@A.org": True,
        "y@b.org": False,
    }


@pytest.mark.parametrize(("place", "vendor"), [(1, OpenAi), (2, Anthropic)])
def test_the_model_vendor_classes_of_the_guide_give_each_row_its_answer(
    tmp_path, monkeypatch, service, place, vendor
):
    service.answer = vendor().answer
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_URL", service.url)
        monkeypatch.setenv(f"{name}_KEY", "secret")
    columns = {"id": range(len(TEXTS)), "review": TEXTS}
    code = BLOCKS[place] + DAYS_OF_TOPICS
    statuses, rows = run_guide(tmp_path, monkeypatch, code, columns, "topics")
    assert statuses[-1] == 0
    found = {row["review"]: (row["topics_status"], row["topic"]) for row in rows}
    expected = {text: ("ok", f"topic of {text}") for text in TEXTS}
    assert found == expected | {"review 2": ("error", None), "review 3": ("error", None)}
