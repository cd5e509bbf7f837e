"""Many asynchronous calls in flight on asyncio, as in Flink's Async I/O. Standard library only."""

from asyncio_core.arguments import OutputMode
from asyncio_core.elements import StreamElement, StreamRecord, Watermark
from asyncio_core.errors import AsyncInvokeError
from asyncio_core.function import AsyncFunction
from asyncio_core.gate import Gate
from asyncio_core.queues import (
    KeyOrderedStreamElementQueue,
    OrderedStreamElementQueue,
    UnorderedStreamElementQueue,
)
from asyncio_core.retry import NO_RETRY, RetryStrategy, exponential_backoff, fixed_delay
from asyncio_core.statistics import OperatorStatistics
from asyncio_core.streams import key_ordered_wait, ordered_wait, unordered_wait
from asyncio_core.wait_operator import AsyncWaitOperator
from asyncio_core.watermarks import WatermarkGenerator, WatermarkStrategy

__all__ = [
    "NO_RETRY",
    "AsyncFunction",
    "AsyncInvokeError",
    "AsyncWaitOperator",
    "Gate",
    "KeyOrderedStreamElementQueue",
    "OperatorStatistics",
    "OrderedStreamElementQueue",
    "OutputMode",
    "RetryStrategy",
    "StreamElement",
    "StreamRecord",
    "UnorderedStreamElementQueue",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "exponential_backoff",
    "fixed_delay",
    "key_ordered_wait",
    "ordered_wait",
    "unordered_wait",
]
