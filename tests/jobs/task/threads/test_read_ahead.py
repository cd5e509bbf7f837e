"""The reader's lead in bytes stays within its limit, whatever the sizes of the rows."""

import itertools
import random
import threading

import pytest

from jobs.task.threads.read_ahead import InputWindow

LIMIT = 10_000  # bytes


@pytest.mark.parametrize("seed", range(10))
def test_rows_of_any_sizes_fill_the_window_by_their_bytes(wait_for, seed):
    draw = random.Random(seed)
    sizes = [1] * 300 + [draw.choice([1, 50, 900]) for _ in range(100)]  # of the rows of a batch
    batches = [(rows := draw.randrange(1, 9), rows * size) for size in sizes]
    window, taken = InputWindow(1 << 40, LIMIT), []

    def read():
        for rows, size in batches:
            window.take(rows, size)
            taken.append([size // rows] * rows)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    given = 0
    while reader.is_alive():
        wait_for(lambda: window.is_full or not reader.is_alive())
        ahead = list(itertools.chain(*taken))[given:]
        if window.is_full:
            assert LIMIT <= sum(ahead) < LIMIT + 9 * 900
        assert window.rows == len(ahead)
        back = draw.randrange(1, len(ahead) + 1)
        while sum(ahead[back:]) >= LIMIT:  # else the reader does not move, and is_full stays
            back += 1
        given += back
        count = len(taken)
        window.give_back(back)
        wait_for(lambda before=count: len(taken) > before or not reader.is_alive())
    reader.join(10)
    window.give_back(window.rows)
    assert window.take(1, LIMIT)
