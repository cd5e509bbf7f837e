"""The three queues between input and output, which decide the order of the output.

They are plain data, without clock, task or I/O, modelled on Flink's StreamElementQueue. An element
occupies a place until it is emitted, also after its call has completed. Nothing overtakes a
watermark, and a watermark overtakes nothing.
"""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, NoReturn, Protocol

from asyncio_core.elements import StreamElement, StreamRecord, Watermark

_NO_RESULTS = "an entry is completed with a list of results, got None; for no result pass []"

Output = Callable[[StreamElement], None]


class Entry(Protocol):
    """The place of an element in a queue."""

    element: Any

    def complete(self, results: list[Any]) -> None:
        """Set the record's results. A second call replaces them, and does nothing after emission.

        Args:
            results: Any number of results; None raises.
        """


class StreamElementQueue(Protocol):
    """The operator's interface to a queue."""

    capacity: int

    def try_put(self, element: StreamElement) -> Entry | None:
        """Add an element, unless the queue is full.

        Args:
            element: A record or a watermark.

        Returns:
            Its entry; None, with nothing changed, if the queue is full.
        """

    def has_completed_elements(self) -> bool:
        """Return whether the next emit would remove an entry."""

    def emit_completed_element(self, output: Output) -> None:
        """Remove and emit the next entry, if it is complete and no other holds it.

        Args:
            output: Called with each of its results, if any, or with the watermark. If it raises,
                the entry's other results are lost.
        """

    def emit_all_completed(self, output: Output) -> None:
        """Remove and emit entries as long as the next entry's turn has come."""

    def values(self) -> list[StreamElement]:
        """Return the elements for a snapshot; put again in this order they leave as before."""

    def __len__(self) -> int: ...


class _RecordEntry:
    """An entry whose fields try_put() sets: a call of __init__ costs 2 % of the time per record."""

    __slots__ = ("element", "results")

    element: StreamRecord
    results: list[Any] | None  # None while the record is open

    def complete(self, results: list[Any]) -> None:
        if results is None:
            raise TypeError(_NO_RESULTS)
        self.results = results


class _WatermarkEntry:
    __slots__ = ("element", "results")

    def __init__(self, element: Watermark) -> None:
        self.element = element
        self.results: tuple[()] = ()  # always complete

    def complete(self, results: list[Any]) -> NoReturn:
        raise RuntimeError(
            f"{self.element!r} is complete from birth and takes no results, got {results!r}"
        )


def check_capacity(capacity: int) -> int:
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise ValueError(
            f"capacity is the number of places in the queue, at least 1, got {capacity!r}"
        )
    return capacity


def _refuse(element: object) -> NoReturn:
    raise TypeError(f"a queue takes StreamRecord and Watermark, got {type(element).__name__}")


def _emit(entry: _RecordEntry, output: Output) -> None:
    element = entry.element
    assert entry.results is not None, "only completed entries are emitted"
    for result in entry.results:
        # an unchanged value keeps its record
        output(element if result is element.value else StreamRecord(result, element.timestamp))


