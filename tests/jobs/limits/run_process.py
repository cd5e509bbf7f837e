"""One run as a process of its own: calls a real service as often as its leases allow, until it is
ended.

python run_process.py STORE_URL PORT NAME LIMIT TASKS
"""

import asyncio
import signal
import sys
import time

from jobs.limits.store import StoreLost
from jobs.limits.store_url import open_store
from tests.jobs.limits.fleet import Run


class Calls:
    """What the tasks call: one connection a call; the answer comes when the service is through."""

    def __init__(self, port):
        self.port = port
        import random

        self.draw = random.Random(time.time())

    async def call(self, run):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(run.encode() + b"\n")
            await reader.read()
        finally:
            writer.close()


class Following:
    """The store, and the loop that hears of gates for the run's keeper."""

    def __init__(self, store):
        self.store, self.step, self.tell = store, store.step, store.tell

    def follow(self, callback):
        self.task = asyncio.get_running_loop().create_task(self._follow(callback))

    async def _follow(self, callback):
        while True:
            try:
                async for _ in self.store.changes():
                    callback()
            except StoreLost:
                await asyncio.sleep(0.2)


async def main(url, port, name, limit, tasks):
    run = Run(
        name,
        Following(open_store(url, patience=2.0)),
        Calls(int(port)),
        tasks=int(tasks),
        limit=int(limit),
        wants=8,
    )
    throttled = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, throttled.set)
    print("begun", flush=True)
    while True:
        await throttled.wait()
        throttled.clear()
        run.keeper.close_gate(5.0, "429")


asyncio.run(main(*sys.argv[1:]))
