"""Runs a day from nothing to a published table: sample orders, a credit service, `tidegate run`.

`python sample.py COMMAND ...` runs another command of tidegate beside the service. Delete this
file, and the test that uses it, once the enrichment calls a real service.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

DAY = "2026-11-19"
OF_ENV = 8099  # the port in .env, whose values Dagster takes also where a variable is set
RATED = 39  # customers c0 to c38; c39 has no rating


class Credit(BaseHTTPRequestHandler):
    """Answers GET /customers/c7/rating."""

    def do_GET(self) -> None:
        number = int(self.path.split("/")[2].removeprefix("c"))
        body = json.dumps({"score": 500 + number, "grade": "ABC"[number % 3]}).encode()
        self.send_response(HTTPStatus.OK if number < RATED else HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


class CreditServer(ThreadingHTTPServer):
    """A server on loopback."""

    request_queue_size = 100  # connections at once; with Python's default of 5, some wait a second


@contextlib.contextmanager
def credit_service(port: int = 0) -> Iterator[str]:
    """Run the service during the context, by default on a free port, and yield its address."""
    with CreditServer(("127.0.0.1", port), Credit) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def write_day(root: Path) -> None:
    """Write 200 orders of 40 customers, as the input of DAY."""
    folder = root / "data" / "raw" / "orders" / f"date={DAY}"
    folder.mkdir(parents=True, exist_ok=True)
    orders = {
        "order_id": list(range(200)),
        "customer_id": [f"c{number % 40}" for number in range(200)],
    }
    pq.write_table(pa.table(orders), folder / "part-0.parquet")


def main(arguments: list[str]) -> int:
    """Run the day and show the table; or run these arguments of tidegate."""
    write_day(Path.cwd())
    run = [sys.executable, "-m", "tidegate", *(arguments or ["run", "orders", "--day", DAY])]
    with (
        credit_service(OF_ENV if arguments == ["ui"] else 0) as url,
        subprocess.Popen(run, env=os.environ | {"CREDIT_URL": url}) as program,
    ):
        with contextlib.suppress(KeyboardInterrupt):  # the program gets it too, and ends by itself
            program.wait()
        status = program.wait()
    if status == 0 and not arguments:
        table = DeltaTable("data/published/orders_rated")
        first = "SELECT * FROM orders ORDER BY order_id LIMIT 5"
        # not by to_pandas, after which a program that ends at once may abort (apache/arrow#34314)
        rows = QueryBuilder().register("orders", table).execute(first).read_all()
        print(pa.table(rows).to_pandas().to_string())
        print("table: data/published/orders_rated   report: data/reports/orders_rated/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
