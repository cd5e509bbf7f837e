"""`tidegate.enrich`: puts answers beside a frame's rows, with a progress bar for people."""

import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from jobs.declare.enrichment import Enrichment
from jobs.wording import counted
from tidegate.terminal import CLEAR_LINE

Frame = TypeVar("Frame")

WIDTH = 24  # of the bar


def enrich(
    frame: Frame,
    enrichment: Enrichment,
    *,
    max_calls: int | None = None,
    max_cost: str | None = None,
) -> Frame:
    """Call an enrichment's lookups for a frame's rows, and return it with further columns.

    It makes all calls before it returns, for each key once, with the ledger, limits and budgets of
    the declaration; nothing is published. It does not call for answers in the ledger, also when it
    is called again after Ctrl-C or an error.

    Args:
        frame: A DataFrame of Spark, pandas or Polars, or a Table or RecordBatch of Arrow.
        enrichment: The declaration.
        max_calls: Stop when the run has made so many calls; the same call continues later.
        max_cost: The same for what the calls cost, as "5 USD".

    Returns:
        A frame of the same kind, with the same rows, columns and index. Per lookup it also has the
        columns of `returns`, `<lookup>_status` and `<lookup>_answered_at`.

    Raises:
        DeclarationError: The frame does not fit the declaration; nothing was called.
        RunStopped: A service is down or denies access, or a cap is reached.
        TidegateError: A row failed whose policy is "fail", or the ledger cannot be written.
    """
    from jobs.commands.frames.enrich_frame import enrich_frame  # declarations load without it
    from jobs.run.plan.options import RunOptions

    rules = RunOptions(max_calls=max_calls, max_cost=max_cost)
    bar = ProgressBar(is_shown=is_watched())
    try:
        enriched: Frame = enrich_frame(frame, enrichment, rules, bar.show)
    except KeyboardInterrupt:
        bar.end("; interrupted: what was answered is in the ledger, and the same call goes on")
        raise
    except BaseException:
        bar.end()
        raise
    bar.end()
    return enriched


def is_watched() -> bool:
    """Return whether stderr is a terminal, or the output of a notebook's cell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return sys.stderr.isatty() or hasattr(shell, "kernel")


class ProgressBar:
    """A line on stderr that is updated in place, if a person can see it."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._line = ""

    def show(self, event: Mapping[str, Any]) -> None:
        """Show an event of progress."""
        if not self._is_shown:
            return
        self._line = bar_line(event)
        print(f"{CLEAR_LINE}{self._line}", end="", file=sys.stderr, flush=True)

    def end(self, why: str = "") -> None:
        """Leave the last line."""
        if self._line:
            print(f"{CLEAR_LINE}{self._line}{why}", file=sys.stderr, flush=True)


def bar_line(event: Mapping[str, Any]) -> str:
    """Return the line of an event: share that is done, calls, cost so far, and time left."""
    done, total = event["rows"], event["rows_total"]
    parts = [f"{done:,} of {total:,} {event['unit']}" if total else f"{done:,} {event['unit']}"]
    parts.append(counted(event["calls"], "call"))
    if event["cost"]:
        parts.append(event["cost"])
    if event["left_s"]:
        parts.append(f"{event['left_s']:,.0f} s left")
    filled = round(WIDTH * min(1.0, done / total)) if total else 0
    return f"[{'=' * filled}{' ' * (WIDTH - filled)}] {', '.join(parts)}"
