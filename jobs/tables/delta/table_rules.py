"""Finds rules that other programs gave a published table and that a run would break.

A run commits files that are written already, so it computes no column, and checks no constraint.
"""

from collections.abc import Iterator

from deltalake import DeltaTable, Field

APPEND_ONLY = "delta.appendOnly"
CONSTRAINT = "delta.constraints."
MAPPING = "delta.columnMapping.mode"
# features that a commit of ours observes, or that ask nothing of it without the rules below
OBSERVED = {
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"),
    *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"),
    *("variantType", "variantType-preview"),
}
IDENTITY_COLUMNS = 6  # the writer version that brings them; the version 7 lists its features


def broken_rules(table: DeltaTable) -> Iterator[str]:
    """Yield each rule of a table that a run would break, with the cure."""
    protocol, settings = table.protocol(), table.metadata().configuration
    features = set(protocol.writer_features or ()) - OBSERVED
    if protocol.min_writer_version == IDENTITY_COLUMNS:
        features.add("identityColumns")
    for feature in sorted(features):
        yield f"has the Delta feature {feature}, which a run does not write. Drop the feature"
    if settings.get(APPEND_ONLY, "").lower() == "true":
        yield f"does not let a day be replaced ({APPEND_ONLY} is true). Set it to false"
    if (mapping := settings.get(MAPPING, "none")) != "none":
        yield (
            f"has a column mapping ({MAPPING} is {mapping!r}): readers would find null in the "
            "columns of a run. Set it to none"
        )
    for name, condition in settings.items():
        if name.startswith(CONSTRAINT):
            yield (
                f"has the constraint {name.removeprefix(CONSTRAINT)}, {condition}, which a run "
                "does not check. Drop it, and declare an expectation instead"
            )
    for field in table.schema().fields:
        yield from _rules_of_column(field)


def _rules_of_column(field: Field) -> Iterator[str]:
    if expression := field.metadata.get("delta.generationExpression"):
        yield f"computes {field.name} as {expression}, which a run does not. Drop the column"
    if "delta.invariants" in field.metadata:
        yield f"has an invariant of {field.name}, which a run does not check. Drop it"
    if not field.nullable:
        yield (
            f"forbids null in {field.name}, which a run does not check. Drop NOT NULL, and "
            "declare an expectation instead"
        )
