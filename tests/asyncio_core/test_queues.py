"""The promises of the three queues beyond the recorded traces: KEY_ORDERED against the plainest
model, and misuse.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncio_core import (
    KeyOrderedStreamElementQueue,
    OrderedStreamElementQueue,
    StreamRecord,
    UnorderedStreamElementQueue,
    Watermark,
)
from tests.support.examples import examples

QUEUES = [
    OrderedStreamElementQueue,
    UnorderedStreamElementQueue,
    lambda capacity: KeyOrderedStreamElementQueue(capacity, key=lambda value: value % 3),
]


def emit_all(queue):
    emitted = []
    while queue.has_completed_elements():
        queue.emit_completed_element(emitted.append)
    return emitted


class PlainQueue:
    """A list of [element, results or None, place in the order of completion], searched from the
    front.
    """

    def __init__(self, capacity, mode):
        self.capacity = capacity
        self.mode = mode
        self.lines = []
        self.completions = 0

    def try_put(self, element):
        if len(self.lines) == self.capacity:
            return None
        line = [element, [] if isinstance(element, Watermark) else None, None]
        self.lines.append(line)
        return line

    def complete(self, line, results):
        if line[1] is None:
            self.completions += 1
            line[2] = self.completions
            self.settle(line)
        line[1] = results

    def settle(self, line):
        """KEY_ORDERED: a record that frees later ones of its key takes its turn before them."""
        if self.mode != "key":
            return
        before, after = self.of_key(line)
        if all(other[1] is not None for other in before):
            for other in after:
                if other[1] is None:
                    break
                self.completions += 1
                other[2] = self.completions

    def of_key(self, line):
        segment = self.segment_of(line)
        mates = [other for other in segment if other[0].value % 3 == line[0].value % 3]
        place = [other is line for other in mates].index(True)
        return mates[:place], mates[place + 1 :]

    def segment_of(self, line):
        place = [other is line for other in self.lines].index(True)
        start = max(
            [i + 1 for i in range(place) if isinstance(self.lines[i][0], Watermark)], default=0
        )
        end = min(
            [i for i in range(place, len(self.lines)) if isinstance(self.lines[i][0], Watermark)],
            default=len(self.lines),
        )
        return self.lines[start:end]

    def next(self):
        if not self.lines:
            return None
        if isinstance(self.lines[0][0], Watermark):
            return self.lines[0]
        if self.mode == "ordered":
            return self.lines[0] if self.lines[0][1] is not None else None
        ready = [line for line in self.segment_of(self.lines[0]) if line[1] is not None]
        if self.mode == "key":
            ready = [
                line
                for line in ready
                if all(other[1] is not None for other in self.of_key(line)[0])
            ]
        return min(ready, key=lambda line: line[2], default=None)

    def emit(self):
        line = self.next()
        if line is None:
            return []
        self.lines = [other for other in self.lines if other is not line]
        if isinstance(line[0], Watermark):
            return [line[0]]
        return [StreamRecord(result, line[0].timestamp) for result in line[1]]


OPERATIONS = st.lists(
    st.one_of(
        st.just(("record",)),
        st.just(("record",)),
        st.just(("watermark",)),
        st.tuples(st.just("complete"), st.integers(0, 30), st.integers(0, 2)),
        st.tuples(st.just("complete"), st.integers(0, 3), st.integers(0, 2)),
        st.just(("emit",)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("mode", ["ordered", "unordered", "key"])
@examples(150)
@given(operations=OPERATIONS, capacity=st.integers(1, 12))
def test_a_queue_agrees_with_a_model_that_searches_a_list(mode, operations, capacity):
    queue = dict(zip(["ordered", "unordered", "key"], QUEUES, strict=True))[mode](capacity)
    model = PlainQueue(capacity, mode)
    pairs = []
    for number, operation in enumerate(operations):
        if operation[0] in {"record", "watermark"}:
            element = (
                StreamRecord(number, number) if operation[0] == "record" else Watermark(number)
            )
            entry, line = queue.try_put(element), model.try_put(element)
            assert (entry is None) == (line is None)
            if entry is not None and operation[0] == "record":
                pairs.append((entry, line))
        elif operation[0] == "complete" and pairs:
            entry, line = pairs[-1 - operation[1] % len(pairs)]
            results = [number * 100 + k for k in range(operation[2])]
            still_inside = any(other is line for other in model.lines)
            entry.complete(results)
            if still_inside:
                model.complete(line, results)
        elif operation[0] == "emit":
            emitted = []
            queue.emit_completed_element(emitted.append)
            assert emitted == model.emit()
        assert len(queue) == len(model.lines)
        assert queue.is_empty() == (not model.lines)
        assert queue.has_completed_elements() == (model.next() is not None)
        values = queue.values()
        assert sorted(map(repr, values)) == sorted(repr(line[0]) for line in model.lines)
        order = [line[0] for line in model.lines]
        assert [v for v in values if isinstance(v, Watermark)] == [
            e for e in order if isinstance(e, Watermark)
        ]
        if mode == "ordered":
            assert values == order
    one_by_one, at_once = emit_all(queue), []
    while model.next() is not None:
        at_once += model.emit()
    assert one_by_one == at_once


@examples(100)
@given(operations=OPERATIONS)
@pytest.mark.parametrize("make", QUEUES)
def test_emitting_all_entries_at_once_equals_emitting_them_one_by_one(make, operations):
    queues = [make(20), make(20)]
    entries = [[], []]
    emitted = [[], []]
    for number, operation in enumerate(operations):
        for queue, own in zip(queues, entries, strict=True):
            if operation[0] == "record":
                own.append(queue.try_put(StreamRecord(number)))
            elif operation[0] == "watermark":
                queue.try_put(Watermark(number))
            elif (
                operation[0] == "complete" and own and own[-1 - operation[1] % len(own)] is not None
            ):
                own[-1 - operation[1] % len(own)].complete([number] * operation[2])
        while queues[0].has_completed_elements():
            queues[0].emit_completed_element(emitted[0].append)
        queues[1].emit_all_completed(emitted[1].append)
        assert emitted[0] == emitted[1]
        assert len(queues[0]) == len(queues[1])


@pytest.mark.parametrize("make", QUEUES)
@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, None, "7"])
def test_a_capacity_below_one_or_not_an_integer_is_refused(make, capacity):
    with pytest.raises(ValueError, match="capacity"):
        make(capacity)


@pytest.mark.parametrize("make", QUEUES)
def test_only_records_and_watermarks_enter(make):
    with pytest.raises(TypeError, match="StreamRecord and Watermark"):
        make(2).try_put("a bare value")


@pytest.mark.parametrize("make", QUEUES)
def test_misused_entries_raise_and_change_nothing(make):
    queue = make(4)
    record, watermark = queue.try_put(StreamRecord(1)), queue.try_put(Watermark(5))
    with pytest.raises(TypeError, match="None"):
        record.complete(None)
    with pytest.raises(RuntimeError, match="complete from birth"):
        watermark.complete([])
    assert not queue.has_completed_elements()
    assert queue.values() == [StreamRecord(1), Watermark(5)]


@pytest.mark.parametrize("make", QUEUES)
def test_second_completion_replaces_the_results_until_emission(make):
    queue = make(4)
    entry = queue.try_put(StreamRecord(1, 7))
    entry.complete([10])
    entry.complete([11, 12])
    assert emit_all(queue) == [StreamRecord(11, 7), StreamRecord(12, 7)]
    entry.complete([13])
    assert not queue.has_completed_elements()
    assert queue.is_empty()


def test_key_ordered_holds_a_finished_record_only_behind_an_open_record_of_its_key():
    queue = KeyOrderedStreamElementQueue(9, key=lambda value: value[0])
    first, second, other = (queue.try_put(StreamRecord(value)) for value in ("a1", "a2", "b1"))
    second.complete(["a2"])
    assert not queue.has_completed_elements()
    other.complete(["b1"])
    first.complete(["a1"])
    assert [record.value for record in emit_all(queue)] == ["b1", "a1", "a2"]


def test_key_ordered_forgets_a_key_whose_records_have_left():
    queue = KeyOrderedStreamElementQueue(9, key=lambda value: value)
    for value in range(1000):
        queue.try_put(StreamRecord(value)).complete([value])
        emit_all(queue)
    assert not queue._segments[0].tails


def test_a_key_function_that_raises_leaves_the_queue_unchanged():
    queue = KeyOrderedStreamElementQueue(2, key=lambda value: 1 // value)
    with pytest.raises(ZeroDivisionError):
        queue.try_put(StreamRecord(0))
    assert queue.is_empty()
    assert queue.try_put(StreamRecord(1)) is not None
    assert queue.values() == [StreamRecord(1)]
