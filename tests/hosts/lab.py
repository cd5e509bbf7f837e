"""Services on the hosts of a test: an S3 server, a vendor that counts, a Spark standalone cluster;
and runs on it.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyspark

from tests.hosts.network import Network

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
NUMBERS = {"driver": 10, "w1": 21, "w2": 22, "store": 30, "vendor": 40}
MASTER, STORE, VENDOR = "spark://driver:7077", "http://store:5000", "http://vendor:8099"
BUCKET = "s3://lake"
CALLS = "/tmp/calls.jsonl"  # on the vendor's host
UP_WITHIN = 120.0  # s
DAY = "2026-11-19"
LIMIT = 16  # of lab_enrichments.orders
FLUSH = 0.5  # s, of its ledger

MAKE_ORDERS = """
import sys
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

place, sizes, keys, day = sys.argv[1], [int(size) for size in sys.argv[2].split(",")], int(sys.argv[3]), sys.argv[4]
files, root = fs.FileSystem.from_uri(place) if "://" in place else (fs.LocalFileSystem(), place)
first = 0
for number, rows in enumerate(sizes):
    ids = range(first, first + rows)
    table = pa.table({"order_id": pa.array(ids, pa.int64()), "customer_id": [f"c{n * 7919 % keys}" for n in ids]})
    files.create_dir(f"{root}/raw/date={day}", recursive=True)
    pq.write_table(table, f"{root}/raw/date={day}/part-{number}.parquet", filesystem=files)
    first += rows
"""
READ_TABLE = """
import json
import sys
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

