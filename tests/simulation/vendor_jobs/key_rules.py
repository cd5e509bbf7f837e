"""Which keys may stand in the files of the ledger: none that is forgotten, and none that is hidden."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.ledger.keys import key_text
from tests.simulation.disk import Disk
from tests.simulation.night_at_work import scheduler
from tests.simulation.vendor_jobs.declared import LEDGER
from tests.simulation.vendor_jobs.night import JobsNight


def check_forgotten(disk: Disk, night: JobsNight, texts: Sequence[str]) -> None:
    """No file of the ledger contains a forgotten key."""
    keys = {key_text((text,), hidden=night.personal) for text in texts} | set(texts)
    _check_absent(disk, keys, "forgotten and still there")


def check_hidden(disk: Disk, night: JobsNight) -> None:
    """No file of the ledger contains a personal key."""
    _check_absent(
        disk, {f"t{number}" for number in range(night.keys)}, "personal and in the ledger"
    )


def _check_absent(disk: Disk, texts: set[str], fault: str) -> None:
    for path, file in disk.files.items():
        if path.startswith(LEDGER) and (found := texts & _values_in(path, file.data)):
            scheduler().fail(f"{fault}: {sorted(found)[:3]} in {path}")


def _values_in(path: str, data: bytes) -> set[str]:
    """The texts in a file of Parquet."""
    if not path.endswith(".parquet"):
        return set()
    try:
        table = pq.read_table(pa.BufferReader(data))
    except pa.ArrowInvalid:
        return set()
    return {
        value for column in table.columns if pa.types.is_string(column.type)
        for value in column.to_pylist() if value is not None
    }  # fmt: skip
