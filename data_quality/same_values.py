"""Values that every row has twice, in the input and in the files of the run: its carried columns, the keys asked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import cast

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it
from pyspark.sql.types import LongType, StructType

from data_quality.digests import Typed, digest, named
from data_quality.findings import ROWS_OF_EVIDENCE, Finding, plain, rows
from jobs import schema
from jobs.schema import (
    INPUT_SEQ,
    OUTPUT_SEQ,
    PARTITION,
    SOURCE_FILE,
    SOURCE_IDENTITY,
    SOURCE_ROW,
    DayFacts,
    LookupFacts,
)

UNCHANGED = "input_unchanged"
# what gives another value each time, or another one in another query
_FLEETING = re.compile(
    r"\b(current_date|current_timestamp|localtimestamp|current_time|current_user|session_user)\b|\bunix_timestamp\s*\(\s*\)"
    r"|\b(curdate|now|user|rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id"
    r"|spark_partition_id|input_file_\w+)\s*\(",
    re.IGNORECASE,
)


def keys_of(lookup: str) -> str:
    """What the finding about the keys in the audit is called."""
    return f"{lookup}__keys"


@dataclass(frozen=True)
class Same:
    """Values that are to be equal in each row. given: of the input; written: of the files, in the same order."""

    finding: str
    expected: str
    wrong: str  # how a sentence goes on after "3 rows "
    names: list[str] = field(default_factory=list)
    given: list[Typed] = field(default_factory=list)
    written: list[Typed] = field(default_factory=list)
    differs: str = ""  # in all rows, in words: a column is missing, or has another type
    why_not: str = ""  # judged

    def mark(self, values: list[Typed]) -> Column:
        """Of all rows together, whatever their order: other values in one row, another mark."""
        return F.bit_xor(digest([(F.col(SOURCE_ROW), LongType()), *values]))

    def found(self, rows_in: int, *, equal: bool, source: DataFrame, frame: DataFrame, facts: DayFacts) -> Finding:
        """equal: whether both have the same marks."""
        if self.why_not:
            return Finding.not_run(self.why_not)
        if self.differs:
            return Finding(False, self.differs, rows_in, rows_in, self.expected)
        columns = "1 column" if len(self.names) == 1 else f"{len(self.names)} columns"
        holds = Finding(True, f"{rows(rows_in)}, {columns} as in the input", 0, rows_in, self.expected)
        return holds if equal else self._named(holds, source, frame, facts)

    def _named(self, holds: Finding, source: DataFrame, frame: DataFrame, facts: DayFacts) -> Finding:
        """The rows that differ, of those that both have: rows lost or doubled are the business of every_row_once."""
        row_id = [name for name in facts.declared.row_id if name in source.columns and name not in SOURCE_IDENTITY]
        places = [name for name in (PARTITION, INPUT_SEQ, OUTPUT_SEQ) if name in frame.columns]
        given = source.select(*SOURCE_IDENTITY, *map(named, row_id), _one_by_one(self.given).alias("_given"))
        written = frame.select(
            spelled_once().alias(SOURCE_FILE), SOURCE_ROW, *places, _one_by_one(self.written).alias("_written")
        )
        other = [F.col("_given")[number] != F.col("_written")[number] for number in range(len(self.names))]
        wrong = given.join(written, list(SOURCE_IDENTITY)).where("_given != _written")
        counted = wrong.agg(F.count("*"), *map(F.count_if, other)).collect()[0]
        if not counted[0]:
            return holds
        in_words = [f"{name} in {count:,}" for name, count in zip(self.names, counted[1:], strict=True) if count]
        changed = F.concat_ws(", ", *(F.when(one, name) for one, name in zip(other, self.names, strict=True)))
        sample = wrong.orderBy(*SOURCE_IDENTITY, *places).limit(ROWS_OF_EVIDENCE)
        shown = sample.select(*map(named, row_id), changed.alias("differs"), *SOURCE_IDENTITY, *places)
        text = f"{rows(counted[0])} {self.wrong}: {', '.join(in_words[:5])}"
        finding = Finding(False, text, counted[0], holds.element_count, self.expected)
        return finding.with_evidence(plain(row.asDict(recursive=True)) for row in shown.collect())


def spelled_once() -> Column:
    """A local file as Spark spells it in one of its two ways."""
    return F.regexp_replace(SOURCE_FILE, "^file:/+", "file:/")


def _one_by_one(values: list[Typed]) -> Column:
    return F.array(*(digest([value]) for value in values))


def to_compare(source: DataFrame, frame: DataFrame, facts: DayFacts) -> list[Same]:
    """What the input and the files are to have in common, row by row."""
    keyed = [lookup for lookup in facts.declared.lookups if lookup.keys]
    return [_carried(source, frame), *(_keys(source, frame, lookup, facts) for lookup in keyed)]


def _carried(source: DataFrame, frame: DataFrame) -> Same:
    expected, wrong = "every carried value as in the input", "with another value than the input"
    there = {field.name.lower(): field for field in frame.schema.fields}
    names, given, written, differs = [], [], [], []
    for column in source.schema.fields:
        found = there.get(column.name.lower())
        if column.name in SOURCE_IDENTITY:
            continue
        if found is None:
            differs.append(f"the files have no column {column.name}")
        elif found.dataType.simpleString() != column.dataType.simpleString():
            kinds = f"{found.dataType.simpleString()}, in the input {column.dataType.simpleString()}"
            differs.append(f"{column.name} is {kinds}")
        else:
            names.append(column.name)
            given.append((F.col(named(column.name)), column.dataType))
            written.append((F.col(named(found.name)), found.dataType))
    return Same(UNCHANGED, expected, wrong, names, given, written, differs="; ".join(differs))


def _keys(source: DataFrame, frame: DataFrame, lookup: LookupFacts, facts: DayFacts) -> Same:
    """The audit's key against what the declared expressions give for the row of the input."""
    expected = "the key in the audit is what " + ", ".join(f"{name} = {text}" for name, text in lookup.keys) + " gives"
    same = Same(keys_of(lookup.name), expected, "with another key than declared for the row")
    audit = schema.key(lookup.name)
    if audit not in frame.columns:
        return Same(same.finding, expected, "", why_not=f"the files have no column {audit}")
    if not facts.input_files:
        return same
    kinds = {part.name: part.dataType for part in cast("StructType", frame.schema[audit].dataType).fields}
    for name, expression in lookup.keys:
        if _FLEETING.search(expression):
            continue
        if name not in kinds:
            return Same(same.finding, expected, "", differs=f"{audit} has no {name}")
        try:
            kind = source.select(F.expr(expression).alias(name)).schema[name].dataType
        except AnalysisException as error:
            return Same(same.finding, expected, "", why_not=f"Spark refuses keys.{name}: {str(error).splitlines()[0]}")
        same.names.append(name)
        same.given.append((F.expr(expression), kind))
        same.written.append((F.col(audit).getField(name), kinds[name]))
    return same
