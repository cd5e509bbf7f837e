"""The finding of a check, from which a verdict is made, with the rows that prove it."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from jobs.schema.columns import INPUT_SEQ, OUTPUT_SEQ, PARTITION, SOURCE_IDENTITY
from jobs.schema.records import DeclaredFacts

ROWS_OF_EVIDENCE = 10
_WORDS = 9  # columns of the first row in a sentence; the evidence table has all of them


@dataclass(frozen=True)
class Finding:
    """A check's result. `success` is None if it could not run; `sentence` is then the reason."""

    success: bool | None
    sentence: str
    unexpected_count: int = 0
    element_count: int = 0
    expected: str = ""
    evidence: tuple[dict[str, Any], ...] = ()

    @classmethod
    def not_run(cls, why: str) -> Self:
        return cls(success=None, sentence=f"not run: {why}")

    @classmethod
    def judged(
        cls, holds: str, wrong: str, unexpected_count: int, element_count: int, expected: str
    ) -> Self:
        """Returns a green finding with `holds` if nothing is unexpected, else red with `wrong`."""
        success = unexpected_count == 0
        return cls(success, holds if success else wrong, unexpected_count, element_count, expected)

    def with_evidence(self, rows: Iterable[dict[str, Any]], first: str = "first") -> Finding:
        """Returns the finding with these rows as evidence; its sentence describes the first row."""
        evidence = tuple(rows)
        if not evidence:
            return replace(self, evidence=())
        return replace(
            self, evidence=evidence, sentence=f"{self.sentence}; {first}: {in_words(evidence[0])}"
        )

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def identity_columns(declared: DeclaredFacts, names: Collection[str]) -> list[str]:
    """Returns the columns that identify a row in evidence: the declared row_id if all its columns
    exist, else source file and row.
    """
    declared_id = [name for name in declared.row_id if name in names]
    identity = (
        declared_id
        if declared.row_id and len(declared_id) == len(declared.row_id)
        else list(SOURCE_IDENTITY)
    )
    return [
        *identity,
        *(name for name in (PARTITION, INPUT_SEQ, OUTPUT_SEQ) if name not in identity),
    ]


def plain(value: Any) -> Any:
    """Converts a value for JSON: times in ISO 8601, types that JSON lacks as text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    if isinstance(value, dt.date):
        return value.isoformat()
    return str(value)


def in_words(row: dict[str, Any]) -> str:
    """Describes a row of evidence: its identity first, only the end of a path, and no lists."""
    short = {name.lstrip("_"): value for name, value in row.items() if value is not None}
    texts = [
        f"{name} {str(value).rsplit('/', 1)[-1]}"
        for name, value in short.items()
        if not isinstance(value, list | dict)
    ]
    return ", ".join(texts[:_WORDS])


def share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
