"""Code by hand in place of Tidegate: each asks the same service for the same keys."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import aiohttp
import pyarrow as pa
import requests

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
RETURNED = "origin STRING, hour TIMESTAMP, temp_c DOUBLE"


def connections(limit: int) -> aiohttp.BaseConnector:
    return aiohttp.TCPConnector(limit=limit)


def bare_asyncio(
    keys: list[tuple[str, str]],
    url: str,
    in_flight: int,
    connector: Callable[[int], aiohttp.BaseConnector] = connections,
) -> None:
    """The fewest moving parts: as many workers as calls in flight, a list of keys, no Spark."""

    async def main() -> None:
        waiting = iter(keys)
        async with aiohttp.ClientSession(connector=connector(in_flight)) as session:

            async def worker() -> None:
                for origin, hour in waiting:
                    async with session.get(f"{url}/v1/{origin}/{hour}") as response:
                        await response.json()

            await asyncio.gather(*(worker() for _ in range(in_flight)))

    asyncio.run(main())


def gather_per_batch(url: str, share: int) -> Batches:
    """The usual code: asyncio.gather over each Arrow batch, a semaphore, a session per task."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loop = asyncio.new_event_loop()
        session = None

        async def ask(allowed: asyncio.Semaphore, origin: str, hour: datetime) -> float:
            assert session is not None
            async with allowed, session.get(path(url, origin, hour)) as response:
                return (await response.json())["temp_c"]  # null at some hours

        async def ask_all(batch: pa.RecordBatch) -> list[float]:
            nonlocal session
            session = session or aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=share))
            allowed = asyncio.Semaphore(share)
            pairs = zip(
                batch.column("origin").to_pylist(), batch.column("hour").to_pylist(), strict=True
            )
            return await asyncio.gather(*(ask(allowed, *pair) for pair in pairs))

        for batch in batches:
            temperatures = loop.run_until_complete(ask_all(batch))
            out = batch.select(["origin", "hour"]).append_column(
                "temp_c", pa.array(temperatures, pa.float64())
            )
            yield out
        if session is not None:
            loop.run_until_complete(session.close())
        loop.close()

    return task


def threads_per_batch(url: str, share: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For mapInPandas: a pool of threads, a requests session each, map over each batch."""

    def task(frames: Iterator[Any]) -> Iterator[Any]:
        import threading

        local = threading.local()

        def ask(pair: tuple[str, datetime]) -> float:
            if not hasattr(local, "session"):
                local.session = requests.Session()
            return local.session.get(path(url, *pair), timeout=30).json()["temp_c"]

        with ThreadPoolExecutor(share) as pool:
            for frame in frames:
                pairs = zip(frame["origin"], frame["hour"], strict=True)
                yield frame[["origin", "hour"]].assign(temp_c=list(pool.map(ask, pairs)))

    return task


def row_udf(url: str) -> Any:
    """A plain Python UDF that asks with requests, row after row."""
    from pyspark.sql.functions import udf

    def ask(origin: str, hour: datetime) -> float:
        return requests.get(path(url, origin, hour), timeout=30).json()["temp_c"]

    return udf(ask, "double", useArrow=False)


def path(url: str, origin: str, hour: datetime) -> str:
    return f"{url}/v1/{origin}/{hour:%Y-%m-%dT%H:%M:%SZ}"
