"""Shows the published Delta table as an Iceberg table too: a snapshot names the same files by day.

Delta decides what is published; the Iceberg table follows it. Its property `tidegate.shows` is the
Delta version that it shows, and changes with the snapshot. So a commit whose answer was lost is
recognized, and the next publication makes up for a commit that was never made.
"""

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    ValidationException,
)
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from jobs.errors import DeclarationError, TidegateError
from jobs.input.iceberg import catalog_config
from jobs.schema.records import DeclaredFacts
from jobs.storage.parquet_files import read_footer, read_schema
from jobs.storage.stored_files import error_text
from jobs.storage.urls import is_url
from jobs.tables.delta.copied_rows import KEPT
from jobs.tables.delta.delta_log import table_at
from jobs.tables.delta.published_files import FilesByDay, PublishedFile, changed_since, shown_state

SHOWS = "tidegate.shows"
TRIES = 5  # against other programs' commits, each with pyiceberg's tries


def show(declared: DeclaredFacts) -> None:
    """Bring the Iceberg table to the state of the published table, in a single snapshot; do
    nothing if it is already there.

    Call it under `alone_with`. Raises TidegateError: the published table then is ahead until the
    next publication.
    """
    published = table_at(declared.table)
    if published is None:
        return
    behind = (
        f"It shows what was published before, {declared.table} what is now. Fix that, then run the "
        "same again: the ledger has the answers."
    )
    with _named(declared, "be written", behind):
        table = _opened(declared, published)
        for _ in range(TRIES):
            if table.properties.get(SHOWS) == shown_state(published):
                return
            try:
                _commit(table, declared, published)
            except (CommitFailedException, CommitStateUnknownException, ValidationException):
                table.refresh()
        if table.properties.get(SHOWS) != shown_state(published):
            raise CommitFailedException(f"other programs commit to it, and {TRIES} commits failed")


def state_shown(declared: DeclaredFacts) -> str:
    """Return the state that the Iceberg table shows, or empty. Raises TidegateError."""
    read = _named(declared, "be read", "Once it can be, run the same again.")
    with read, contextlib.suppress(NoSuchTableError):
        return str(
            _catalog(declared.iceberg)
            .load_table(_in_catalog(declared.iceberg))
            .properties.get(SHOWS, "")
        )
    return ""


