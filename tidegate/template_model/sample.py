"""Runs a day from nothing to a published table with its cost: sample reviews, a stand-in for the
vendor of a model, `tidegate run` and `tidegate costs`.

`python sample.py COMMAND ...` runs another command of tidegate beside the stand-in. Delete this
file, and the test that uses it, once the enrichment asks a real model.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

DAY, REVIEWS = "2026-11-19", 200
OF_ENV = 8099  # the port in .env, whose values Dagster takes also where a variable is set
TEXTS = {
    "price": "Far too expensive for what it is",
    "delivery": "It arrived two weeks late",
    "quality": "Solid work that will last for years",
    "other": "It is blue",
}
TOPICS = list(TEXTS)


def right_answer(number: int) -> dict[str, Any]:
    """Return topic and score of a review."""
    return {"topic": TOPICS[number % 4], "score": 1 + number % 5}


def becomes(number: int) -> str:
    """Return what the model makes of a review at first: fits, misfit, cut or refused."""
    if number % 50 == 7:
        return "refused"
    if number % 40 == 3:
        return "cut"
    return "misfit" if number % 13 == 5 else "fits"


class Model(BaseHTTPRequestHandler):
    """Answers POST /v1/chat/completions, and bills the tokens of each answer."""

    protocol_version = "HTTP/1.1"
    server: "ModelServer"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [message["content"] for message in asked["messages"]]
        found = re.search(r"\(order (\d+)\)", texts[-1])
        number = int(found[1]) if found else 0
        kind = "fits" if "Your last answer" in texts[-1] else becomes(number)
        answer = right_answer(number) | ({"score": 7} if kind == "misfit" else {})
        if "from 1 to 5" not in texts[0] and number % 9 == 0:  # of a prompt without the scale
            answer["score"] = 5
        text: str | None = json.dumps(answer)[: 12 if kind == "cut" else None]
        refusal = None
        if kind == "refused":
            text, refusal = None, "I cannot help with that."
        time.sleep(0.02)
        message = {"role": "assistant", "content": text, "refusal": refusal}
        reason = "length" if kind == "cut" else "stop"
        usage = {
            "prompt_tokens": sum(map(len, texts)) // 4,
            "completion_tokens": len(text or refusal or "") // 4,
        }
        self.server.bill(**usage)
        choice = {"index": 0, "message": message, "finish_reason": reason}
        body = json.dumps({"choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


class ModelServer(ThreadingHTTPServer):
    """A server on loopback, with its invoice in USD."""

    request_queue_size = 100  # connections at once; with Python's default of 5, some wait a second
    invoice = Decimal(0)
    billing = threading.Lock()

    def bill(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Add the tokens of an answer to the invoice."""
        with self.billing:
            self.invoice += Decimal("0.15") * prompt_tokens / 1_000_000
            self.invoice += Decimal("0.60") * completion_tokens / 1_000_000

    @property
    def url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.server_port}"


@contextlib.contextmanager
def model_service(port: int = 0) -> Iterator[ModelServer]:
    """Run the stand-in during the context, by default on a free port."""
    with ModelServer(("127.0.0.1", port), Model) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def write_day(root: Path) -> None:
    """Write 200 reviews as the input of DAY, and the right answers to a third of them."""
    folder = root / "data" / "raw" / "reviews" / f"date={DAY}"
    folder.mkdir(parents=True, exist_ok=True)
    numbers = list(range(REVIEWS))
    reviews = [f"{TEXTS[TOPICS[number % 4]]} (order {number})." for number in numbers]
    table = pa.table({"review_id": numbers, "review": reviews})
    pq.write_table(table, folder / "part-0.parquet")
    labels = [{"review_id": number} | right_answer(number) for number in numbers[::3]]
    pq.write_table(pa.Table.from_pylist(labels), root / "data" / "labels.parquet")


def main(arguments: list[str]) -> int:
    """Run the day and show table and costs; or run these arguments of tidegate."""
    write_day(Path.cwd())
    month = f"{datetime.now(UTC):%Y-%m}"
    the_day = [["run", "reviews", "--day", DAY, "--engine", "local"], ["costs", "--month", month]]
    status = 0
    with model_service(OF_ENV if arguments == ["ui"] else 0) as server:
        variables = os.environ | {"MODEL_URL": server.url, "MODEL_KEY": "of-the-stand-in"}
        for command in [arguments] if arguments else the_day:
            run = [sys.executable, "-m", "tidegate", *command]
            with subprocess.Popen(run, env=variables) as program:
                with contextlib.suppress(KeyboardInterrupt):  # the program gets it too
                    program.wait()
                status = status or program.wait()
        print(f"the stand-in's invoice for this: {server.invoice:f} USD")
    if status == 0 and not arguments:
        table = DeltaTable("data/published/reviews_labelled")
        first = (
            "SELECT review_id, review, topic, score, label_status FROM reviews "
            "ORDER BY review_id LIMIT 5"
        )
        # not by to_pandas, after which a program that ends at once may abort (apache/arrow#34314)
        rows = QueryBuilder().register("reviews", table).execute(first).read_all()
        print(pa.table(rows).to_pandas().to_string())
        print("table: data/published/reviews_labelled   report: data/reports/reviews_labelled")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
