"""No file of the ledger contains a key that was forgotten."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.declared import LEDGER
from tests.simulation.night_at_work import scheduler
from tests.simulation.night_facts import text_of
from tests.simulation.storage import Storage


def check_forgotten(
    storage: Storage, lookup: str, keys: Sequence[str], *, is_compacting: bool
) -> None:
    """Check that no file of the ledger contains a forgotten key. A file that a compaction is still
    writing may (docs/ledger.md).
    """
    texts = {text_of((key,)) for key in keys}
    for path, file in storage.files.items():
        if not path.startswith(f"{LEDGER}/{lookup}/") or _is_unfinished_part_of_a_run(
            storage, path, file.data
        ):
            continue
        found = _keys_in(path, file.data, texts)
        if found and is_compacting and _is_of_no_generation(storage, path):
            is_compacting = False
        elif found:
            scheduler().fail(f"forgotten and still there: {sorted(found)[:3]} in {path}")


def _is_of_no_generation(storage: Storage, path: str) -> bool:
    """Whether a change wrote the file that is not complete: no reader knows the file."""
    folder, compacted, name = path.partition("/compacted/")
    return bool(compacted) and not any(
        name.encode() in file.data
        for other, file in storage.files.items()
        if other.startswith(folder) and other.endswith("/complete.json")
    )


def _is_unfinished_part_of_a_run(storage: Storage, path: str, data: bytes) -> bool:
    """Whether a registered run may be writing the part: `forget` leaves it (docs/ledger.md)."""
    folder, parts, name = path.partition("/parts/")
    run = name.partition("/")[0].removesuffix("-keys")
    if not parts or not (
        path.endswith(".draft") or (path.endswith(".parquet") and not _is_whole(data))
    ):
        return False
    return any(file.startswith(f"{folder}/runs/{run}/") for file in storage.files)


def _is_whole(data: bytes) -> bool:
    return data.endswith(b"PAR1") and data.startswith(b"PAR1")


def _keys_in(path: str, data: bytes, texts: set[str]) -> set[str]:
    if path.endswith(".parquet"):
        try:
            return texts & set(
                pq.read_table(pa.BufferReader(data), columns=["key"])["key"].to_pylist()
            )
        except pa.ArrowInvalid:
            pass
    as_json = {text: text.replace('"', '\\"') for text in texts}
    return {text for text in texts if text.encode() in data or as_json[text].encode() in data}
