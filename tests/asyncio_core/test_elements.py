import copy
import pickle

import pytest

from asyncio_core import AsyncInvokeError, StreamRecord, Watermark


def test_elements_compare_by_value_and_never_equal_an_element_of_another_kind():
    assert StreamRecord("a", 1) == StreamRecord("a", 1)
    assert StreamRecord("a", 1) != StreamRecord("a", 2)
    assert StreamRecord("a") != StreamRecord("b")
    assert Watermark(1) == Watermark(1)
    assert Watermark(1) != Watermark(2)
    assert StreamRecord(1) != Watermark(1)
    assert StreamRecord(1, 2) != (1, 2)
    assert len({StreamRecord(1, 2), StreamRecord(1, 2), Watermark(2), Watermark(2)}) == 2


@pytest.mark.parametrize("element", [StreamRecord("a", 1), Watermark(1)])
def test_elements_are_immutable(element):
    with pytest.raises(AttributeError):
        element.timestamp = 2
    with pytest.raises(AttributeError):
        element.anything = 2
    with pytest.raises(AttributeError):
        del element.timestamp
    assert element.timestamp == 1


@pytest.mark.parametrize("element", [StreamRecord("a", 1), StreamRecord("a"), Watermark(1)])
def test_elements_survive_pickling_and_copying(element):
    assert pickle.loads(pickle.dumps(element)) == element
    assert copy.deepcopy(element) == element


def test_elements_can_be_matched_by_position():
    match StreamRecord("a", 1):
        case StreamRecord(value, timestamp):
            assert (value, timestamp) == ("a", 1)
    match Watermark(5):
        case Watermark(timestamp):
            assert timestamp == 5


def test_elements_print_as_they_are_built():
    assert repr(StreamRecord("a", 1)) == "StreamRecord(value='a', timestamp=1)"
    assert repr(Watermark(1)) == "Watermark(timestamp=1)"


def test_error_names_record_attempt_time_and_cause_and_survives_pickling():
    error = AsyncInvokeError(StreamRecord("N123", 5), 3, 1.25)
    error.__cause__ = OSError("refused")
    text = str(error)
    for part in ("'N123'", "timestamp 5", "attempt 3", "1.250 s", "OSError", "refused"):
        assert part in text
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.element, copied.attempts, copied.elapsed) == (error.element, 3, 1.25)


def test_error_shortens_a_long_value():
    assert len(str(AsyncInvokeError(StreamRecord("x" * 10_000), 1, 0.0))) < 500