# not by to_pandas, after which a program that ends at once may abort (apache/arrow#34314)
rows = QueryBuilder().register("t", DeltaTable(sys.argv[1])).execute(sys.argv[2]).read_all()
print(json.dumps([list(row.values()) for row in pa.table(rows).to_pylist()]))
"""


class Lab:
    """A driver, two workers, a store and a vendor. A `with` block boots and ends the hosts.

    Args:
        folder: Takes the logs.
        shared: A folder that every host sees at /srv, for the work of runs; None: they share the
            store only.
    """

    def __init__(self, folder, *, shared=None):
        self.folder = folder
        mounts = {} if shared is None else {"/srv": shared}
        self.network = Network(NUMBERS, folder, mounts)
        self.environment = {
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/hosts'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(SPARK_HOME),
            "CREDIT_URL": VENDOR,
            "LAB_PLACE": BUCKET,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": STORE,
            "AWS_ALLOW_HTTP": "true",
        } | ({} if shared is None else {"TIDEGATE_WORK": "/srv/work"})

    def __enter__(self):
        self.network.__enter__()
        return self

    def __exit__(self, *error):
        self.network.__exit__(*error)

    def __getitem__(self, name):
        return self.network.hosts[name]

    # -- services
    # ----------------------------------------------------------------------------------------------
    def start_store(self, latency=0.0):
        """latency: seconds of each request."""
        store = self["store"]
        store.start("moto", sys.executable, ROOT / "tests/hosts/store.py", store.address, "5000", latency,
                    environment={"PYTHONDONTWRITEBYTECODE": "1"})  # fmt: skip
        self._wait_for("store", f"{STORE}/moto-api/")
        make_bucket = (
            f"import urllib.request as u; u.urlopen(u.Request('{STORE}/lake', method='PUT'))"
        )
        self["store"].run(sys.executable, "-c", make_bucket)

    def start_vendor(self, latency):
        """latency: seconds of each call."""
        vendor = self["vendor"]
        vendor.start(
            "vendor",
            sys.executable,
            ROOT / "tests/hosts/vendor.py",
            vendor.address,
            "8099",
            latency,
            CALLS,
        )
        self._wait_for("vendor", f"{VENDOR}/")

    def start_spark(self, **clocks_ahead):
        """clocks_ahead: by how many seconds a worker's clock is ahead."""
        self._start_spark("driver", "master.Master", "--host", "driver", "--port", "7077")
        for worker in ("w1", "w2"):
            self.start_worker(worker, clock_ahead=clocks_ahead.get(worker, 0.0))
        log = self["driver"].log_file("Master")
        _wait_until(lambda: log.exists() and log.read_text().count("Registering worker") >= 2, log)

    def start_worker(self, host, *, clock_ahead=0.0):
        self._start_spark(host, "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", "/tmp/spark",
                          "--host", host, MASTER, clock_ahead=clock_ahead)  # fmt: skip

    def _start_spark(self, host, program, *arguments, clock_ahead=0.0):
        variables = {
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
            "SPARK_LOCAL_IP": self[host].address,
            "SPARK_LOCAL_DIRS": "/tmp",
        }
        launch = [
            SPARK_HOME / "bin/spark-class",
            f"org.apache.spark.deploy.{program}",
            "--webui-port",
            "0",
            *arguments,
        ]
        name = program.partition(".")[2]
        self[host].start(
            name, *launch, environment=self.environment | variables, clock_ahead=clock_ahead
        )

    # -- days
    # ----------------------------------------------------------------------------------------------
    def make_orders(self, sizes, keys, day=DAY):
        """sizes: rows of each file of the day. keys: distinct customers."""
        self["driver"].run(sys.executable, "-c", MAKE_ORDERS, BUCKET, ",".join(map(str, sizes)), keys, day,
                           environment=self.environment)  # fmt: skip

    def start_run(self, *arguments, day=DAY, name="run", clock_ahead=0.0, **variables):
        """`tidegate run orders` on the driver's host. Returns the process."""
        more = {
            "TIDEGATE_SPARK_MASTER": MASTER,
            "TIDEGATE_SPARK_JAVA_OPTIONS": QUICK_JAVA,
            "SPARK_LOCAL_IP": self["driver"].address,
        }
        words = (
            sys.executable,
            "-m",
            "tidegate",
            "run",
            "orders",
            "--day",
            day,
            "--package",
            "lab_enrichments",
        )
        environment = self.environment | more | variables
        return self["driver"].start(
            name, *words, *arguments, environment=environment, clock_ahead=clock_ahead
        )

    def log(self, name="run"):
        return self["driver"].log_file(name).read_text(errors="replace")

    def published(self, day=DAY):
        """The published rows of a day, as a reader on the driver's host sees them."""
        columns = "order_id, customer_id, score, grade, rating_status"
        return self.read_table(
            "published", f"SELECT {columns} FROM t WHERE CAST(date AS STRING) = '{day}'"
        )

    def read_table(self, name, query):
        """The rows that a query finds in `t`, a table of the bucket, by a program on the driver's host."""
        done = self["driver"].run(sys.executable, "-c", READ_TABLE, f"{BUCKET}/{name}", query,
                                  stdout=subprocess.PIPE, text=True,
                                  environment=self.environment)  # fmt: skip
        return json.loads(done.stdout)

    # -- calls
    # ----------------------------------------------------------------------------------------------
    def calls(self):
        """Every call that the vendor took and that ended, in the order of their ends."""
        path = self["vendor"].path(CALLS)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_calls(self, count, run, seconds=600.0):
        """Wait until the vendor took so many calls."""
        until = time.monotonic() + seconds
        while len(self.calls()) < count:
            assert run.poll() is None, self.log()[-4000:]
            assert time.monotonic() < until, f"{len(self.calls())} calls in {seconds} s"
            time.sleep(0.2)

    def caller_of(self, customers):
        """The worker that made most of the calls for these customers."""
        callers = Counter(call["from"] for call in self.calls() if call["customer"] in customers)
        address = callers.most_common(1)[0][0]
        return next(name for name, host in self.network.hosts.items() if host.address == address)

    def _wait_for(self, host, url):
        look = f"import urllib.request as u; u.urlopen('{url}', timeout=3)"
        until = time.monotonic() + UP_WITHIN
        while True:
            try:
                return self[host].run(sys.executable, "-c", look, stderr=subprocess.DEVNULL)
            except subprocess.CalledProcessError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)


def _wait_until(condition, log):
    until = time.monotonic() + UP_WITHIN
    while not condition():
        assert time.monotonic() < until, log.read_text() if log.exists() else "no log"
        time.sleep(0.2)
