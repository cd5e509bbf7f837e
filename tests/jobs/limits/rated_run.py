"""One run as a process of its own, without Spark: a driver, tasks in threads, the store, a real
service over HTTP.

python rated_run.py SERVICE_URL TASKS ROWS [plain]; plain: with max_concurrency only. Runs meet as
the environment says.
"""

import dataclasses
import sys
import threading
import time
import types

from jobs.run.coordinator.driver_coordinator import DriverCoordinator
from jobs.run.coordinator.run_leases import build_keepers, leased_limits
from jobs.task.link.driver_link import with_driver
from jobs.task.runner import PartitionRun
from tests.jobs.task.test_runner import batches, plan
from tidegate import HttpLookup, Rate, Service, lookup

LIMIT = 16
PER_SECOND, PER_MINUTE = 40, 90_000
TOKENS = 100  # at most of one call
RATES = [
    Rate(PER_SECOND, per="second"),
    Rate(PER_MINUTE, per="minute", of="tokens", at_most=TOKENS),
]


async def geo(row, http):
    answer = await http.post("/geo", json={"k": row.k, "sent_at": time.monotonic()})
    http.bill(tokens=answer["tokens"])
    return {"first_x": answer["x"]}


def task(planned, number, rows):
    run = PartitionRun(planned, number, 0)
    context = types.SimpleNamespace(
        stageId=lambda: 7, partitionId=lambda: number, taskAttemptId=lambda: number
    )
    done = sum(batch.num_rows for batch in with_driver(run, rows, planned.driver, context))
    print(f"task {number}: {done} rows", flush=True)


def rated(url):
    return lookup(
        name="first", service=Service(name="geo", url=url, max_concurrency=LIMIT, rate=RATES),
        keys={"k": "k"}, returns="first_x BIGINT", timeout=60.0, attempt_timeout=2.0,
    )(geo)  # fmt: skip


def plain(url):
    return HttpLookup(
        name="first", service=Service(name="geo", url=url, max_concurrency=LIMIT), keys={"k": "k"},
        request="GET /{k}", returns="first_x BIGINT", timeout=60.0, attempt_timeout=2.0,
    )  # fmt: skip


def main(url, tasks, rows, declare=rated):
    declared = declare(url)
    limits = leased_limits([declared])
    driver = DriverCoordinator("127.0.0.1", "127.0.0.1", lambda _: True)
    address = driver.register(keepers=build_keepers(limits, "a run"))
    planned = dataclasses.replace(
        plan(declared, share=LIMIT // tasks), driver=address, limits=limits
    )
    threads = [
        threading.Thread(target=task, args=(planned, n, batches(rows))) for n in range(tasks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), plain if "plain" in sys.argv else rated)
