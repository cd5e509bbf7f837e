"""Reads from the log of a published table which runs its commits published."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True)
class Publication:
    """A commit that made a run's files the day that readers see.

    Attributes:
        of_batch: Whether it published a batch of a stream, perhaps with other days.
    """

    version: int
    at: dt.datetime
    day: str
    run_id: str
    of_batch: bool


def publications(table: DeltaTable, newest: int | None = None) -> list[Publication]:
    """Return what the newest commits published, by default as far back as the log goes; oldest
    first.
    """
    return [
        Publication(
            commit["version"],
            dt.datetime.fromtimestamp(commit["timestamp"] / 1e3, dt.UTC),
            day,
            run_id,
            of_batch="tidegate.runs" in commit,
        )
        for commit in reversed(table.history(newest))
        for day, run_id in _committed_runs(commit).items()
    ]


def published_versions(table: DeltaTable) -> dict[str, int]:
    """Return the version of the commit that published each run, as far back as the log goes."""
    return {commit.run_id: commit.version for commit in publications(table)}


def _committed_runs(commit: Mapping[str, Any]) -> dict[str, str]:
    if "tidegate.runs" in commit:
        return dict(json.loads(commit["tidegate.runs"]))
    return {commit["tidegate.day"]: commit["tidegate.run_id"]} if "tidegate.day" in commit else {}
