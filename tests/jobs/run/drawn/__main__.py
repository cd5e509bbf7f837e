"""python -m tests.jobs.run.drawn SEED or FROM:TO: plays drawn declarations."""

import logging
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from jobs.limits.store_url import LIMITS_URL, STATE_HOME
from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import ENGINE, LOCAL
from tests.jobs.run.drawn.nights import VARIABLES, Night
from tests.support.program_here import in_this_session
from tests.support.scripted_service import ScriptedService


def play(seed, *, shows_all):
    """Play the night of a seed in a new folder; return its faults."""
    folder, service = tempfile.mkdtemp(prefix=f"drawn-{seed}-"), ScriptedService()
    os.environ[STATE_HOME] = f"{folder}/state"
    os.chdir(folder)
    sys.path.insert(0, folder)
    service.start()
    night, faults = Night(seed, service), []
    try:
        night.play()
    except Exception:  # noqa: BLE001  # is a fault of this seed; others follow
        faults = [traceback.format_exc()]
    finally:
        service.stop()
        sys.path.remove(folder)
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    if shows_all:
        print(night.drawn.text(service.url), *night.outputs, *night.drawn.rows, sep="\n")
    return faults + night.faults


def main():
    os.environ |= {LIMITS_URL: "off", ENGINE: LOCAL, **VARIABLES}
    SparkSubmit.started = in_this_session
    sys.dont_write_bytecode = True  # a changed declaration may have the size and second of the last
    logging.disable(logging.CRITICAL)
    sys.path.insert(0, str(Path.cwd()))
    first, _, last = sys.argv[1].partition(":")
    began, red, seeds = time.monotonic(), 0, range(int(first), int(last or int(first) + 1))
    for seed in seeds:
        faults = play(seed, shows_all=not last)
        red += bool(faults)
        for fault in faults:
            print(f"seed {seed}: {fault}")
    print(f"{len(seeds)} nights, {red} red, {time.monotonic() - began:.0f} s")
    return red > 0


if __name__ == "__main__":
    sys.exit(main())