class OrderedStreamElementQueue:
    """Elements leave in input order.

    Args:
        capacity: Places, at least 1, for records and watermarks until they are emitted.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = check_capacity(capacity)
        self._entries: deque[_RecordEntry | _WatermarkEntry] = deque()

    def try_put(self, element: StreamElement) -> Entry | None:
        if len(self._entries) >= self.capacity:
            return None
        entry: _RecordEntry | _WatermarkEntry
        if isinstance(element, StreamRecord):
            entry = _RecordEntry()
            entry.element = element
            entry.results = None
        elif isinstance(element, Watermark):
            entry = _WatermarkEntry(element)
        else:
            _refuse(element)
        self._entries.append(entry)
        return entry

    def has_completed_elements(self) -> bool:
        return bool(self._entries) and self._entries[0].results is not None

    def emit_completed_element(self, output: Output) -> None:
        if not self.has_completed_elements():
            return
        entry = self._entries.popleft()
        if isinstance(entry, _WatermarkEntry):
            output(entry.element)
        else:
            _emit(entry, output)

    def emit_all_completed(self, output: Output) -> None:
        entries = self._entries
        while entries:
            head = entries[0]
            results = head.results
            if results is None:
                return
            entries.popleft()
            element: Any = head.element
            if head.__class__ is _WatermarkEntry:
                output(element)
            else:
                value = element._value  # noqa: SLF001 - the property's frame would cost 2 %
                for result in results:
                    output(element if result is value else StreamRecord(result, element.timestamp))

    def values(self) -> list[StreamElement]:
        return [entry.element for entry in self._entries]

    def is_empty(self) -> bool:
        return not self._entries

    def __len__(self) -> int:
        return len(self._entries)


class _Segment:
    """The records between two watermarks, and the watermark that ends them, once it arrives."""

    __slots__ = ("blocked", "ready", "tails", "watermark")

    def __init__(self) -> None:
        self.ready: deque[_SegmentEntry] = deque()  # may leave, in this order
        self.blocked: dict[_SegmentEntry, None] = {}  # may not leave yet, in input order
        # of KeyOrderedStreamElementQueue: the latest blocked entry of each key
        self.tails: dict[Hashable, _KeyedEntry] = {}
        self.watermark: _WatermarkEntry | None = None


class _SegmentEntry(_RecordEntry):
    __slots__ = ("segment",)

    segment: _Segment

    def complete(self, results: list[Any]) -> None:
        if results is None:
            raise TypeError(_NO_RESULTS)
        if self.results is None:
            segment = self.segment
            del segment.blocked[self]
            segment.ready.append(self)
        self.results = results


class UnorderedStreamElementQueue:
    """Between two watermarks, records leave in the order of completion.

    Args:
        capacity: Places, at least 1, for records and watermarks until they are emitted.
    """

    _entry_type: type[_SegmentEntry] = _SegmentEntry
    _lines_up = False

    def __init__(self, capacity: int) -> None:
        self.capacity = check_capacity(capacity)
        self._segments: deque[_Segment] = deque([_Segment()])  # the last segment takes the input
        self._size = 0

    def try_put(self, element: StreamElement) -> Entry | None:
        if self._size >= self.capacity:
            return None
        last = self._segments[-1]
        entry: _SegmentEntry | _WatermarkEntry
        if isinstance(element, StreamRecord):
            entry = self._entry_type()
            entry.element = element
            entry.results = None
            entry.segment = last
            if self._lines_up:
                self._line_up(entry)
            last.blocked[entry] = None
        elif isinstance(element, Watermark):
            entry = last.watermark = _WatermarkEntry(element)
            self._segments.append(_Segment())
        else:
            _refuse(element)
        self._size += 1
        return entry

    def _line_up(self, entry: _SegmentEntry) -> None:
        """Set an order among the records of a segment, in subclasses."""

    def has_completed_elements(self) -> bool:
        first = self._segments[0]
        return bool(first.ready) or (first.watermark is not None and not first.blocked)

    def emit_completed_element(self, output: Output) -> None:
        first = self._segments[0]
        if first.ready:
            self._size -= 1
            _emit(first.ready.popleft(), output)
        elif first.watermark is not None and not first.blocked:
            self._size -= 1
            self._segments.popleft()
            output(first.watermark.element)

    def emit_all_completed(self, output: Output) -> None:
        while True:
            first = self._segments[0]
            ready = first.ready
            while ready:
                self._size -= 1
                entry = ready.popleft()
                element = entry.element
                value = element._value  # noqa: SLF001 - the property's frame would cost 2 %
                for result in entry.results:  # type: ignore[union-attr]  # ready entries are complete
                    output(element if result is value else StreamRecord(result, element.timestamp))
            if first.watermark is None or first.blocked:
                return
            self._size -= 1
            self._segments.popleft()
            output(first.watermark.element)

    def values(self) -> list[StreamElement]:
        found: list[StreamElement] = []
        for segment in self._segments:
            found.extend(entry.element for entry in segment.ready)
            found.extend(entry.element for entry in segment.blocked)
            if segment.watermark is not None:
                found.append(segment.watermark.element)
        return found

    def is_empty(self) -> bool:
        return not self._size

    def __len__(self) -> int:
        return self._size


class _KeyedEntry(_SegmentEntry):
    """An entry with its key.

    Attributes:
        key: The key.
        next: The key's next entry, if any.
        behind: Whether an earlier entry of the key is not ready yet.
    """

    __slots__ = ("behind", "key", "next")

    key: Hashable
    next: "_KeyedEntry | None"
    behind: bool

    def complete(self, results: list[Any]) -> None:
        if results is None:
            raise TypeError(_NO_RESULTS)
        first = self.results is None
        self.results = results
        if not first or self.behind:
            return
        segment = self.segment
        entry = self  # it may leave, and so may later entries that waited only for it
        while True:
            del segment.blocked[entry]
            segment.ready.append(entry)
            following = entry.next
            if following is None:
                del segment.tails[entry.key]
                return
            # otherwise a reference to an entry would keep all later entries of its key alive
            entry.next = None
            following.behind = False
            if following.results is None:
                return
            entry = following


class KeyOrderedStreamElementQueue(UnorderedStreamElementQueue):
    """Between two watermarks, records of a key leave in input order; other keys may overtake.

    Args:
        capacity: Places, at least 1, for records and watermarks until they are emitted.
        key: Gives the key of a value.
    """

    _entry_type = _KeyedEntry
    _lines_up = True

    def __init__(self, capacity: int, key: Callable[[Any], Hashable]) -> None:
        super().__init__(capacity)
        self._key = key

    def _line_up(self, entry: _KeyedEntry) -> None:  # type: ignore[override]
        """Append the entry after its key's last entry. If `key` raises, nothing changes."""
        entry.key = key = self._key(entry.element.value)
        entry.next = None
        tails = entry.segment.tails
        before = tails.get(key)
        entry.behind = before is not None
        if before is not None:
            before.next = entry
        tails[key] = entry
