"""The finding of a check, from which a verdict is made, with the rows that prove it."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from jobs.schema import columns as schema
from jobs.schema.columns import INPUT_SEQ, OUTPUT_SEQ, PARTITION, SOURCE_FILE, SOURCE_IDENTITY
from jobs.schema.personal import HIDDEN, http_status
from jobs.schema.records import DeclaredFacts
from jobs.wording import one_line

ROWS_OF_EVIDENCE = 10
OF_THE_TASK = (PARTITION, INPUT_SEQ, OUTPUT_SEQ)
_WORDS = 9  # columns of the first row in a sentence; the evidence table has all of them
LONGEST = 200  # characters of a value in a sentence


@dataclass(frozen=True)
class Finding:
    """A check's result.

    Attributes:
        success: None if the check could not run.
        sentence: The result for people; if the check could not run, the reason.
        unexpected_count: The number of elements, mostly rows, that break the rule.
        element_count: The number of elements that were judged.
        expected: The rule.
        evidence: The first rows that break the rule.
        lacks_history: The check found no earlier days to compare with. It then holds no day back;
            otherwise the first day would never be published.
    """

    success: bool | None
    sentence: str
    unexpected_count: int = 0
    element_count: int = 0
    expected: str = ""
    evidence: tuple[dict[str, Any], ...] = ()
    lacks_history: bool = False

    @classmethod
    def without_history(cls, why: str) -> Self:
        return cls(success=None, sentence=f"not run: {why}", lacks_history=True)

    @classmethod
    def not_run(cls, why: str) -> Self:
        return cls(success=None, sentence=f"not run: {why}")

    @classmethod
    def judged(
        cls, holds: str, wrong: str, unexpected_count: int, element_count: int, expected: str
    ) -> Self:
        """Return a green finding with `holds` if nothing is unexpected, else red with `wrong`."""
        success = unexpected_count == 0
        return cls(success, holds if success else wrong, unexpected_count, element_count, expected)

    def with_evidence(self, rows: Iterable[dict[str, Any]], declared: DeclaredFacts) -> Self:
        """Return the finding with these rows as evidence; its sentence describes the first row.

        Personal values are hidden: sentences also leave by webhooks.
        """
        evidence = tuple(without_personal(row, declared) for row in rows)
        if not evidence:
            return replace(self, evidence=())
        sentence = f"{self.sentence}; first: {in_words(evidence[0])}"
        return replace(self, evidence=evidence, sentence=sentence)


def personal_columns(declared: DeclaredFacts) -> set[str]:
    """Return the columns of personal values, and of errors that may repeat them, in lower case."""
    hidden = [lookup.name for lookup in declared.lookups if lookup.hidden_key]
    return {
        *declared.personal,
        *(column(name) for name in hidden for column in (schema.key, schema.error)),
    }


def names_personal(text: str, declared: DeclaredFacts) -> bool:
    """Return whether a text names a personal column, whose name may end with any character."""
    names = map(re.escape, personal_columns(declared))
    return any(re.search(rf"(?<!\w){name}(?!\w)", text.lower()) for name in names)


def without_personal(row: Mapping[str, Any], declared: DeclaredFacts) -> dict[str, Any]:
    """Return the row without personal values; an error that may repeat them becomes its status."""
    personal = personal_columns(declared)
    errors = {schema.error(lookup.name) for lookup in declared.lookups}

    def shown(name: str, value: Any) -> Any:
        if name.lower() not in personal or value is None:
            return value
        return http_status(value) or None if name in errors else HIDDEN

    return {name: shown(name, value) for name, value in row.items()}


def identity_columns(declared: DeclaredFacts, names: Collection[str]) -> list[str]:
    """Return the columns that identify a row in evidence: the declared row_id if all its columns
    exist and none is personal, else source file and row.
    """
    declared_id = [
        name for name in declared.row_id if name in names and name.lower() not in declared.personal
    ]
    identity = (
        declared_id
        if declared.row_id and len(declared_id) == len(declared.row_id)
        else list(SOURCE_IDENTITY)
    )
    return [*identity, *(name for name in OF_THE_TASK if name not in identity)]


def in_words(row: dict[str, Any]) -> str:
    """Describe a row of evidence for people, in a line: its identity first, the name of its file,
    the beginning of long values, no lists, and no numbers that a task gave it.
    """
    texts = [
        f"{name.lstrip('_')} "
        + one_line(str(value.rsplit("/", 1)[-1] if name == SOURCE_FILE else value), LONGEST)
        for name, value in row.items()
        if value is not None and not isinstance(value, list | dict) and name not in OF_THE_TASK
    ]
    return ", ".join(texts[:_WORDS])


def share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
