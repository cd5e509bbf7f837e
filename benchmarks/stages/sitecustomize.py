"""Notes when the stages of a run begin and end, in every Python process of it:
benchmarks/small_day.py puts this folder on PYTHONPATH.
"""

import atexit
import functools
import importlib.abc
import importlib.machinery
import json
import os
import sys
import time
from pathlib import Path

# module -> functions of it, or methods as Class.method; what they take is a stage, in the order of
# a run
STAGES = {
    "jobs.process.spark_submit": ["SparkSubmit.run"],
    "jobs.run.plan.preflight": ["preflight"],
    "pyspark.java_gateway": ["launch_gateway"],
    "pyspark.sql.session": ["SparkSession.Builder.getOrCreate"],
    "jobs.input.day": ["InputDay.read"],
    "jobs.run.plan.planner": ["plan_tasks"],
    "jobs.run.enrich": ["write_out"],
    "jobs.run.keys.preparation": ["prepare_keys"],
    "jobs.run.keys.hits": ["find_hits"],
    "jobs.run.keys.key_prefetch": ["Prefetch.call"],
    "jobs.run.metrics.run_metrics": ["count"],
    "data_quality.day": ["check"],
    "jobs.tables.publishing": ["publish"],
    "jobs.tables.derived.summaries": ["summarize"],
    "data_quality.report": ["render"],
}
LOG = os.environ.get("TIDEGATE_STAGES", "")


def note(name, began, ended):
    line = {"pid": os.getpid(), "name": name, "began": began, "ended": ended}
    with Path(LOG).open("a") as log:
        log.write(json.dumps(line) + "\n")


def timed(name, function):
    @functools.wraps(function)
    def run(*arguments, **fields):
        began = time.time()
        try:
            result = function(*arguments, **fields)
        except BaseException:
            note(name, began, time.time())
            raise
        if not hasattr(result, "__enter__") or not hasattr(result, "gen"):
            note(name, began, time.time())
            return result
        entering = result.__enter__  # a context manager: what it takes is its beginning
        result.__class__ = type(
            "Timed", (type(result),), {"__enter__": lambda _self: entered(name, began, entering)}
        )
        return result

    return run


def entered(name, began, entering):
    try:
        return entering()
    finally:
        note(name, began, time.time())


class Loader(importlib.abc.Loader):
    """Loads a module of STAGES as it is, then puts `timed` around its functions."""

    def __init__(self, loader):
        self._loader = loader  # of a zip file many modules have the same

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        for dotted in STAGES[module.__name__]:
            *owners, last = dotted.split(".")
            owner = functools.reduce(getattr, owners, module)
            if hasattr(owner, last):
                setattr(owner, last, timed(f"{module.__name__}.{dotted}", getattr(owner, last)))


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in STAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = Loader(spec.loader)
        return spec


if LOG and "jobs.task.worker_daemon" not in sys.orig_argv:
    BEGAN = time.time()
    sys.meta_path.insert(0, Finder())
    atexit.register(lambda: note(" ".join(sys.orig_argv[1:4]), BEGAN, time.time()))
