"""Jobs of many items, and results of many bytes: memory does not grow with them."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from jobs.declare.answers.answer_json import dump
from jobs.declare.vendor_jobs import Item
from jobs.ledger.job_files import KEY
from jobs.run.keys.vendor_jobs.job_items import JobItems, item_id

MB = 1 << 20
RUN = """
import os, sys, threading, time
import pyarrow as pa
from declared.reviews import reviews
from jobs.process.spark_submit import SparkSubmit
from jobs.run.keys.vendor_jobs.waiting_days import look_again
from tests.support.program_here import in_this_session
from tidegate.__main__ import main
from tests.support.job_steps import DAY, settle

def memory(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10

(lookup,) = reviews.lookups
settle(lookup, "warm", ["warm"], root="data/warm")
phase, count = sys.argv[1], int(sys.argv[2])
peak, own = 0, "RssAnon"  # without mapped files

def watch():
    global peak
    while True:
        peak = max(peak, memory(own))
        time.sleep(0.005)

texts = pa.array([f"a text of the review number {number}" for number in range(count)])
before, began = memory(own), time.process_time()
threading.Thread(target=watch, daemon=True).start()
if phase == "look":
    look_again(reviews, DAY)
elif phase == "run":
    SparkSubmit.started = in_this_session
    sys.stdout = sys.stderr
    assert main(["run", "reviews", "--package", "declared", "--day", DAY]) == 0
    sys.stdout = sys.__stdout__
else:
    settle(lookup, phase, texts)
print(peak - before, time.process_time() - began)
"""


def run_phase(phase, count):
    """Runs a phase in its process; returns by how many bytes its memory grew, and its CPU time."""
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), str(Path.cwd())])
    done = subprocess.run(
        [sys.executable, "-c", RUN, phase, str(count)], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    grown, cpu = done.stdout.split()
    print(f"{phase} of {count:,}: {int(grown) / MB:.0f} MB, {float(cpu):.2f} s of CPU")
    return int(grown)


@pytest.mark.proof
@pytest.mark.process
def test_100_000_items_in_two_jobs_use_at_most_200_mb(reviews):
    reviews.declare(max_items=50_000, attempt_timeout=300)
    reviews.vendor.looks = 0
    for phase in ("submit", "take"):
        assert run_phase(phase, 100_000) < 200 * MB
    assert sum(job.done["answered"] for job in reviews.files.jobs()) == 100_000


@pytest.mark.proof
@pytest.mark.process
def test_results_of_200_mb_are_stored_in_flat_memory(reviews):
    reviews.declare(max_items=20_000, attempt_timeout=300)
    reviews.vendor.looks = 0
    count = 20_000
    texts = [f"a text of the review number {number}" for number in range(count)]
    reviews.write_input("2013-01-10", texts)
    assert reviews.run("2013-01-10") == 10
    reviews.vendor.label = lambda text: text + 10_000 * "x"
    assert run_phase("look", count) < 100 * MB
    assert sum(job.done.get("answered", 0) for job in reviews.files.jobs()) == count
    # the day with all its answers, from the keys to the checks; 150 MB are what a run imports
    assert run_phase("run", count) < 150 * MB + 3 * 200 * MB


def test_items_are_created_while_they_are_read():
    import pyarrow as pa

    texts = [f'["{number}"]' for number in range(2_500)]
    table = pa.table({KEY: texts, "part_0": range(2_500)})
    items = JobItems(table, ("number",))
    found = [(item.id, item.row.number) for item in items]
    assert found == [(item_id(text), number) for number, text in enumerate(texts)]
    assert len(items) == 2_500
    assert isinstance(items[-1], Item)
    assert items[-1].row.number == 2_499
    assert [item.row.number for item in items[2:2_500:1_000]] == [2, 1_002, 2_002]
    with pytest.raises(IndexError):
        items[2_500]


def test_a_stored_answer_keeps_no_larger_buffer_in_memory():
    tracemalloc.start()
    try:
        answers = [dump({"label": str(number)}) for number in range(1_000)]
        assert tracemalloc.get_traced_memory()[0] < 200 * len(answers)
    finally:
        tracemalloc.stop()
