"""How long a person waits who looks: where a cell comes from, what changed, what a change would do.

python benchmarks/looking.py                     2,000,000 stored answers, 2 days of 100,000 rows
python benchmarks/looking.py --stored 50000000 --days 3 --rows 1000000 --folder look
python benchmarks/looking.py --tables 50 --records 400   only the start page: tables, days of each

Each command runs in a separate process, and without a network where the machine allows that
(root). Answers are stored by the ledger's own writer and compacted; days are published by
`tidegate run --engine local` from them. --folder keeps all that, and finds it again.
"""

import contextlib
import datetime as dt
import http.server
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from command_line import option_parser
from ledger import fill, keys_of
from usage import cpu_s, run_measured

ROOT = Path(__file__).resolve().parents[1]
FIRST = dt.date(2026, 3, 1)
# loopback only, by which a task and its driver talk
ALONE = ["unshare", "-n", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
DECLARED = """
from tidegate import Enrichment, Env, HttpLookup, Input, Ledger, Output, Service

weather = HttpLookup(
    name="weather",
    service=Service(name="weather_api", url=Env("WEATHER_URL"), max_concurrency=8),
    request="GET /v1/{k}",
    keys={"k": "k"},
    returns="temp INT, wind INT, visibility INT",
    paths={"temp": "$.PATH", "wind": "$.wind.dms", "visibility": "$.visibility_m"},
    timeout=5.0,
)
looked_at = Enrichment(
    name="looked_at",
    input=Input(path="in", partition="day", row_id=["order_id"]),
    lookups=[weather],
    ledger=Ledger("ledger"),
    output=Output(path="published/looked_at"),
)
"""


def declare(folder, path="temp_dc"):
    (folder / "declared").mkdir(exist_ok=True)
    (folder / "declared" / "orders.py").write_text(DECLARED.replace("PATH", path))


def write_input(folder, days, rows, stored):
    rng = np.random.default_rng(3)
    for number in range(days):
        place = folder / "in" / f"day={FIRST + dt.timedelta(number)}"
        place.mkdir(parents=True, exist_ok=True)
        texts = keys_of(rng.integers(0, stored, rows), "at random").to_pylist()
        ids = pa.array(rng.permutation(rows) + number * rows)
        day = pa.table({"order_id": ids, "k": pa.array([text[2:-2] for text in texts])})
        pq.write_table(day, place / "part-0.parquet")


@contextlib.contextmanager
def no_service():
    """A service that a run may greet, and that answers no call."""

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(500)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def measure(what, folder, arguments):
    """Run a command twice; print wall and CPU, and whether both printed the same."""
    isolated = ALONE if os.geteuid() == 0 and shutil.which("unshare") else []
    printed = []
    for _ in range(2):
        wall, cpu, output = run_measured(
            [*isolated, sys.executable, "-m", "tidegate", *arguments, "--package", "declared"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT), "WEATHER_URL": "http://127.0.0.1:9"},
        )
        printed.append(output)
        print(
            f"{what:44} {wall:6.2f} s, {cpu:6.2f} s of CPU{', no network' if isolated else ''}",
            flush=True,
        )
    if printed[0] != printed[1]:
        sys.exit(f"{arguments} printed something else the second time")
    return output


def run(folder, day, url):
    began = time.monotonic()
    subprocess.run(
        [
            *(sys.executable, "-m", "tidegate", "run", "looked_at", "--day", day),
            *("--engine", "local", "--package", "declared"),
        ],
        cwd=folder, check=True, env=os.environ | {"PYTHONPATH": str(ROOT), "WEATHER_URL": url},
    )  # fmt: skip
    print(f"{day} published in {time.monotonic() - began:.0f} s", flush=True)


def ledger_of(folder):
    """The folder of the declared lookup's answers, as the product names it."""
    code = (
        "from declared.orders import looked_at as e; from jobs.ledger.declared_folder import "
        "declared_folder; print(declared_folder(e, e.lookups[0]).fingerprint)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:."},
    )  # fmt: skip
    from jobs.ledger.store import LedgerFolder

    return LedgerFolder(str(folder / "ledger"), "weather", done.stdout.strip())


