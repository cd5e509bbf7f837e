"""Makes watermarks from the timestamps of records, and detects late records."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from asyncio_core.elements import StreamElement, StreamRecord, Watermark


class WatermarkGenerator:
    """Follows the timestamps of a stream; WatermarkStrategy.create_watermark_generator() makes it.

    Args:
        bound: Milliseconds; the watermark stays bound + 1 behind the highest timestamp.
        every: Number of records after which the watermark may advance.
    """

    def __init__(self, bound: int, every: int) -> None:
        self._bound = bound  # milliseconds
        self._every = every
        self._records = 0
        self._highest: int | None = None
        self._emitted: int | None = None

    def is_late(self, timestamp: int | None) -> bool:
        """Return whether a record is at or before the last emitted watermark.

        Args:
            timestamp: Milliseconds since the epoch; a record with None is never late.

        Returns:
            True for a late record.
        """
        return timestamp is not None and self._emitted is not None and timestamp <= self._emitted

    def on_record(self, timestamp: int | None) -> Watermark | None:
        """Record a timestamp.

        Args:
            timestamp: Milliseconds since the epoch, or None.

        Returns:
            The watermark to put after the record, if it is due and higher than the last.
        """
        if timestamp is not None and (self._highest is None or timestamp > self._highest):
            self._highest = timestamp
        self._records += 1
        if self._highest is None or self._records % self._every:
            return None
        watermark = self._highest - self._bound - 1
        if self._emitted is not None and watermark <= self._emitted:
            return None
        self._emitted = watermark
        return Watermark(watermark)


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """How far the watermark is behind the highest timestamp, and when it may advance.

    The watermark is the highest timestamp seen - bound - 1, in milliseconds: a record at exactly
    that distance is in time. The watermark only rises. A record is late when its timestamp is at or
    before the last emitted watermark.

    Attributes:
        bound: Milliseconds.
        every: Number of records after which the watermark may advance.
    """

    bound: int
    every: int

    @classmethod
    def for_bounded_out_of_orderness(cls, seconds: float, *, every: int = 1) -> "WatermarkStrategy":
        """Make a strategy in which records over `seconds` behind the maximum are late.

        Args:
            seconds: The bound, 0 or more.
            every: After how many records a watermark may be emitted, at least 1.

        Returns:
            The strategy.

        Raises:
            ValueError: A number is wrong.
        """
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError(
                f"the out-of-orderness is a finite number of seconds, 0 or more, got {seconds!r}"
            )
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every is a number of records, at least 1, got {every!r}")
        return cls(round(seconds * 1000), every)

    @classmethod
    def for_monotonous_timestamps(cls, *, every: int = 1) -> "WatermarkStrategy":
        """Make a strategy for timestamps that never fall.

        Args:
            every: After how many records a watermark may be emitted, at least 1.

        Returns:
            The strategy.

        Raises:
            ValueError: A number is wrong.
        """
        return cls.for_bounded_out_of_orderness(0.0, every=every)

    def create_watermark_generator(self) -> WatermarkGenerator:
        """Return a generator for a stream, or a partition of it."""
        return WatermarkGenerator(self.bound, self.every)

    def assign(self, records: Iterable[StreamRecord]) -> Iterator[StreamElement]:
        """Yield the records, each followed by the watermark that is due after it.

        Args:
            records: One stream, in the order of arrival.

        Yields:
            StreamRecords and Watermarks.
        """
        generator = self.create_watermark_generator()
        for record in records:
            yield record
            watermark = generator.on_record(record.timestamp)
            if watermark is not None:
                yield watermark
