"""`dead-letters`: finds dead letters, also of held-back days, which no table lists, by reason."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.arrow_values import readable_rows
from jobs.commands.replaying.replay import held_back_letters, published_letters, removed_letters
from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.ledger.declared_folder import declared_folder
from jobs.ledger.keys import HIDDEN as HASHED
from jobs.ledger.keys import masked_json
from jobs.ledger.scan import records_of
from jobs.schema.facts import Facts
from jobs.schema.personal import http_status
from jobs.tables.delta.asked_keys import runs_in_table
from jobs.tables.records import run_records

WITH_DIGIT = re.compile(r"[\w-]*\d[\w-]*(?:[.,:][\w-]*\d[\w-]*)*")  # a generated id, or a number
SHORTEST = 3  # characters of a part of a key that is taken out of a reason


@dataclass(frozen=True)
class DayLetters:
    """The dead letters of a run of a day.

    Attributes:
        day: The day.
        run_id: The run.
        state: The run's state.
        rows: The letters.
        removed: How many there were in files that `vacuum` removed.
    """

    day: str
    run_id: str
    state: str
    rows: list[dict[str, Any]]
    removed: int


@dataclass(frozen=True)
class LetterGroup(Facts):
    """Dead letters of a lookup with the same status and reason."""

    lookup: str
    status: str
    reason: str  # without the key, generated ids and numbers
    letters: int
    held_back: int  # of them, in held-back days
    days: tuple[str, ...]
    sample: dict[str, Any]  # a letter of the newest day, as `--csv` has it; personal values ***
    answer: str | None  # stored for its key, raw; None: none, or it is personal


def find_dead_letters(
    enrichment: Enrichment, day: str | None = None, where: str = ""
) -> list[DayLetters]:
    """Return by day the letters that a replay would complete: of the held-back or published run.

    Args:
        enrichment: The enrichment.
        day: Only this day; None for all whose records are here.
        where: Only letters with this text in their reason, in any case.

    Raises:
        DeclarationError: `day` has no run, or the files of its held-back run are removed.
    """
    name, output = enrichment.name, enrichment.output.path
    run_records.fetch(name, output)
    records = [record for record in run_records.load(name, day) if record.state != "written"]
    last = {record.facts.day: record for record in records}
    if day is not None and not last:
        raise DeclarationError(
            f"{name}: {day} was never run to its end: it has no dead letters. Run it."
        )
    found = []
    # rows of several batches of a stream have letters of several runs
    has_letters = any(
        record.state != "held back" and record.dead_letters for record in last.values()
    )
    published, unknown = runs_in_table(enrichment) if has_letters else (set(), set())
    for record_day, record in last.items():
        rows: list[dict[str, Any]] = []
        if record.state == "held back":
            rows = [row for batch in held_back_letters(record) for row in readable_rows(batch)]
        elif record.dead_letters:
            rows = readable_rows(published_letters(enrichment, record_day, published, unknown))
        removed = record.dead_letters if record.state == "held back" and not rows else 0
        if removed and day is not None:
            raise DeclarationError(f"{name}: {removed_letters(record)}")
        rows = [
            row
            for row in rows
            if where.lower() in f"{_reason(enrichment, row)}\n{row['_error']}".lower()
        ]
        found.append(DayLetters(record_day, record.facts.run_id, record.state, rows, removed))
    return found


def reason(letter: Mapping[str, Any]) -> str:
    """Return a letter's error without its key, and with # for each word that has a digit."""
    error = letter["_error"] or ""
    status = http_status(error)
    text = error[len(status) :]
    parts = json.loads(letter["_key"]) if letter["_key"] else []
    for part in sorted((part for part in parts if isinstance(part, str)), key=len, reverse=True):
        text = text.replace(part, "<key>") if len(part) >= SHORTEST else text
    return status + WITH_DIGIT.sub("#", text)


def _reason(enrichment: Enrichment, letter: Mapping[str, Any]) -> str:
    """Return the reason; of a personal key, which an error may repeat, only the HTTP status."""
    if _is_personal(enrichment, letter):
        return http_status(letter["_error"])
    return reason(letter)


def _is_personal(enrichment: Enrichment, letter: Mapping[str, Any]) -> bool:
    """Return whether the key is personal, as declared now or when the letter was written."""
    return (letter["_key"] or "").startswith(HASHED) or any(
        lookup.name == letter["_lookup"] and enrichment.has_personal_key(lookup)
        for lookup in enrichment.lookups
    )


def group_letters(enrichment: Enrichment, found: Iterable[DayLetters]) -> list[LetterGroup]:
    """Return the letters by lookup, status and reason, the largest group first.

    Raises LedgerError if the stored answers of the samples cannot be read.
    """
    groups: dict[tuple[str, str, str], list[tuple[DayLetters, dict[str, Any]]]] = {}
    for day in found:
        for row in day.rows:
            group = row["_lookup"], row["_status"], _reason(enrichment, row)
            groups.setdefault(group, []).append((day, row))
    grouped = [
        LetterGroup(
            *group,
            letters=len(letters),
            held_back=sum(day.state == "held back" for day, _ in letters),
            days=tuple(dict.fromkeys(day.day for day, _ in letters)),
            sample=shown_letter(enrichment, letters[-1][1]),
            answer=_stored_answer(enrichment, letters[-1][1]),
        )
        for group, letters in groups.items()
    ]
    return sorted(grouped, key=lambda group: (-group.letters, group.lookup, group.reason))


def shown_letter(enrichment: Enrichment, letter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a letter with *** for personal values, and for an error that may repeat them."""
    personal = set(enrichment.personal_columns)
    if _is_personal(enrichment, letter):
        personal.add("_error")
        if not (letter["_key"] or "").startswith(HASHED):  # pii was declared later
            personal.add("_key")
    return {name: masked_json(name, value, personal) for name, value in letter.items()}


def _stored_answer(enrichment: Enrichment, letter: Mapping[str, Any]) -> str | None:
    """Return the newest raw answer that the ledger has for the key of a letter."""
    lookup = next(
        (declared for declared in enrichment.lookups if declared.name == letter["_lookup"]), None
    )
    folder = None if lookup is None else declared_folder(enrichment, lookup)
    if lookup is None or folder is None or not letter["_key"]:
        return None
    if _is_personal(enrichment, letter):
        return None
    records = records_of(folder, [letter["_key"]]).to_pylist()
    return next((record["response"] for record in reversed(records) if record["response"]), None)
