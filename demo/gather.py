"""The hand-written alternative: `asyncio.gather` over a day's keys, answers written at the end.

    python -m demo.gather --day 2013-01-11 --url http://127.0.0.1:8088 --out by_hand.parquet

The demo's crash compares it with Tidegate. It is a fair alternative: it calls for every distinct
key once, with as many calls in flight as Tidegate may have, and retries transient failures.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from enrichments.flights import flights, weather

TRIES = 1 + weather.retry.retries


def keys(day: str) -> list[tuple[str, str]]:
    table = pq.ParquetFile(next(Path(flights.input.folder(day)).glob("*.parquet"))).read()
    moments = pc.strftime(
        table["scheduled_departure"].cast(pa.timestamp("s")), format="%Y-%m-%dT%H:%M:%SZ"
    )
    return list(dict.fromkeys(zip(table["origin"].to_pylist(), moments.to_pylist(), strict=True)))


async def enrich(url: str, asked: Sequence[tuple[str, str]]) -> list[dict[str, Any] | None]:
    slots = asyncio.Semaphore(weather.concurrency)
    async with aiohttp.ClientSession(
        url, timeout=aiohttp.ClientTimeout(weather.attempt_timeout)
    ) as session:

        async def ask(origin: str, moment: str) -> dict[str, Any] | None:
            for left in reversed(range(TRIES)):
                try:
                    async with slots, session.get(f"/v1/{origin}/{moment}") as response:
                        if response.status in (200, 404):
                            return dict(await response.json()) if response.status == 200 else None
                        pause = float(response.headers.get("Retry-After", 0.1))
                except (aiohttp.ClientError, TimeoutError):
                    pause = 0.1
                if left:
                    await asyncio.sleep(pause)
            return None

        return await asyncio.gather(*(ask(*key) for key in asked))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m demo.gather", description="A day by hand: asyncio.gather."
    )
    parser.add_argument("--day", required=True)
    parser.add_argument("--url", required=True, help="of the weather service")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    asked = keys(options.day)
    answers = asyncio.run(enrich(options.url, asked))
    temperatures = [None if answer is None else answer["temp_c"] for answer in answers]
    origins, moments = zip(*asked, strict=True)
    pq.write_table(
        pa.table({"origin": origins, "moment": moments, "temp_c": temperatures}), options.out
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
