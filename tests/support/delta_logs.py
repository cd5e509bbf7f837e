"""What other programs do to a Delta table, by its log: commits of single actions."""

import json
from pathlib import Path


def change_table(path, *actions):
    """Commit these actions on top of the last version."""
    log = Path(path, "_delta_log")
    version = int(max(log.glob("*.json")).stem) + 1
    info = {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "ALTER TABLE"}}
    lines = map(json.dumps, [info, *actions])
    (log / f"{version:020d}.json").write_text("\n".join(lines))


def metadata(path, settings=(), **columns):
    """The action that gives a table these settings, and columns these members."""
    lines = [
        json.loads(line)
        for file in sorted(Path(path, "_delta_log").glob("*.json"))
        for line in file.read_text().splitlines()
    ]
    changed = [line["metaData"] for line in lines if "metaData" in line][-1]
    schema = json.loads(changed["schemaString"])
    for field in schema["fields"]:
        field.update(columns.get(field["name"], {}))
    return {"metaData": changed | {
        "schemaString": json.dumps(schema),
        "configuration": changed["configuration"] | dict(settings),
    }}  # fmt: skip


def protocol(*features, reads=(), writer=7):
    if writer < 7:
        return {"protocol": {"minReaderVersion": 2, "minWriterVersion": writer}}
    named = {"minWriterVersion": 7, "writerFeatures": [*features, *reads]}
    if reads:
        return {"protocol": {"minReaderVersion": 3, "readerFeatures": [*reads], **named}}
    return {"protocol": {"minReaderVersion": 1, **named}}
