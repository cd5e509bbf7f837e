"""A published table with rules of other programs takes a day only if the day observes them."""

import json

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from jobs.tables.delta.table_rules import broken_rules
from tests.support.delta_logs import change_table, metadata, protocol

# of the Delta protocol: those that only writers need to know, and those of readers too
OF_WRITERS = [
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"),
    *("identityColumns", "rowTracking", "domainMetadata", "icebergCompatV1", "icebergCompatV2"),
    *("clustering", "inCommitTimestamp", "allowColumnDefaults", "materializePartitionColumns"),
    *("checkpointProtection", "of-next-year"),
]
OF_READERS = [
    *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"),
    *("variantType", "variantType-preview", "typeWidening", "typeWidening-preview"),
    "variantShredding-preview",
]


@pytest.fixture
def table(tmp_path):
    rows = pa.table({"k": [1], "x": [1.0], "date": ["2013-01-09"]})
    write_deltalake(tmp_path / "table", rows, partition_by=["date"])
    return tmp_path / "table"


def takes_a_commit(path):
    table = DeltaTable(path)
    try:
        table.create_write_transaction(
            [], mode="overwrite", schema=table.schema(), partition_by=["date"],
            commit_properties=CommitProperties(max_commit_retries=0),
        )  # fmt: skip
    except CommitFailedError:
        return False
    return True


@pytest.mark.parametrize(
    "rules",
    [
        *(protocol(feature) for feature in OF_WRITERS),
        *(protocol(reads=[feature]) for feature in OF_READERS),
        *(protocol(writer=version) for version in range(2, 7)),
    ],
    ids=lambda rules: str(rules["protocol"].get("writerFeatures", rules["protocol"])),
)
def test_a_table_feature_that_a_commit_would_refuse_is_refused_before_the_run(table, rules):
    change_table(table, rules)
    assert takes_a_commit(table) != bool([*broken_rules(DeltaTable(table))])


INVARIANT = json.dumps({"expression": {"expression": "x > 0"}})
RULES = {
    "does not let a day be replaced": ({"delta.appendOnly": "true"}, {}),
    "has the constraint warm, x > 0,": ({"delta.constraints.warm": "x > 0"}, {}),
    "has a column mapping": ({"delta.columnMapping.mode": "name"}, {
        name: {"metadata": {
            "delta.columnMapping.id": place, "delta.columnMapping.physicalName": name,
        }} for place, name in enumerate(("k", "x", "date"), 1)
    }),
    "computes x as k * 2": ({}, {"x": {"metadata": {"delta.generationExpression": "k * 2"}}}),
    "has an invariant of x": ({}, {"x": {"metadata": {"delta.invariants": INVARIANT}}}),
    "forbids null in x": ({}, {"x": {"nullable": False}}),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_an_unsupported_table_rule_is_named(table, rule):
    settings, columns = RULES[rule]
    change_table(table, metadata(table, settings, **columns), protocol(writer=5))
    (found,) = broken_rules(DeltaTable(table))
    assert found.startswith(rule)
