"""Finds where a column that must grow along the files decreases, and the rows at fault."""

from typing import Any

import numpy as np

from data_quality.check import Check
from data_quality.rows.task_rows import Faults, Flags, Floats, Places, TaskRows, whole_number
from jobs.schema.columns import SEGMENT


def gone_back(values: Floats, among: Places | None = None) -> Flags:
    """Return where a value is missing, or smaller than the value before it.

    Args:
        values: A column of a task's rows, in the order of the files.
        among: A number of the group of each row: only rows of a group are compared; None compares
            all rows.
    """
    return (_neighbour(values, 1, among) > values) | np.isnan(values)


def _neighbour(values: Floats, distance: int, among: Places | None) -> Floats:
    """Return for each row the value `distance` rows before it in its group (after it, if
    negative); NaN at the group's edge.
    """
    order = np.arange(len(values)) if among is None else np.argsort(among, kind="stable")
    groups = np.zeros(len(values), np.int64) if among is None else among[order]
    found, size = np.full(len(values), np.nan), abs(distance)
    is_same_group = groups[size:] == groups[:-size]
    target, source = (
        (slice(size, None), slice(None, -size))
        if distance > 0
        else (slice(None, -size), slice(size, None))
    )
    found[order[target]] = np.where(is_same_group, values[order[source]], np.nan)
    return found


def out_of_place(check: Check, rows: TaskRows, column: str, among: Places | None = None) -> Faults:
    """Return the rows to remove to restore the order: at each drop, the row before or after it.

    The row after the drop is late if the next row continues from before the drop; otherwise the row
    before is early.
    """
    value = rows.numbers(column)
    before, second_before = _neighbour(value, 1, among), _neighbour(value, 2, among)
    after, second_after = _neighbour(value, -1, among), _neighbour(value, -2, among)
    came_late = (before > value) & (np.isnan(after) | (after >= before) | (second_before > value))
    next_came_late = np.isnan(second_after) | (second_after >= value) | (before > after)
    came_soon = (after < value) & ~next_came_late

    def follows(place: int) -> dict[str, Any]:
        return {f"follows{column}": whole_number(before[place])}

    return check.faults(rows, came_late | came_soon | np.isnan(value), [SEGMENT, column], follows)
