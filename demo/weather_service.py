"""The demo's slow outside service: the real hourly weather of New York's airports, over HTTP.

    GET /v1/{origin}/{moment}    UTC, as 2013-01-10T05:15:00Z: 200 with that hour's weather, or 404
    GET /_stats                  counts of the calls so far

    python -m demo.weather_service --data data/demo --log data/demo/weather_calls.jsonl

A call takes the latency of its key, and may meet a fault (`demo.draws`). It writes a line of the
log (`demo.calls`) when it ends and before its answer leaves, so every received answer is in the
log. Calls that run when the service is killed with -9 are not answered and not in the log.
`running` starts the service for a test or a demo.
"""

import argparse
import asyncio
import contextlib
import errno
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from aiohttp import web

from demo.calls import Call, Outcome, Tally, read
from demo.draws import Fault, Faults, latency

MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d):[0-5]\d:[0-5]\dZ", re.ASCII)
RETRY_AFTER_S = 1
GRACE_S = 0.5  # for running calls at SIGTERM; longer calls are cut off


# -- the server ------------------------------------------------------------------------------------
class Server:
    """Answers from `answers` (JSON by origin and hour); logs calls; scale multiplies latencies."""

    def __init__(
        self,
        answers: Mapping[str, Mapping[str, Any]],
        log: TextIO,
        *,
        seed: int,
        scale: float,
        faults: Faults,
    ) -> None:
        self._answers = answers
        self._log = log
        self._seed = seed
        self._scale = scale
        self._faults = faults
        self._epoch = time.time() - time.monotonic()
        self._attempts: Counter[str] = Counter()
        self._in_flight = 0
        self._tally = Tally()

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/v1/{origin}/{moment}", self._serve, allow_head=False)
        application.router.add_get("/_stats", self._stats, allow_head=False)
        return application

    async def _serve(self, request: web.Request) -> web.Response:
        origin, moment = request.match_info["origin"], request.match_info["moment"]
        matched = MOMENT.fullmatch(moment)
        if matched is None:
            return _refusal(
                400, f"{moment!r} is not a moment: write it in UTC, as 2013-01-10T05:15:00Z"
            )
        key = f"{origin}/{moment}"
        t_start = self._now()
        self._attempts[key] += 1
        self._in_flight += 1
        attempt, in_flight = self._attempts[key], self._in_flight
        fault = self._faults.draw(self._seed, key, attempt)
        outcome: Outcome = fault or "gone"
        try:
            response = await self._answer(request, key, f"{origin}/{matched[1]}:00:00Z", fault)
            outcome = fault or ("ok" if response.status == 200 else "miss")
            return response
        finally:
            self._in_flight -= 1
            call = Call(t_start, self._now(), origin, moment, attempt, outcome, in_flight)
            self._tally.add(call)
            self._log.write(call.to_line())

    async def _answer(
        self, request: web.Request, key: str, hour: str, fault: Fault | None
    ) -> web.Response:
        if fault == "throttle":
            return _refusal(429, "too many requests", headers={"Retry-After": str(RETRY_AFTER_S)})
        if fault == "hang":
            await asyncio.Event().wait()  # until the client disconnects, which cancels this handler
        await asyncio.sleep(self._scale * latency(self._seed, key))
        if fault == "error":
            return _refusal(500, "internal error")
        if fault == "drop" and request.transport is not None:
            request.transport.close()
        if hour not in self._answers:
            return _refusal(404, f"no weather for {key}")
        return web.json_response(self._answers[hour])

    async def _stats(self, _: web.Request) -> web.Response:
        return web.json_response({**self._tally.to_dict(), "in_flight": self._in_flight})

    def _now(self) -> float:
        return round(self._epoch + time.monotonic(), 6)


def _refusal(status: int, reason: str, *, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"error": reason}, status=status, headers=headers)


def load(folder: Path) -> dict[str, dict[str, Any]]:
    table = pq.ParquetFile(folder / "weather.parquet").read()
    hours = pc.strftime(table["hour"].cast(pa.timestamp("s")), format="%Y-%m-%dT%H:%M:%SZ")
    rows = table.set_column(table.schema.get_field_index("hour"), "hour", hours).to_pylist()
    return {f"{row['origin']}/{row['hour']}": _nested(**row) for row in rows}


