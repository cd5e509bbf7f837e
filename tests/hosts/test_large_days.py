"""A large day on several hosts: the driver's memory does not grow with its rows.

It takes an hour: pytest -m hosts -o faulthandler_timeout=7200 tests/hosts/test_large_days.py
"""

import threading
import time

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.hosts.lab import DAY

pytestmark = [pytest.mark.hosts, pytest.mark.proof]

ROWS, KEYS = (10_000_000, 100_000_000), 100_000
ROWS_ON_STORE = (2_500_000, 20_000_000)
DAYS = (DAY, "2026-11-20")
ROWS_PER_FILE = 2_500_000
MOST = 1_000  # MB
STAGES = ("checking the files", "checked", "published")  # what a run says when it begins or is done


class DriverMemory(threading.Thread):
    """The highest sums of resident memory, in MB: of Spark's driver, which is its program and Java,
    and with the command that started it, which is the child of the process that enters the host.
    """

    def __init__(self, process):
        super().__init__(daemon=True)
        self._process, self.driver, self.whole = psutil.Process(process.pid), 0.0, 0.0

    def run(self):
        while self._process.is_running():
            try:
                (command,) = self._process.children()
                driver = (
                    sum(child.memory_info().rss for child in command.children(recursive=True)) / 1e6
                )
                whole = driver + command.memory_info().rss / 1e6
            except (psutil.NoSuchProcess, ValueError):
                continue  # it has not begun, or has just ended
            self.driver = max(self.driver, driver)
            self.whole = max(self.whole, whole)
            time.sleep(0.5)


def write_day(folder, rows):
    folder.mkdir(parents=True)
    customers = pa.array([f"c{number}" for number in range(KEYS)])
    for first in range(0, rows, ROWS_PER_FILE):
        ids = np.arange(first, min(rows, first + ROWS_PER_FILE))
        names = customers.take(pa.array(ids * 7919 % KEYS))
        table = pa.table({"order_id": pa.array(ids), "customer_id": names})
        pq.write_table(table, folder / f"part-{first:012}.parquet")


def seconds_of_stages(lab, run, name):
    """Seconds until the run says each of STAGES."""
    began, found = time.monotonic(), {}
    while run.poll() is None:
        said = lab.log(name)
        found |= {
            stage: time.monotonic() - began
            for stage in STAGES
            if stage in said and stage not in found
        }
        time.sleep(0.5)
    return found


def run_watched(lab, rows, day, **variables):
    """A run of the day, published with so many rows. Returns the driver's memory."""
    name = f"run{rows}"
    run = lab.start_run(day=day, name=name, **variables)
    memory = DriverMemory(run)
    memory.start()
    seconds = seconds_of_stages(lab, run, name)
    memory.join()
    print(
        f"{rows:,} rows: driver {memory.driver:,.0f} MB at most, {memory.whole:,.0f} MB with the "
        f"command; s until {seconds}"
    )
    assert run.wait() == 0, lab.log(name)
    assert f"published   {rows:,} rows" in lab.log(name)
    return memory


def assert_bounded(small, large):
    assert large.driver < min(MOST, 1.2 * small.driver)
    assert large.whole < 1.2 * small.whole


def test_the_drivers_memory_is_bounded_and_does_not_grow_with_the_rows(make_lab):
    lab, peaks = make_lab(latency=0.01, shared=True), []
    for rows, day in zip(ROWS, DAYS, strict=True):
        write_day(lab.folder / f"shared/raw/date={day}", rows)
        peaks.append(run_watched(lab, rows, day, LAB_PLACE="/srv"))
    assert len(lab.calls()) == KEYS
    assert_bounded(*peaks)


def test_the_drivers_memory_is_bounded_where_hosts_share_only_a_store(make_lab):
    lab, peaks = make_lab(latency=0.01), []
    for rows, day in zip(ROWS_ON_STORE, DAYS, strict=True):
        lab.make_orders([ROWS_PER_FILE] * (rows // ROWS_PER_FILE), KEYS, day)
        peaks.append(run_watched(lab, rows, day))
    assert len(lab.calls()) == KEYS
    assert_bounded(*peaks)
