"""Days on hosts that share nothing but the object store: judged by the vendor, the table, and every
host's disk.
"""

import subprocess
import sys

import pytest

from tests.hosts.lab import BUCKET, DAY, MASTER, QUICK_JAVA
from tests.hosts.vendor import rating

pytestmark = [pytest.mark.hosts, pytest.mark.proof]

ENDS_WITHIN = 900.0  # s
SIZES, KEYS = (300, 300, 10), 400
MORE_INPUTS = """
import datetime as dt, sys
import pyarrow as pa, pyarrow.parquet as pq
from pyarrow import fs
files, _ = fs.FileSystem.from_uri("s3://lake/raw")
day, at = sys.argv[1], dt.datetime(2026, 11, 19, tzinfo=dt.UTC)
for number in range(3):
    rows = pq.read_table(f"lake/raw/date={day}/part-{number}.parquet", filesystem=files, partitioning=None)
    times = pa.array([at + dt.timedelta(seconds=100 * (n * 7919 % 610)) for n in rows["order_id"].to_pylist()])
    pq.write_table(rows.append_column("at", times), f"lake/timed/date={day}/part-{number}.parquet", filesystem=files)
    pq.write_table(rows, f"lake/whole/part=all/part-{number}.parquet", filesystem=files)
    with files.open_output_stream(f"lake/text/date={day}/part-{number}.csv") as text:
        lines = (f"{order},{customer}" for order, customer in zip(*rows.to_pydict().values()))
        text.write("\\n".join(["order_id,customer_id", *lines, ""]).encode())
"""
CHANGE = """
import sys
import pyarrow as pa, pyarrow.parquet as pq
from pyarrow import fs
files, _ = fs.FileSystem.from_uri("s3://lake/whole")
rows = pq.read_table("lake/whole/part=all/part-2.parquet", filesystem=files, partitioning=None)
customers = ["c700", "c700", *rows["customer_id"].to_pylist()[2:]]
rows = rows.set_column(1, "customer_id", pa.array(customers))
pq.write_table(rows, "lake/whole/part=all/part-2.parquet", filesystem=files)
"""
NEXT_DAY = "2026-11-20"
OURS = (".parquet", ".arrow", ".csv", ".meter", ".npy")


@pytest.fixture
def lab(make_lab):
    made = make_lab(latency=0.01)
    made.make_orders(SIZES, KEYS)
    made["driver"].run(sys.executable, "-c", MORE_INPUTS, DAY, environment=made.environment)
    return made


def run(lab, name, day=DAY):
    """Run a day of this enrichment. Returns its exit status, what it printed, and the calls that
    the vendor took.
    """
    before = len(lab.calls())
    environment = lab.environment | {
        "TIDEGATE_SPARK_MASTER": MASTER,
        "TIDEGATE_SPARK_JAVA_OPTIONS": QUICK_JAVA,
        "SPARK_LOCAL_IP": lab["driver"].address,
    }
    words = (
        sys.executable,
        "-m",
        "tidegate",
        "run",
        name,
        "--day",
        day,
        "--package",
        "lab_enrichments",
    )
    status = (
        lab["driver"].start(f"{name}-{before}", *words, environment=environment).wait(ENDS_WITHIN)
    )
    return status, lab.log(f"{name}-{before}"), lab.calls()[before:]


def check_published(lab, table):
    """Each order once, with the values that the vendor has for its customer."""
    found = lab.read_table(table, "SELECT order_id, customer_id, score, grade FROM t")
    assert sorted(order for order, *_ in found) == list(range(sum(SIZES)))
    for _, customer, score, grade in found:
        truth = rating(customer)
        assert (score, grade) == (
            (None, None) if truth is None else (truth["score"], truth["rating"]["grade"])
        )


def check_disks(lab):
    """No row of a day is on the disk of any host."""
    left = {
        host: [file for file in lab[host].files() if file.endswith(OURS)]
        for host in ("driver", "w1", "w2")
    }
    assert left == {"driver": [], "w1": [], "w2": []}


def test_days_of_hosts_that_share_only_a_store_are_published_and_paid_once(lab):
    for name, table in (("orders", "published"), ("by_spark", "by_spark"), ("of_text", "of_text")):
        status, printed, calls = run(lab, name)
        assert status == 0, printed
        assert len({call["customer"] for call in calls}) == len(calls) == KEYS
        check_published(lab, table)
        check_disks(lab)
    status, printed, calls = run(lab, "orders")
    assert (status, calls) == (0, []), printed
    check_published(lab, "published")


def test_a_red_day_of_hosts_that_share_only_a_store_is_held_back_with_its_rows(lab):
    status, printed, calls = run(lab, "red")
    assert (status != 0, len(calls)) == (True, KEYS), printed
    assert "held back" in printed
    check_disks(lab)


def test_windows_are_made_by_hosts_that_share_only_a_store(lab):
    status, printed, calls = run(lab, "windowed")
    assert (status, len(calls)) == (0, KEYS), printed
    check_published(lab, "windowed")
    ((audited,),) = lab.read_table("windowed__audit", "SELECT count(*) FROM t")
    ((dropped,),) = lab.read_table("hourly__dropped", "SELECT count(*) FROM t")
    ((inside,),) = lab.read_table("hourly", "SELECT sum(window_rows) FROM t")
    assert audited == inside + dropped == sum(SIZES)
    assert min(dropped, inside) > 0
    check_disks(lab)


def test_changed_rows_are_enriched_by_hosts_that_share_only_a_store(lab):
    for change, changed in (("", sum(SIZES)), (CHANGE, 2), ("", 0)):
        if change:
            read(lab, change)
        status, printed, calls = run(lab, "changing", "all")
        assert status == 0, printed
        assert len(calls) == {sum(SIZES): KEYS, 2: 1, 0: 0}[changed]
    check_published(lab, "changing")
    check_disks(lab)


def test_a_million_rows_leave_nothing_on_the_drivers_disk(lab):
    rows = 1_000_000
    lab.make_orders([rows // 2, rows // 2], KEYS, day=NEXT_DAY)
    status, printed, calls = run(lab, "orders", NEXT_DAY)
    assert (status, len(calls)) == (0, KEYS), printed
    assert f"published   {rows:,} rows" in printed
    check_disks(lab)


def read(lab, program):
    """What a program prints that a reader on the driver's host runs."""
    words = (sys.executable, "-c", program, BUCKET)
    return (
        lab["driver"]
        .run(*words, stdout=subprocess.PIPE, text=True, environment=lab.environment)
        .stdout
    )


@pytest.mark.parametrize(("name", "place"), [("in_folder", "/tmp/lake/orders")])
def test_a_declaration_that_needs_a_shared_disk_is_refused_before_the_first_call(lab, name, place):
    status, printed, calls = run(lab, name)
    assert (status != 0, calls) == (True, []), printed
    assert "does not see" in printed
    assert place in printed
