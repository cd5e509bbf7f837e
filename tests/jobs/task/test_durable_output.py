"""When finished batches hurry the ledger, and when they wait for its own pace."""

import queue
import threading

import pyarrow as pa
import pytest

from jobs.task import durable_output
from jobs.task.durable_output import durable_batches
from jobs.task.threads.read_ahead import InputWindow

TEN_ROWS = pa.record_batch({"a": range(10)})


class Point:
    """A safe point that is reached when somebody waits for it, and not before."""

    def __init__(self):
        self.reached = False
        self.hurried = threading.Event()

    def wait(self):
        self.reached = True
        self.hurried.set()


@pytest.fixture
def full_window(wait_for):
    """Makes a window that has so many rows, and a reader who waits for room."""

    def made(rows):
        window = InputWindow(rows, 1 << 30)
        window.take(rows, rows)
        threading.Thread(target=window.take, args=(10, 10), daemon=True).start()
        wait_for(lambda: window.is_full)
        return window

    return made


@pytest.fixture
def leaving(monkeypatch):
    """Gives what leaves, in a thread of its own: leaving(finished, window)."""
    monkeypatch.setattr(durable_output, "LOOK_EVERY", 0.001)
    threads = []

    def begin(finished, window):
        left = []
        threads.append(
            threading.Thread(target=lambda: left.extend(durable_batches(finished, window)))
        )
        threads[-1].start()
        return left

    yield begin
    for thread in threads:
        thread.join()


def test_slow_batches_leave_the_ledger_its_pace_though_the_window_is_full(leaving, full_window):
    finished, window, point = queue.SimpleQueue(), full_window(40), Point()
    finished.put((TEN_ROWS, [point]))
    left = leaving(finished, window)
    assert not point.hurried.wait(0.1)  # a hundred looks
    assert left == []
    finished.put(None)
    assert point.hurried.wait(10)
    window.end()


def test_the_ledger_stores_at_once_when_half_of_a_full_window_waits(leaving, full_window):
    finished, window, points = queue.SimpleQueue(), full_window(40), [Point(), Point()]
    for point in points:
        finished.put((TEN_ROWS, [point]))
    leaving(finished, window)
    assert points[1].hurried.wait(10)
    finished.put(None)
    window.end()


def test_the_ledger_stores_at_once_when_many_rows_wait(leaving, monkeypatch):
    monkeypatch.setattr(durable_output, "ROWS_HELD", 20)
    finished, points = queue.SimpleQueue(), [Point(), Point(), Point()]
    finished.put((TEN_ROWS, points[:1]))
    leaving(finished, InputWindow(1000, 1 << 30))
    assert not points[0].hurried.wait(0.1)
    finished.put((TEN_ROWS, points[1:2]))
    assert points[1].hurried.wait(10)
    finished.put(None)


def test_a_batch_whose_answers_are_stored_leaves_at_once(leaving, wait_for):
    finished, point = queue.SimpleQueue(), Point()
    point.reached = True
    finished.put((TEN_ROWS, [point]))
    left = leaving(finished, InputWindow(1000, 1 << 30))
    wait_for(lambda: left)
    assert not point.hurried.is_set()
    finished.put(None)