def forget_versions(
    declared: DeclaredFacts,
    older_than: timedelta,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Expire the snapshots before the limit. Raises TidegateError."""
    before = now().replace(tzinfo=None) - older_than
    then = "Its old snapshots stay. Fix that, then run the same again."
    with _named(declared, "expire snapshots", then), contextlib.suppress(NoSuchTableError):
        table = _catalog(declared.iceberg).load_table(_in_catalog(declared.iceberg))
        table.maintenance.expire_snapshots().older_than(before).commit()


def refuse_unfit(declared: DeclaredFacts, columns: pa.Schema) -> None:
    """Check before any call that Iceberg's readers can find the files, that the catalog answers,
    and that its table, if it exists, can show the published columns. Raises DeclarationError.
    """
    where, name, folder = f"{declared.enrichment}: output", declared.iceberg, _root(declared.table)
    if "#" in folder or "?" in folder:
        raise DeclarationError(
            f"{where}: {name} cannot show the files below {folder}: readers of Iceberg end the "
            "address of a file at '#' or '?'. Choose another folder, or leave out iceberg. Nothing "
            "was called."
        )
    try:
        catalog = _catalog(name, where)
        if catalog.table_exists(_in_catalog(name)):
            table = catalog.load_table(_in_catalog(name))
            _refuse_other_days(table, declared, where)
            _refuse_required(table, declared, where)
            _add_columns(table.transaction(), columns)  # never committed
        else:
            # fails for a missing namespace
            catalog.load_namespace_properties(_in_catalog(name).rpartition(".")[0])
    except DeclarationError:
        raise
    except NoSuchNamespaceError as error:
        raise DeclarationError(
            f"{where}: the namespace of {name} does not exist; create it in the catalog. Nothing "
            "was called."
        ) from error
    # each catalog has other errors, and a wrong column raises ValueError
    except Exception as error:
        raise DeclarationError(
            f"{where}: {name} cannot show the table: {error_text(error)}. Nothing was called."
        ) from error


def _catalog(name: str, where: str = "output") -> Catalog:
    return load_catalog(name.partition(".")[0], **catalog_config(where, name))


def _in_catalog(name: str) -> str:
    return name.partition(".")[2]


def _opened(declared: DeclaredFacts, published: DeltaTable) -> Table:
    catalog, name = _catalog(declared.iceberg), _in_catalog(declared.iceberg)
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        with (
            catalog.create_table_transaction(name, _columns(published)) as new,
            new.update_spec() as spec,
        ):
            spec.add_identity(declared.partition)
        table = catalog.load_table(name)
    _refuse_other_days(table, declared, "output")
    return table


def _refuse_other_days(table: Table, declared: DeclaredFacts, where: str) -> None:
    fields = table.spec().fields
    sources = [table.schema().find_column_name(field.source_id) for field in fields]
    if sources != [declared.partition] or not isinstance(fields[0].transform, IdentityTransform):
        raise DeclarationError(
            f"{where}: {declared.iceberg} is partitioned by "
            f"{', '.join(map(str, fields)) or 'nothing'}; it must be by {declared.partition} "
            "alone, as the published table is. Name another table (Output.iceberg)."
        )


def _refuse_required(table: Table, declared: DeclaredFacts, where: str) -> None:
    """Refuse columns that files may lack, or have as null, where Iceberg forbids it."""
    for field in table.schema().fields:
        if field.required and field.name != declared.partition:
            raise DeclarationError(
                f"{where}: {declared.iceberg} forbids null in {field.name}, which a run does not "
                "check. Make the column optional, or name another table (Output.iceberg). Nothing "
                "was called."
            )


def _commit(table: Table, declared: DeclaredFacts, published: DeltaTable) -> None:
    state = table.properties.get(SHOWS, "")
    changed = changed_since(state, published, declared, lambda: _days_shown(table, declared))
    with table.transaction() as change:
        _add_columns(change, _columns(published))
        for files in changed.values():
            _give_audit_columns_ids(change, files)
        _replace_days(change, table, declared, changed)
        change.set_properties({SHOWS: shown_state(published)})


def _days_shown(table: Table, declared: DeclaredFacts) -> set[str]:
    """Return the days with a file of the published table, in this or an earlier life of it. Days
    of other programs alone are not ours to remove.
    """
    root = _root(declared.table)
    files = table.inspect.files().select(["file_path", "partition"]).to_pylist()
    return {
        str(file["partition"][declared.partition])
        for file in files
        if file["file_path"].startswith(f"{root.rstrip('/')}/")
    }


def _add_columns(change: Transaction, columns: pa.Schema) -> None:
    """Add missing columns, and the names by which readers find columns in files without ids."""
    if change.table_metadata.name_mapping() is None:
        names = change.table_metadata.schema().name_mapping.model_dump_json()
        change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: names})
    with change.update_schema() as update:
        update.union_by_name(columns)


def _give_audit_columns_ids(change: Transaction, files: Collection[PublishedFile]) -> None:
    """Add the files' audit columns to the schema and drop them again, so that they and their fields
    have ids: pyiceberg reads no file with a column or a field that has none.
    """
    # the files of a run are alike, except those of kept rows, which may be of other versions
    unlike = {file.run if file.run and _is_new(file) else file.place: file for file in files}
    for file in unlike.values():
        shown = change.table_metadata.schema().as_struct()
        known = _parts_by_name(change.table_metadata.name_mapping() or ())
        others = [
            (column.name, _joined(column.type, known.get(column.name, ())))
            for column in read_schema(file.place)
            if shown.field_by_name(column.name) is None
            and (column.name not in known or _lacks_ids(column.type, known[column.name]))
        ]
        if others:
            with change.update_schema() as update:
                update.union_by_name(pa.schema(others))
            with change.update_schema() as update:
                for name, _ in others:
                    update.delete_column(name)


def _is_new(file: PublishedFile) -> bool:
    return not file.place.rpartition("/")[2].startswith(KEPT)


def _parts_by_name(known: Iterable[MappedField]) -> dict[str, Sequence[MappedField]]:
    return {name: field.fields for field in known for name in field.names}


def _parts(kind: pa.DataType | None) -> dict[str, pa.DataType]:
    """Return the parts of a type by the names that Iceberg gives them."""
    if kind is None or not pa.types.is_nested(kind):
        return {}
    if pa.types.is_struct(kind):
        return {field.name: field.type for field in kind}
    if pa.types.is_map(kind):
        return {"key": kind.key_type, "value": kind.item_type}
    return {"element": kind.value_type}


def _lacks_ids(kind: pa.DataType, known: Iterable[MappedField]) -> bool:
    """Return whether a part of the type has no id, as a part of a key that is declared anew."""
    names = _parts_by_name(known)
    return any(
        name not in names or _lacks_ids(part, names[name]) for name, part in _parts(kind).items()
    )


def _joined(kind: pa.DataType | None, known: Iterable[MappedField]) -> pa.DataType:
    """Return a type with the parts of this type and the known parts, which would lose their ids
    otherwise, so that readers would not read earlier files.
    """
    parts, names = _parts(kind), _parts_by_name(known)
    every = dict.fromkeys([*names, *parts])
    joined = [(name, _joined(parts.get(name), names.get(name, ()))) for name in every]
    return pa.struct(joined) if joined else kind or pa.string()


def _replace_days(
    change: Transaction, table: Table, declared: DeclaredFacts, changed: FilesByDay
) -> None:
    kind = change.table_metadata.schema().find_field(declared.partition).field_type
    old: list[DataFile] = []
    new: list[DataFile] = []
    for day, files in changed.items():
        of_day = EqualTo(term=Reference(declared.partition), value=literal(day))
        tasks = table.scan(of_day).plan_files() if table.current_snapshot() else ()
        present = {task.file.file_path: task.file for task in tasks}
        wanted = {_location(file): file for file in files}
        partition = Record(literal(day).to(kind).value)
        old += [file for place, file in present.items() if place not in wanted]
        new += [
            _data_file(file, partition) for place, file in wanted.items() if place not in present
        ]
    if old or new:
        runs = {day: sorted({file.run for file in files} - {""}) for day, files in changed.items()}
        summary = {"tidegate.enrichment": declared.enrichment, "tidegate.runs": json.dumps(runs)}
        with change.update_snapshot(summary).overwrite() as snapshot:
            for file in old:
                snapshot.delete_data_file(file)
            for file in new:
                file.spec_id = table.spec().spec_id
                snapshot.append_data_file(file)


def _root(table: str) -> str:
    return table if is_url(table) else f"file://{Path(table).resolve()}"


def _location(file: PublishedFile) -> str:
    return file.place if is_url(file.place) else f"file://{file.place}"


def _data_file(file: PublishedFile, partition: Record) -> DataFile:
    """Return the file without column statistics, which would put values into the table's log."""
    rows = read_footer(file.place).num_rows if file.rows is None else file.rows
    return DataFile.from_args(
        content=DataFileContent.DATA, file_path=_location(file), file_format=FileFormat.PARQUET,
        partition=partition, record_count=rows, file_size_in_bytes=file.size,
    )  # fmt: skip


def _columns(published: DeltaTable) -> pa.Schema:
    return pa.schema(published.schema().to_arrow())


@contextlib.contextmanager
def _named(declared: DeclaredFacts, cannot: str, then: str) -> Iterator[None]:
    """Turn any error into a TidegateError, because each catalog and store raises other errors.

    Args:
        declared: The declaration.
        cannot: What fails, a verb.
        then: The state and the cure, in sentences.
    """
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:
        raise TidegateError(
            f"output: {declared.iceberg} cannot {cannot}: {error_text(error)}. {then}"
        ) from error
