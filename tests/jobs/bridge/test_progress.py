"""What the driver tells while keys are asked first, and then the rows: nothing that was called is forgotten."""

from dataclasses import replace

from jobs.bridge.progress import ProgressListener, ProgressSender, TaskProgress
from tests.jobs.bridge.test_partition import Function, batch, collected, lookup, plan


def test_calls_made_for_keys_are_counted_on_while_the_rows_begin_from_nothing(wait_for):
    told = []
    with ProgressListener("127.0.0.1", 1000, told.append) as listener:
        sender = ProgressSender(listener.address)
        listener.asking_keys(50)
        keys = TaskProgress(0, 0, rows=50, calls=52, retries=2, unit="keys")
        keys.answered([100_000])
        sender.send(keys)
        wait_for(lambda: listener.figures()["calls"] == 52)
        assert {name: listener.figures()[name] for name in ("rows", "rows_total", "unit")} == {
            "rows": 50, "rows_total": 50, "unit": "keys",
        }  # fmt: skip
        listener.asking_keys(None)
        sender.send(TaskProgress(1, 0, rows=30, unit="keys"))  # a word of the phase before that comes late
        sender.send(TaskProgress(0, 0, rows=400))
        wait_for(lambda: listener.figures()["rows"] == 400)
        figures = listener.figures()
        assert (figures["rows_total"], figures["unit"]) == (1000, "rows")
        assert (figures["calls"], figures["retries"]) == (52, 2)
        assert figures["p50_ms"] is not None
        sender.close()


def test_the_last_word_of_a_task_counts_all_its_rows(wait_for):
    with ProgressListener("127.0.0.1", 30, lambda _: None) as listener:
        quick = replace(plan(lookup(Function())), progress=listener.address)  # ends before the first word is due
        assert collected(quick, [batch(0, 30)]).num_rows == 30
        wait_for(lambda: listener.figures()["rows"] == 30)
