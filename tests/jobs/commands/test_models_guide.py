"""The example of docs/models.md, as it stands there, at a stand-in for a model's vendor: every row
ends as the vendor's own list says, and costs are its invoice.
"""

import importlib
import json
import random
import re
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from deltalake import DeltaTable

from jobs.commands.replaying.dead_letters import find_dead_letters, group_letters
from jobs.limits.store_url import LIMITS_URL, STATE_HOME
from jobs.process.spark_submit import SparkSubmit
from jobs.run.coordinator import run_leases
from jobs.run.engines.engine import ENGINE
from jobs.tables.records import run_records
from tests.support.loop_thread import LoopThread, end_service
from tests.support.program_here import in_this_session
from tidegate.__main__ import main

GUIDE = (Path(__file__).parents[3] / "docs" / "models.md").read_text()
DAY, ROWS = "2026-11-01", 400
FITS = ("plain", "fenced", "with words")
MISFITS = ("seven", "text for a number", "no topic", "two objects", "open fence", "twice", "nan")


def example():
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    return code


class ChatVendor:
    """Answers like a chat-completions service, and keeps what became of each review."""

    def __init__(self):
        self.draw, self.invoice = random.Random(11), Decimal(0)
        self.said, self.asked = {}, []
        self.loop = LoopThread().start()
        self.url = self.loop.run(self._start())

    async def _start(self):
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"

    async def _answer(self, request):
        asked = await request.json()
        self.asked.append(asked)
        review = asked["messages"][1]["content"]
        kinds, weights = zip(("fits", 90), ("misfit", 7), ("cut", 2), ("refused", 1), strict=True)
        kind = self.draw.choices(kinds, weights)[0]
        answer = {"topic": self.draw.choice(["price", "quality"]), "score": self.draw.randint(1, 5)}
        text = self._text(kind, json.dumps(answer))
        self.said[review] = kind, answer
        usage = {"prompt_tokens": self.draw.randint(20, 900), "completion_tokens": len(text) // 4}
        self.invoice += Decimal("0.15") * usage["prompt_tokens"] / 1_000_000
        self.invoice += Decimal("0.60") * usage["completion_tokens"] / 1_000_000
        message = {"role": "assistant", "content": text, "refusal": None}
        if kind == "refused":
            message |= {"content": None, "refusal": "I cannot help with that."}
        reason = "length" if kind == "cut" else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return web.json_response({"choices": [choice], "usage": usage})

    def _text(self, kind, right):
        if kind == "cut":
            return right[: len(right) // 2]
        if kind != "misfit":
            form = self.draw.choice(FITS)
            fenced = f"```json\n{right}\n```"
            return {
                "plain": right,
                "fenced": fenced,
                "with words": f"Here it is:\n{fenced}\nDone.",
            }[form]
        return {
            "seven": right[:-1].rpartition(":")[0] + ": 7}",
            "text for a number": '{"topic": "price", "score": "3"}',
            "no topic": '{"score": 3}',
            "two objects": f"{right}\n{right}",
            "open fence": f"```json\n{right}",
            "twice": '{"topic": "price", "score": 3, "score": 4}',
            "nan": '{"topic": "price", "score": NaN}',
        }[self.draw.choice(MISFITS)]

    def close(self):
        self.loop.run(end_service(self._runner))
        self.loop.stop()


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(LIMITS_URL)
    monkeypatch.setenv(STATE_HOME, str(tmp_path / "state"))
    monkeypatch.setenv(ENGINE, "local")
    monkeypatch.setenv("MODEL_KEY", "secret")
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    monkeypatch.setattr(run_leases, "_leases", None)
    vendor = ChatVendor()
    yield vendor
    vendor.close()
    if run_leases._leases is not None:
        run_leases._leases.close()


def declare(code, vendor):
    Path("declared").mkdir(exist_ok=True)
    Path("declared/__init__.py").touch()
    Path("declared/reviewing.py").write_text(code.replace("https://model.example", vendor.url))
    for name in ("declared", "declared.reviewing"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def write(day, rows):
    Path(f"data/raw/date={day}").mkdir(parents=True)
    reviews = pa.table(
        {"id": list(range(rows)), "review": [f"review {row} of {day}" for row in range(rows)]}
    )
    pq.write_table(reviews, f"data/raw/date={day}/a.parquet")


def test_the_declaration_has_at_most_thirty_lines():
    declaration = example().split("model = Service(")[1].splitlines()
    assert len(declaration) <= 30
    assert max(map(len, example().splitlines())) <= 105


def test_each_review_ends_as_the_vendor_says_and_costs_are_its_invoice(vendor, capsys):
    declare(example(), vendor)
    write(DAY, ROWS)
    assert main(["try", "reviews", "--package", "declared", "--rows", "5"]) in (0, 1)
    assert f": {vendor.invoice:f} USD" in capsys.readouterr().out
    vendor.asked.clear()
    tried = vendor.invoice
    assert main(["run", "reviews", "--package", "declared", "--day", DAY]) == 0
    rows = DeltaTable("data/labelled").to_pyarrow_table().to_pylist()
    assert len(rows) == ROWS == len(vendor.asked)
    for row in rows:
        kind, answer = vendor.said[row["review"]]
        given = {"topic": row["topic"], "score": row["score"]}
        right = ("ok", answer) if kind == "fits" else ("error", {"topic": None, "score": None})
        assert (row["label_status"], given) == right, kind
    (record,) = run_records.load("reviews")
    (figures,) = record.figures.lookups
    assert Decimal(figures.billed.cost) == vendor.invoice - tried
    assert figures.requests.unknown_use == 0
    sent = vendor.asked[0]["response_format"]["json_schema"]["schema"]
    assert sent["properties"]["score"] == {"type": "integer", "minimum": 1, "maximum": 5}

    capsys.readouterr()
    declared = importlib.import_module("declared.reviewing").reviews
    groups = group_letters(declared, find_dead_letters(declared, DAY))
    counts = {group.reason: group.letters for group in groups}
    kinds = Counter(kind for kind, _ in vendor.said.values())
    (cut,) = [many for reason, many in counts.items() if "it is cut, by cut_when" in reason]
    refused = [many for reason, many in counts.items() if "I cannot help with that" in reason]
    assert (cut, sum(refused)) == (kinds["cut"], kinds["refused"])
    assert any("it breaks the schema at $.score (maximum)" in reason for reason in counts)
    assert sum(counts.values()) == ROWS - kinds["fits"]

    # the ledger's answers forecast what another day costs
    write("2026-11-02", 200)
    assert main(["plan", "reviews", "--package", "declared", "--day", "2026-11-02"]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("  cost ")]
    cost, low, high, sample = re.fullmatch(
        r"  cost +(\S+) USD, (\S+) to (\S+) with 95 %, from (\d+) stored answers, at .*", line
    ).groups()
    billed = vendor.invoice
    assert main(["run", "reviews", "--package", "declared", "--day", "2026-11-02"]) == 0
    truth = vendor.invoice - billed
    assert int(sample) == ROWS
    assert Decimal(low) < Decimal(cost) < Decimal(high)
    assert abs(Decimal(cost) / truth - 1) < Decimal("0.2")
    del vendor.asked[ROWS:]

    # a changed declaration reads the stored responses again, and calls nothing
    declare(example().replace("score INT", "score INT, reason STRING"), vendor)
    assert main(["remap", "reviews", "--package", "declared", "--from", DAY, "--to", DAY]) == 0
    again = DeltaTable("data/labelled").to_pyarrow_table().to_pylist()
    again = [row for row in again if str(row["date"]) == DAY]
    assert Counter(row["label_status"] for row in again) == Counter(
        row["label_status"] for row in rows
    )
    assert "reason" in again[0]
    assert len(vendor.asked) == ROWS
