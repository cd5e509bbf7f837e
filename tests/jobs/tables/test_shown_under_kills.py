"""A publisher killed at any moment: every reader of each format sees a whole day, and the next day
makes them equal.
"""

import dataclasses
import datetime as dt
import pickle
import random
import subprocess
import sys
import time

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from jobs.tables import publishing
from tests.jobs.tables import test_publishing
from tests.jobs.tables.test_publishing import FIRST, SECOND, project  # noqa: F401
from tests.support.lakes import lake_in

pytestmark = pytest.mark.process

KILLS = 12
PUBLISH = """
import pickle, sys
from jobs.tables import publishing
from jobs.tables.shown import shown_as_iceberg
record = pickle.load(sys.stdin.buffer)
print("ready", flush=True)
publishing.publish(record)
"""


def run(*args):
    record = test_publishing.run(*args)
    declared = dataclasses.replace(
        record.facts.declared, iceberg="lake.shop.flights", parquet="plain"
    )
    return dataclasses.replace(record, facts=dataclasses.replace(record.facts, declared=declared))


def killed(record, after):
    """Publish in a process that is killed so long after it began; whether it was."""
    command = [sys.executable, "-c", PUBLISH]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        pickle.dump(record, process.stdin)
        process.stdin.close()
        process.stdout.readline()
        time.sleep(after)
        process.kill()
    return process.returncode < 0


def shown(lake):
    """The numbers of the first day, by each format's own reader."""
    date = dt.date.fromisoformat(FIRST)
    found = (
        DeltaTable(test_publishing.TABLE)
        .to_pyarrow_dataset()
        .to_table(filter=ds.field("date") == date),
        lake.load_table("shop.flights").scan(f"date = '{FIRST}'").to_arrow(),
        ds.dataset("plain", partitioning="hive").to_table(filter=ds.field("date") == FIRST),
    )
    return [sorted(table["flight"].to_pylist()) for table in found]


@pytest.mark.proof
def test_a_killed_publisher_leaves_whole_days_and_the_next_day_shows_all_days(
    project,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    drawn = random.Random(22)
    with lake_in(tmp_path, tmp_path / "warehouse", monkeypatch) as lake:
        began = time.monotonic()
        publishing.publish(run("first", FIRST, [0] * 9))
        whole, kills = 2 * (time.monotonic() - began), 0
        for number in range(1, KILLS + 1):
            before = shown(lake)
            kills += killed(run(f"r{number}", FIRST, [number] * 9), drawn.uniform(0, whole))
            for old, new in zip(before, shown(lake), strict=True):
                assert new in (old, [number] * 9)
            publishing.publish(run(f"next{number}", SECOND, [number]))
            delta, iceberg, folders = shown(lake)
            assert delta == iceberg == folders
    assert kills > KILLS // 3
