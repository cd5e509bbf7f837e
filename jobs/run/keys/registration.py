"""Registers a run at the ledgers that it uses, sends its heartbeats, and looks for other runs."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from jobs.errors import LedgerError
from jobs.ledger.generations import COMPACTED
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.store import PARTS
from jobs.ledger.working_folders import announce, remove_abandoned, remove_gone, remove_run

BEAT_EVERY = 10.0  # s

_log = logging.getLogger("tidegate.ledger")


class LedgerContent(NamedTuple):
    """The content of a ledger after the run had registered. others: other registered runs."""

    others: tuple[str, ...]
    has_answers: bool


@contextmanager
def registered(plans: Sequence[LedgerPlan]) -> Iterator[None]:
    """Register the run at all these ledgers before the body, and remove its folders at the end.

    Of two runs at least one sees the other, because each registers before it looks. While the body
    runs, a thread writes heartbeats. Raises LedgerError.
    """
    with ExitStack() as stack:
        for plan in plans:
            stack.callback(unregister, plan)  # first, because a failed `announce` may leave a file
            announce(plan.open_folder(), plan.run_id)
        ended = threading.Event()
        thread = threading.Thread(
            target=_beat, args=(plans, ended), name="ledger beat", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()  # before `unregister`: a heartbeat after it would register the run again


def _beat(plans: Sequence[LedgerPlan], ended: threading.Event) -> None:
    while not ended.wait(BEAT_EVERY):
        for plan in plans:
            # a later heartbeat may succeed: a run counts as gone only after days without any
            with suppress(LedgerError):
                announce(plan.open_folder(), plan.run_id)


def look_at_ledger(plan: LedgerPlan) -> LedgerContent:
    """Delete the folders of dead runs, then return what the ledger of this run contains.

    Raises LedgerError.
    """
    folder = plan.open_folder()
    files = folder.files()
    others = remove_gone(folder, files, plan.run_id)
    others -= remove_abandoned(folder, files)
    start = len(folder.path) + 1
    has_answers = any(info.path.startswith((f"{PARTS}/", f"{COMPACTED}/"), start) for info in files)
    return LedgerContent(tuple(sorted(others)), has_answers)


def unregister(plan: LedgerPlan) -> None:
    """Remove this run's folder; warn of files that stay for the ledger's clean-up."""
    folder = plan.open_folder()
    try:
        remove_run(folder, plan.run_id)
    except LedgerError as error:
        _log.warning("ledger %s: run %s left files behind: %s", folder.path, plan.run_id, error)
