"""A service for benchmarks with uneven latencies: GET /v1/{origin}/{hour}, and /_log of all calls.

    python benchmarks/uneven_service.py MEAN_S SLOW_SHARE SLOW_S

Every request takes MEAN_S, and the first request of that share of the keys SLOW_S. Ends when its
standard input closes.
"""

import asyncio
import contextlib
import subprocess
import sys
import time
import urllib.request
import zlib
from collections.abc import Iterator
from json import load as load_json
from typing import Any

from aiohttp import web


def latency(key: str, mean: float, slow_share: float, slow: float) -> float:
    return slow if zlib.crc32(key.encode()) % 10_000 < slow_share * 10_000 else mean


def application(mean: float, slow_share: float, slow: float) -> web.Application:
    calls: list[tuple[float, float]] = []
    asked: set[str] = set()

    async def serve(request: web.Request) -> web.Response:
        started = time.monotonic()
        share = 0.0 if request.path in asked else slow_share
        asked.add(request.path)
        try:
            await asyncio.sleep(latency(request.path, mean, share, slow))
        finally:  # also of a call that its client cancels
            calls.append((started, time.monotonic()))
        return web.json_response({"temp_c": 1.5})

    async def log(_: web.Request) -> web.Response:
        return web.json_response(calls)

    app = web.Application()
    app.router.add_get("/v1/{origin}/{hour}", serve)
    app.router.add_get("/_log", log)
    return app


async def until_closed(port: int) -> None:
    """Tell the parent process the port, and wait until it closes our standard input."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    print(port, flush=True)
    await ended.wait()


async def main(mean: float, slow_share: float, slow: float) -> None:
    runner = web.AppRunner(
        application(mean, slow_share, slow), access_log=None, handler_cancellation=True
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    await until_closed(runner.addresses[0][1])
    await runner.cleanup()


@contextlib.contextmanager
def running(*arguments: object, program: str = __file__) -> Iterator[str]:
    """Yield its address while it runs as a separate process, which ends by `until_closed`."""
    command = [sys.executable, program, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(process.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()
            process.wait(30)


def calls_of(url: str) -> list[tuple[float, float]]:
    with urllib.request.urlopen(f"{url}/_log", timeout=60) as response:
        found: Any = load_json(response)
    return [(start, end) for start, end in found]


if __name__ == "__main__":
    asyncio.run(main(*map(float, sys.argv[1:])))
