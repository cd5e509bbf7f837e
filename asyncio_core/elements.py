"""What flows through an operator: records and watermarks. Both are immutable and compare by value."""

from typing import Any, Final, NoReturn, TypeAlias, final


class _Immutable:
    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} is immutable: {name!r} cannot be set; make a new one instead")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} is immutable: {name!r} cannot be deleted")


@final
class StreamRecord(_Immutable):
    """One value with its event time: `timestamp` in milliseconds since the epoch, or None."""

    __slots__ = ("timestamp", "value")
    __match_args__ = ("value", "timestamp")

    value: Any
    timestamp: int | None

    def __init__(self, value: Any, timestamp: int | None = None) -> None:
        _set_value(self, value)
        _set_record_timestamp(self, timestamp)

    def __repr__(self) -> str:
        return f"StreamRecord(value={self.value!r}, timestamp={self.timestamp!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamRecord):
            return NotImplemented
        return bool(self.value == other.value) and self.timestamp == other.timestamp

    def __hash__(self) -> int:
        return hash((StreamRecord, self.value, self.timestamp))

    def __reduce__(self) -> tuple[type["StreamRecord"], tuple[Any, int | None]]:
        return StreamRecord, (self.value, self.timestamp)


@final
class Watermark(_Immutable):
    """A promise about event time: no record at or before `timestamp` (milliseconds) follows."""

    __slots__ = ("timestamp",)
    __match_args__ = ("timestamp",)

    timestamp: int

    def __init__(self, timestamp: int) -> None:
        _set_watermark_timestamp(self, timestamp)

    def __repr__(self) -> str:
        return f"Watermark(timestamp={self.timestamp!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Watermark):
            return NotImplemented
        return self.timestamp == other.timestamp

    def __hash__(self) -> int:
        return hash((Watermark, self.timestamp))

    def __reduce__(self) -> tuple[type["Watermark"], tuple[int]]:
        return Watermark, (self.timestamp,)


# A frozen dataclass costs 1.6 times as much to build, and one record is built per result.
_set_value: Final = StreamRecord.__dict__["value"].__set__
_set_record_timestamp: Final = StreamRecord.__dict__["timestamp"].__set__
_set_watermark_timestamp: Final = Watermark.__dict__["timestamp"].__set__

StreamElement: TypeAlias = StreamRecord | Watermark
