"""The Spark program of days without a process of its own, in the tests' session: stands for
SparkSubmit.started.
"""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from jobs.process.program_thread import WaitForEnd
from jobs.run import enrich_day


@contextlib.contextmanager
def in_this_session(_submit, reference, *, days, run_id, log, options, **_) -> Iterator[WaitForEnd]:
    arguments = ["--enrichment", reference, "--day", *days, "--run-id", run_id, *options]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    with ThreadPoolExecutor(1) as program:
        ending = program.submit(enrich_day.main, arguments)

        def wait(seconds: float | None) -> int | None:
            with contextlib.suppress(TimeoutError):
                return ending.result(seconds)
            return None

        yield wait
