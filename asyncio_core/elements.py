"""The elements of an operator: immutable records and watermarks, which compare by value."""

from typing import Any, TypeAlias, final

# Properties over private slots: a frozen dataclass takes three times as long to build, once per
# result.


@final
class StreamRecord:
    """A value with its event time.

    Args:
        value: Anything.
        timestamp: Milliseconds since the epoch, or None.
    """

    __slots__ = ("_timestamp", "_value")
    __match_args__ = ("value", "timestamp")

    def __init__(self, value: Any, timestamp: int | None = None) -> None:
        self._value = value
        self._timestamp = timestamp

    @property
    def value(self) -> Any:
        return self._value

    @property
    def timestamp(self) -> int | None:
        return self._timestamp

    def __repr__(self) -> str:
        return f"StreamRecord(value={self._value!r}, timestamp={self._timestamp!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamRecord):
            return NotImplemented
        return bool(self._value == other._value) and self._timestamp == other._timestamp

    def __hash__(self) -> int:
        return hash((StreamRecord, self._value, self._timestamp))


@final
class Watermark:
    """A promise about event time: no record at or before the timestamp follows.

    Args:
        timestamp: Milliseconds since the epoch.
    """

    __slots__ = ("_timestamp",)
    __match_args__ = ("timestamp",)

    def __init__(self, timestamp: int) -> None:
        self._timestamp = timestamp

    @property
    def timestamp(self) -> int:
        return self._timestamp

    def __repr__(self) -> str:
        return f"Watermark(timestamp={self._timestamp!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Watermark):
            return NotImplemented
        return self._timestamp == other._timestamp

    def __hash__(self) -> int:
        return hash((Watermark, self._timestamp))


StreamElement: TypeAlias = StreamRecord | Watermark
