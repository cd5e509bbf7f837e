"""A run of a day that kills itself at a point of its vendor job: `python -m ... POINT command`."""

import os
import signal
import sys

from jobs.clients.vendor_session import VendorSession
from jobs.ledger.job_files import JobFiles
from jobs.process.spark_submit import SparkSubmit
from tests.support.program_here import in_this_session
from tidegate.__main__ import main


def kill(*_arguments, **_options):
    os.kill(os.getpid(), signal.SIGKILL)


def after(owner, name):
    """Kills once the method has returned."""
    before = getattr(owner, name)

    def method(*arguments, **options):
        before(*arguments, **options)
        kill()

    setattr(owner, name, method)


async def submit_and_die(self, items, token, submit=VendorSession.submit):
    await submit(self, items, token)
    kill()


async def die(*_arguments):
    kill()


POINTS = {
    "intent written": lambda: setattr(VendorSession, "submit", die),
    "answer lost": lambda: setattr(VendorSession, "submit", submit_and_die),
    "id stored": lambda: after(JobFiles, "write_submitted"),
    "polling": lambda: setattr(VendorSession, "state", die),
    "results read": lambda: setattr(JobFiles, "store", kill),
    "results stored": lambda: setattr(JobFiles, "finish", kill),
    "done": lambda: after(JobFiles, "finish"),
}

if __name__ == "__main__":
    SparkSubmit.started = in_this_session  # the whole run is this process
    POINTS[sys.argv[1]]()
    sys.exit(main(sys.argv[2:]))
