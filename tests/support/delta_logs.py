"""What other programs do to a Delta table, by its log: commits of single actions."""

import base64
import json
import struct
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable


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


RFC1924 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%#$"


def delete_by_vector(path, numbers):
    """Delete these rows of each file as Databricks does: the file stays, a vector marks them."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(numbers) - 1, 16)
    bitmap += b"".join(struct.pack("<H", number) for number in numbers)
    vector = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = vector + bytes(-len(vector) % 4)
    text = base64.b85encode(padded).decode().translate(str.maketrans(RFC1924, Z85))
    deletion = {
        "storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(vector),
        "cardinality": len(numbers),
    }  # fmt: skip
    table = DeltaTable(path)
    actions = [protocol(reads=["deletionVectors"])]
    for file in pa.table(table.get_add_actions()).to_pylist():
        values = {name: str(value) for name, value in file["partition"].items()}
        same = {"path": file["path"], "partitionValues": values, "dataChange": True}
        actions.append({"remove": same | {"deletionTimestamp": file["modification_time"]}})
        actions.append({"add": same | {
            "size": file["size_bytes"], "modificationTime": file["modification_time"],
            "stats": json.dumps({"numRecords": file["num_records"]}),
            "deletionVector": deletion,
        }})  # fmt: skip
    change_table(path, *actions)