def _nested(
    *,
    wind_speed_ms: float | None,
    wind_gust_ms: float | None,
    wind_direction_deg: int | None,
    **row: Any,
) -> dict[str, Any]:
    # nested, as in such services, so that the declaration needs a path
    return {
        **row,
        "wind": {"speed": wind_speed_ms, "gust": wind_gust_ms, "direction": wind_direction_deg},
    }


# -- the program -----------------------------------------------------------------------------------
async def _serve_until_stopped(server: Server, port: int, *, lifeline: bool) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if lifeline:
        # it becomes readable when it closes, as nothing is written to it
        loop.add_reader(sys.stdin.fileno(), stopped.set)
    runner = web.AppRunner(
        server.application(), access_log=None, handler_cancellation=True, shutdown_timeout=GRACE_S
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise OSError(f"port {port} is taken; choose another, or 0 for a free one") from None
        print(f"weather service on http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await stopped.wait()
    finally:
        await runner.cleanup()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo.weather_service",
        description="Real weather over HTTP, slow and faulty as real services are.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one (default)")
    parser.add_argument(
        "--data", type=Path, default=Path("data/demo"), help="folder of weather.parquet"
    )
    parser.add_argument(
        "--log", type=Path, default=Path("data/demo/weather_calls.jsonl"), help="is appended to"
    )
    parser.add_argument(
        "--faults",
        default=None,
        help="none, or shares as in throttle=0.003,hang=0.002 (default: 1 %% in all)",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiplies every latency; 0 answers at once"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides latencies and faults")
    parser.add_argument(
        "--lifeline", action="store_true", help="also stops when its standard input closes"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    # a connection is an open file, and the usual soft limit of 1024 is soon reached
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        faults = Faults() if options.faults is None else Faults.parse(options.faults)
        if not (options.data / "weather.parquet").exists():
            raise FileNotFoundError(
                f"{options.data}/weather.parquet is missing; `python -m demo.data` makes it"
            )
        answers = load(options.data)
        options.log.parent.mkdir(parents=True, exist_ok=True)
        with options.log.open("a", buffering=1) as log:
            server = Server(answers, log, seed=options.seed, scale=options.scale, faults=faults)
            asyncio.run(_serve_until_stopped(server, options.port, lifeline=options.lifeline))
    except (OSError, ValueError) as wrong:
        print(f"weather service: {wrong}", file=sys.stderr)
        return 2
    return 0


# -- for tests and demos ---------------------------------------------------------------------------
class WeatherService:
    def __init__(
        self,
        data: Path,
        log: Path,
        *,
        port: int = 0,
        faults: str = "none",
        scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.log_path = log
        self._port = port
        self._settings = {
            "--data": data,
            "--log": log,
            "--faults": faults,
            "--scale": scale,
            "--seed": seed,
        }
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "demo.weather_service",
            "--lifeline",
            f"--port={self._port}",
        ]
        command += [f"{name}={value}" for name, value in self._settings.items()]
        # the pipe to its standard input closes with this process in every case
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        if not ready:
            self.kill()
            raise RuntimeError("the weather service did not start; its reason stands above")
        self._port = int(ready.rpartition(":")[2])

    def stop(self) -> int:
        """End the service by SIGTERM and return its exit code; idempotent."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """End the service by SIGKILL, with its running calls."""
        return self._end(signal.SIGKILL)

    def calls(self) -> tuple[Call, ...]:
        return read(self.log_path) if self.log_path.exists() else ()

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        process.send_signal(number)
        with process:
            code = process.wait()
        self._process = None
        return code


@contextlib.contextmanager
def running(
    data: Path, log: Path, *, port: int = 0, faults: str = "none", scale: float = 1.0, seed: int = 0
) -> Iterator[WeatherService]:
    """Run the service for the block.

    `data` is the folder of weather.parquet; faults and scale are as on the command line, except
    that faults are off.
    """
    service = WeatherService(data, log, port=port, faults=faults, scale=scale, seed=seed)
    service.start()
    try:
        yield service
    finally:
        service.stop()


if __name__ == "__main__":
    sys.exit(main())
