"""A run of the chained project in a process that is forked from one that has loaded it all."""

import os
import sys

import jobs.run.day
import jobs.run.engines.engine
import jobs.run.enrich
import jobs.run.keys.preparation
import jobs.run.plan.planner
import jobs.run.rows.chain_check  # loaded before the fork
from jobs.declare.finding.loading import load

__all__ = ["run"]


def run(folder, environment, day, run_id):
    os.chdir(folder)
    os.environ.update(environment)
    sys.path.insert(0, str(folder))
    jobs.run.day.run_day(load("chained.firms:firms"), day, run_id)
