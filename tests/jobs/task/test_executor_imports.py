"""What an executor must have installed: docs/cluster.md lists it."""

import pickle
import subprocess
import sys

import pytest

from jobs.run.key_columns import key_texts
from jobs.run.prefetch_task import run_prefetch
from jobs.task.answers_in_doubt import without_doubt
from jobs.task.output_files import TaskFiles
from jobs.task.runner import run_partition
from jobs.task.session_windows import SessionWindows

NOT_THERE = ("deltalake", "pyiceberg", "obstore", "sqlglot", "great_expectations", "dagster")
PROGRAM = f"""
import pickle, sys

pickle.load(sys.stdin.buffer)
print([name for name in {NOT_THERE} if name in sys.modules])
"""


@pytest.mark.process
def test_what_tasks_run_loads_nothing_that_only_the_driver_has():
    sent = pickle.dumps([run_partition, run_prefetch, without_doubt, key_texts, TaskFiles, SessionWindows])
    loaded = subprocess.run([sys.executable, "-c", PROGRAM], input=sent, capture_output=True, check=True)
    assert loaded.stdout.decode().strip() == "[]"
