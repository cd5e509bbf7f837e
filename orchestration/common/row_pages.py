"""What the page of a published row and the page of a table's dead letters show."""

import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from jobs.commands.explaining.explain import explain
from jobs.commands.replaying.dead_letters import (
    LetterGroup,
    find_dead_letters,
    group_letters,
)
from jobs.declare.enrichment import Enrichment
from jobs.declare.values.calendar import require_day
from jobs.schema import columns as schema
from jobs.schema.personal import HIDDEN

DAY = "_day"  # in a query, beside the values of columns; no column of a table has this name


def describe_row(enrichment: Enrichment, query: Mapping[str, str]) -> dict[str, Any]:
    """Return where the cells of a published row come from; without values only the form.

    Args:
        enrichment: The enrichment.
        query: Values of columns of the row, and perhaps its day.

    Raises:
        TidegateError: As `explain` raises it.
    """
    wanted = {name: value for name, value in query.items() if name != DAY}
    day = query.get(DAY) or None
    every = enrichment.input.every
    found = (
        explain(enrichment, wanted, day=day and require_day(day, "day", every)) if wanted else None
    )
    asked = [*enrichment.input.row_id] or [*wanted] or [schema.SOURCE_ROW]
    return {
        "fields": [(name, query.get(name, "")) for name in asked],
        "day": day or (found.day if found else ""),
        "found": found,
        "link": _link,
    }


def _link(row: Mapping[str, Any], day: str) -> str:
    """Return the query of a row's page; empty if a value of the row is hidden or null."""
    if not row or any(value is None or value == HIDDEN for value in row.values()):
        return ""
    return urlencode({**row, DAY: day})


def describe_letters(enrichment: Enrichment, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the dead letters of a table by reason.

    Args:
        enrichment: The enrichment.
        query: `day` and `where`, as the options of `dead-letters`.

    Raises:
        TidegateError: As `find_dead_letters` and `group_letters` raise it.
    """
    day, where = query.get("day") or None, query.get("where", "")
    day = day and require_day(day, "day", enrichment.input.every)
    found = find_dead_letters(enrichment, day, where)
    return {
        "day": day or "",
        "where": where,
        "count": sum(len(one.rows) for one in found),
        "removed": [(one.day, one.removed) for one in found if one.removed],
        "groups": [_group(enrichment, group) for group in group_letters(enrichment, found)],
    }


def _group(enrichment: Enrichment, group: LetterGroup) -> dict[str, Any]:
    own = {name: value for name, value in group.sample.items() if name[0] != "_"}
    identity = {name: own.get(name) for name in enrichment.input.row_id}
    where = f" --where {shlex.quote(group.reason)}" if group.reason else ""
    return {
        "group": group,
        "row": identity or own,
        "key": group.sample.get("_key"),
        "error": group.sample.get("_error"),
        "replay": f"tidegate replay {enrichment.name}{where}",
        "link": "" if group.held_back else _link(identity, group.days[-1]),
    }