def build(folder, options):
    declare(folder)
    fill(ledger_of(folder), options.stored, "at random")
    write_input(folder, options.days, options.rows, options.stored)
    with no_service() as url:
        for number in range(options.days):
            run(folder, str(FIRST + dt.timedelta(number)), url)
        declare(folder, "visibility_m")  # every row of the last day gets another value
        run(folder, str(FIRST + dt.timedelta(options.days - 1)), url)
    (folder / "built").touch()


def look(folder, options):
    last = str(FIRST + dt.timedelta(options.days - 1))
    declare(folder, "visibility_m")
    row = ["--row", f"order_id={options.days * options.rows - 1}"]
    measure("explain a row of the newest day", folder, ["explain", "looked_at", *row])
    row = ["--row", "order_id=0"]
    measure("explain a row of the oldest day", folder, ["explain", "looked_at", *row])
    measure("diff, every row changed", folder, ["diff", "looked_at", last])
    declare(folder, "temp_dc")
    print(measure("test --against", folder, ["test", "looked_at", "--against", last]))
    declare(folder, "visibility_m")


def plant(folder, tables, days):
    """Copy the record of a real day for each day of each table, as a year and more leaves them."""
    declare(folder)
    fill(ledger_of(folder), 1_000, "at random")
    write_input(folder, 1, 100, 1_000)
    with no_service() as url:
        run(folder, str(FIRST), url)
    place = folder / "data" / "runs" / "looked_at" / str(FIRST)
    (record,) = (path for path in place.glob("*.json") if path.stem != "progress")
    text, run_id = record.read_text(), record.stem
    module = folder / "declared" / "orders.py"
    more = "import dataclasses\n"
    yesterday = dt.datetime.now(dt.UTC).date() - dt.timedelta(1)
    for table in range(tables):
        name = f"table_{table}"
        output = f"dataclasses.replace(looked_at.output, path='published/{name}')"
        more += f"{name} = dataclasses.replace(looked_at, name='{name}', output={output}, "
        more += f"schedule='15 2 * * *', start='{yesterday - dt.timedelta(days)}')\n"
        (folder / "published" / name / "_delta_log").mkdir(parents=True)
        for back in range(days):
            day = yesterday - dt.timedelta(back)
            own = f"{run_id[:-8]}{back:04}{table:04}"
            (folder / "published" / name / "runs" / own).mkdir(parents=True)
            copied = text.replace(run_id, own).replace(str(FIRST), str(day))
            copied = copied.replace("looked_at", name)
            kept = folder / "data" / "runs" / name / str(day) / f"{own}.json"
            kept.parent.mkdir(parents=True)
            kept.write_text(copied)
            written = (dt.datetime.combine(day, dt.time(3), dt.UTC) + dt.timedelta(1)).timestamp()
            os.utime(kept, (written, written))
            os.utime(kept.parent, (written, written))
    module.write_text(module.read_text() + more)


def start_page(folder):
    """Time the first page, which is read anew each time: wall, and CPU of the server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {"PYTHONPATH": str(ROOT), "WEATHER_URL": "http://127.0.0.1:9"}
    server = subprocess.Popen(
        [sys.executable, "-m", "tidegate", "reports", "--package", "declared"], cwd=folder,
        env=os.environ | variables | {"TIDEGATE_REPORTS_PORT": str(port)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(5):
            page = b""
            while not page:
                before, began = cpu_s(server.pid), time.monotonic()
                with contextlib.suppress(urllib.error.URLError):
                    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/").read()
            wall, cpu = time.monotonic() - began, cpu_s(server.pid) - before
            print(f"{'the start page':44} {wall:6.2f} s, {cpu:6.2f} s of CPU, {len(page):,} bytes")
    finally:
        server.terminate()
        server.wait()
    measure("status", folder, ["status"])


def main():
    parser = option_parser(__doc__, stored=2_000_000, days=2, rows=100_000, tables=0, records=400)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        folder.mkdir(exist_ok=True)
        is_built = (folder / "built").exists()
        if options.tables:
            if not is_built:
                plant(folder, options.tables, options.records)
                (folder / "built").touch()
            start_page(folder)
            return
        if not is_built:
            build(folder, options)
        look(folder, options)


if __name__ == "__main__":
    main()
