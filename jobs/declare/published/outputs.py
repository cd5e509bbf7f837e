"""The declaration of an output: the published table, and where else it appears."""

from dataclasses import dataclass, field

from jobs.declare.values.fingerprint import WHERE_DECLARED
from jobs.declare.values.places import ICEBERG_NAME, refuse_home, require_table
from jobs.declare.values.type_checks import require_types
from jobs.errors import DeclarationError
from jobs.storage.urls import is_url


@dataclass(frozen=True, kw_only=True)
class Output:
    """A Delta table, partitioned by the input's day and published one whole day at a time.

    Attributes:
        path: A folder, local or on a disk that driver and executors share, or a URL of an object
            store, as s3://bucket/orders.
        iceberg: An Iceberg table that shows the same files, `catalog.namespace.table`; pyiceberg's
            configuration names the catalog.
        parquet: A folder that shows the published columns as `<partition>=<day>/*.parquet`, a copy
            for readers without a table format; on a disk, because a store cannot exchange a folder
            for another.
    """

    path: str
    iceberg: str = field(default="", metadata=WHERE_DECLARED)
    parquet: str = field(default="", metadata=WHERE_DECLARED)

    def __post_init__(self) -> None:
        require_types(self, "output")
        require_table("output", self.path)
        if self.iceberg and not ICEBERG_NAME.fullmatch(self.iceberg):
            raise DeclarationError(
                f"output: iceberg is {self.iceberg!r}; it must be the table's name, such as "
                "catalog.namespace.table."
            )
        refuse_home("output: parquet", self.parquet)
        if is_url(self.parquet):
            raise DeclarationError(
                f"output: parquet is {self.parquet!r}; it must be a folder on a disk: a store "
                "cannot exchange the "
                "folder of a day for another. Readers of the store read the table itself."
            )
        # the tables beside it are named after it
        object.__setattr__(self, "path", self.path.rstrip("/") or "/")
