"""The same work by the core, by code by hand, and by packages. Each returns CPU seconds."""

import asyncio
import time
from collections.abc import Callable

import aiometer
import aiostream

from asyncio_core import AsyncWaitOperator, OutputMode, Watermark, fixed_delay

IN_FLIGHT = 100


class AtOnce:
    """Returns without suspending."""

    async def async_invoke(self, value):
        return [value]


class SuspendsOnce:
    """Lets the loop turn once."""

    async def async_invoke(self, value):
        await asyncio.sleep(0)
        return [value]


class Sleeps:
    """Waits for a millisecond of real time."""

    async def async_invoke(self, value):
        await asyncio.sleep(0.001)
        return [value]


class Count:
    """Counts the results and keeps the last."""

    def __init__(self):
        self.count = 0
        self.last = None

    def __call__(self, element):
        self.count += 1
        self.last = element


def with_watermarks(records, every):
    """Return the records, with a watermark after every `every` records."""
    elements = []
    for number, record in enumerate(records, start=1):
        elements.append(record)
        if number % every == 0:
            elements.append(Watermark(number))
    return elements


async def operator(
    function, records, take, *, mode, capacity, concurrency=IN_FLIGHT, watermark_every=0, keys=1000
):
    """Our operator through its public methods, with a time limit and a retry strategy on."""
    operator = AsyncWaitOperator(
        function,
        take,
        mode=mode,
        timeout=60.0,
        capacity=capacity,
        concurrency=concurrency,
        retry_strategy=fixed_delay(max_retries=2, delay=0.1, on_exception=lambda _: True),
        key=(lambda value: value % keys) if mode is OutputMode.KEY_ORDERED else None,
    )
    elements = with_watermarks(records, watermark_every) if watermark_every else records
    await operator.open()
    process_element = operator.process_element
    started = time.process_time()
    for element in elements:
        await process_element(element)
    await operator.end_input()
    spent = time.process_time() - started
    await operator.close()
    return spent


async def bare_workers(function, records, take):
    """Run 100 tasks that share an iterator: no order, limit, retry, errors or back-pressure."""
    waiting = iter(records)
    invoke = function.async_invoke

    async def work():
        for record in waiting:
            for result in await invoke(record.value):
                take(result)

    started = time.process_time()
    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return time.process_time() - started


async def task_per_record_in_batches(function, records, take):
    """Run a Task per record and nothing else: make 100, await all, and so on.

    This is the cheapest Task per record.
    """
    create_task = asyncio.get_running_loop().create_task
    invoke = function.async_invoke
    started = time.process_time()
    for start in range(0, len(records), IN_FLIGHT):
        for task in [
            create_task(invoke(record.value)) for record in records[start : start + IN_FLIGHT]
        ]:
            for result in await task:
                take(result)
    return time.process_time() - started


async def task_per_record(function, records, take):
    """A Task per record, always 100 in flight."""
    loop = asyncio.get_running_loop()
    invoke = function.async_invoke
    running = set()
    room = None

    def done(task):
        running.discard(task)
        for result in task.result():
            take(result)
        if room is not None and not room.done():
            room.set_result(None)

    started = time.process_time()
    for record in records:
        if len(running) >= IN_FLIGHT:
            room = loop.create_future()
            await room
        task = loop.create_task(invoke(record.value))
        running.add(task)
        task.add_done_callback(done)
    while running:
        await asyncio.wait(running)
    return time.process_time() - started


async def group_and_semaphore(function, records, take):
    """TaskGroup and Semaphore, as in most answers to the question."""
    semaphore = asyncio.Semaphore(IN_FLIGHT)
    invoke = function.async_invoke

    async def call(value):
        try:
            for result in await invoke(value):
                take(result)
        finally:
            semaphore.release()

    started = time.process_time()
    async with asyncio.TaskGroup() as group:
        for record in records:
            await semaphore.acquire()
            group.create_task(call(record.value))
    return time.process_time() - started


async def aiostream_map(function, records, take):
    """aiostream.stream.map, unordered, with a limit on its tasks."""
    invoke = function.async_invoke

    async def call(record):
        return await invoke(record.value)

    started = time.process_time()
    mapped = aiostream.stream.map(
        aiostream.stream.iterate(records), call, ordered=False, task_limit=IN_FLIGHT
    )
    async with mapped.stream() as results:
        async for result in results:
            take(result[0])
    return time.process_time() - started


async def aiometer_amap(function, records, take):
    """aiometer.amap with a limit on what runs at once."""
    invoke = function.async_invoke

    async def call(record):
        return await invoke(record.value)

    started = time.process_time()
    async with aiometer.amap(call, records, max_at_once=IN_FLIGHT) as results:
        async for result in results:
            take(result[0])
    return time.process_time() - started


Contender = Callable[..., object]

OTHERS: dict[
    str, tuple[Contender, float]
] = {  # with the share of the records that they are given: the slow ones get less
    "bare workers": (bare_workers, 1.0),
    "a Task per record, in batches": (task_per_record_in_batches, 1.0),
    "a Task per record, sliding": (task_per_record, 1.0),
    "TaskGroup + Semaphore": (group_and_semaphore, 1.0),
    "aiostream map": (aiostream_map, 0.04),
    "aiometer amap": (aiometer_amap, 0.04),
}

MODES = {
    "ordered": {"mode": OutputMode.ORDERED},
    "unordered": {"mode": OutputMode.UNORDERED},
    "key-ordered": {"mode": OutputMode.KEY_ORDERED},
    "unordered, watermark per 100": {"mode": OutputMode.UNORDERED, "watermark_every": 100},
}
