"""Shows the published Delta table as folders of Parquet too: `<folder>/<partition>=<day>/`.

Delta decides what is published; the folders follow it. The file `_tidegate` names the state of the
table that they show. The next publication shows a day that a kill left unshown.
"""

import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.schema.records import DeclaredFacts
from jobs.storage import durable
from jobs.storage.exchange import exchange
from jobs.storage.parquet_files import parquet_source, with_columns
from jobs.storage.stored_files import folders_in
from jobs.tables.delta.delta_log import table_at
from jobs.tables.delta.published_files import PublishedFile, changed_since, days_of, shown_state
from jobs.tables.delta.write_errors import storing

STATE = "_tidegate"  # readers of folders ignore names that begin with _
DRAFT_OF_STATE = f".{STATE}."  # begins the name of a draft
DRAFTS = "_writing"
LISTED_WITHIN = 0.5  # s; a reader lists a folder within this time after opening it


def show(declared: DeclaredFacts, *, sleep: Callable[[float], object] = time.sleep) -> None:
    """Bring the folders to the state of the published table, day by day.

    The replaced files are removed a moment later: a reader that opened the folder before the
    exchange and listed it afterwards would find no file, and take the day for empty. Such a reader
    now lists names that are no longer at this path, and fails. Call it under `alone_with`. Raises
    TidegateError: the published table then is ahead until the next publication.
    """
    published = table_at(declared.table)
    if published is None:
        return
    folder = Path(declared.parquet)
    with storing(declared.parquet):
        if not durable.is_there(folder / STATE):
            # first, so that after a kill Tidegate recognizes the folder
            durable.write(folder / STATE, b"")
        for left in folder.glob(f"{DRAFT_OF_STATE}*"):  # by a kill
            left.unlink()
        drafts = folder / DRAFTS
        shutil.rmtree(drafts, ignore_errors=True)
        columns = pa.schema(published.schema().to_arrow())
        names = [name for name in columns.names if name != declared.partition]
        # if the table was made again, days that it lacks stay: their rows may be nowhere else
        for day, files in changed_since(state_shown(declared), published, declared).items():
            draft = drafts / day
            _write(draft, files, pa.schema([columns.field(name) for name in names]))
            shown = folder / f"{declared.partition}={day}"
            if files:
                exchange(draft, shown)
            elif shown.is_dir():
                shown.rename(draft / "old")
            durable.sync(folder)
        if any(drafts.glob("*")):
            sleep(LISTED_WITHIN)
        shutil.rmtree(drafts, ignore_errors=True)
        durable.write(folder / STATE, shown_state(published).encode())


def state_shown(declared: DeclaredFacts) -> str:
    """Return the state that the folders show; empty without a state. Raises OSError."""
    state = Path(declared.parquet, STATE)
    return state.read_text(encoding="utf-8") if durable.is_there(state) else ""


def days_left(declared: DeclaredFacts) -> list[str]:
    """Return the days of the folders that the published table lacks, as after it was made anew."""
    published, prefix = table_at(declared.table), f"{declared.partition}="
    days = {
        name.removeprefix(prefix)
        for name in folders_in(declared.parquet)
        if name.startswith(prefix)
    }
    return sorted(days.difference({} if published is None else days_of(published, declared)))


def refuse_foreign(enrichment: Enrichment) -> None:
    """Check before any call that the folder is ours or empty. Raises DeclarationError."""
    folder = Path(enrichment.output.parquet)
    if durable.is_there(folder / STATE) or not folder.is_dir():
        return
    if any(not path.name.startswith(DRAFT_OF_STATE) for path in folder.iterdir()):
        raise DeclarationError(
            f"{enrichment.name}: output: parquet: {folder} has files of others; name an empty "
            "folder, or one that is not there."
        )


def _write(folder: Path, files: Iterable[PublishedFile], columns: pa.Schema) -> None:
    """Write a day's files. No two versions of a day share a name, so that no reader mixes them."""
    durable.make_folder(folder)
    for number, file in enumerate(sorted(files, key=lambda file: file.place)):
        with pq.ParquetFile(parquet_source(file.place)) as opened:
            present = [name for name in columns.names if name in opened.schema_arrow.names]
            target = folder / f"{file.run or Path(file.place).stem}-{number:05}.parquet"
            with pq.ParquetWriter(target, columns, compression="snappy") as writer:
                for batch in opened.iter_batches(columns=present):
                    writer.write_batch(with_columns(batch, columns, {}))
        durable.sync(target)
    durable.sync(folder)
