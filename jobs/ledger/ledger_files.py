"""Files by name in the folder of a lookup, at any filesystem URL, with errors translated."""

import contextlib
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from jobs.errors import LedgerError
from jobs.storage import durable, objects
from jobs.storage.stored_files import error_text, open_filesystem
from jobs.storage.urls import below

LIST_TRIES = 5
NO_FOLDERS = ("s3", "gcs", "abfs")  # object stores, where a folder is a prefix of names


@dataclass(frozen=True)
class LedgerFiles:
    """The files of a lookup's folder in a ledger.

    It is cheap to create and to send to executors, and opens nothing before its first use.

    Attributes:
        root: A folder (relative to the current folder), or a URL of any filesystem.
        lookup: The lookup's name.
        fingerprint: The request's fingerprint.
    """

    root: str
    lookup: str
    fingerprint: str

    @functools.cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        try:
            filesystem, path = open_filesystem(self.root)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise LedgerError(
                f"ledger {self.root!r}: it cannot be opened: {error_text(error)}."
            ) from error
        return filesystem, f"{path.rstrip('/')}/{self.lookup}/{self.fingerprint}"

    @functools.cached_property
    def place(self) -> str:
        """Its URL for `jobs.storage.objects`; empty if only Arrow can open it."""
        if "?" in self.root or not objects.is_configured(self.root):
            return ""
        return below(self.root, self.lookup, self.fingerprint)

    @property
    def filesystem(self) -> fs.FileSystem:
        return self._opened[0]

    @property
    def path(self) -> str:
        return self._opened[1]

    def replace(self, name: str, data: bytes | pa.Buffer, *, lasting: bool = False) -> None:
        """Replace or create an object atomically: readers see the old or the new object.

        Args:
            name: The object's name in this folder.
            data: Its content.
            lasting: On return it survives a power cut, on a local disk as on an object store.

        Raises:
            LedgerError: The write failed; the object is the old or the new object.
        """
        path = f"{self.path}/{name}"
        with self._storing():
            if self.filesystem.type_name == "local":
                durable.replace(Path(path), bytes(data), is_durable=lasting)
                return
            if self.filesystem.type_name not in NO_FOLDERS:
                self.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            # an object store writes an object atomically
            with self.filesystem.open_output_stream(path, compression=None) as stream:
                stream.write(data)

    def create(self, name: str, data: bytes) -> bool:
        """Create an object durably, which fails if it exists. Returns whether this call created it.

        Raises LedgerError. The object may exist then, with this content.
        """
        with self._storing():
            try:
                self._create(name, data)
            except (objects.Changed, FileExistsError):
                return False
        return True

    def _create(self, name: str, data: bytes) -> None:
        if self.filesystem.type_name == "local":
            durable.create(Path(f"{self.path}/{name}"), data)
        elif objects.can_open(self.root):
            objects.create(below(self.root, self.lookup, self.fingerprint, name), data)
        else:
            raise LedgerError(
                f"ledger {self.root!r}: only a filesystem that can create a file on condition that "
                "it does not exist lets answers be compacted or forgotten: a local folder or, with "
                "tidegate[s3] installed, an object store."
            )

    def renew(self, name: str, data: bytes) -> None:
        """Set a small object's time to now, by the filesystem's clock; create it if it is missing.

        A local file is not replaced, because a listing might miss both the old and the new file.
        Raises LedgerError.
        """
        if self.filesystem.type_name == "local":
            with self._storing(), contextlib.suppress(FileNotFoundError):
                os.utime(f"{self.path}/{name}")
                return
        self.replace(name, data)

    def _storing(self) -> contextlib.AbstractContextManager[None]:
        cure = (
            " Free some space or fix the permissions, then rerun: what was stored before is kept "
            "and used."
        )
        return self._failing("answers cannot be stored", cure)

    @contextlib.contextmanager
    def _failing(self, problem: str, cure: str = "") -> Iterator[None]:
        """Raise LedgerError, with the problem and the cure, for an error of the filesystem."""
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise LedgerError(
                f"ledger {self.root!r}: {problem}: {error_text(error)}.{cure}"
            ) from error

    def delete(self, *names: str) -> None:
        """Delete files; missing files are no error. Raises LedgerError if the deletion fails."""
        if self.place and names:
            with self.deleting(names[0]):
                objects.delete(self.place, names)
            return
        for name in names:
            with self.deleting(name):
                self.filesystem.delete_file(f"{self.path}/{name}")

    @contextlib.contextmanager
    def deleting(self, name: str) -> Iterator[None]:
        """Raise LedgerError if the body cannot delete this; it may be missing."""
        with self._failing(f"{name} cannot be deleted"), contextlib.suppress(FileNotFoundError):
            yield

    def names(self, subfolder: str = "") -> list[str]:
        """Return the relative names of files below a subfolder, sorted; empty if it is missing."""
        start = len(self.path) + 1
        return sorted(info.path[start:] for info in self.files(subfolder))

    def files(self, subfolder: str = "") -> list[fs.FileInfo]:
        """Return the files below a subfolder; empty if it is missing.

        Raises LedgerError if the listing fails at any point, so that no file seems to be missing.
        """
        found = self._listed(f"{self.path}/{subfolder}".rstrip("/"), recursive=True)
        return [info for info in found if info.type == fs.FileType.File]

    def has_folders(self, subfolder: str) -> bool:
        """Return whether a subfolder has folders; False on a store, where folders are prefixes."""
        return self.filesystem.type_name == "local" and bool(
            self.folders(f"{self.path}/{subfolder}")
        )

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in a folder of the filesystem. Raises LedgerError."""
        found = self._listed(path, recursive=False)
        return [info.base_name for info in found if info.type == fs.FileType.Directory]

    def _listed(self, path: str, *, recursive: bool) -> list[fs.FileInfo]:
        selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive)
        with self._failing("it cannot be listed"):
            for _ in range(LIST_TRIES - 1):
                # a folder was created or deleted during the lookup
                with contextlib.suppress(FileNotFoundError):
                    return list(self.filesystem.get_file_info(selector))
            return list(self.filesystem.get_file_info(selector))

    def read_bytes(self, name: str) -> bytes:
        """Return the content of a small object.

        Raises:
            FileNotFoundError: It does not exist.
            LedgerError: It cannot be read and may exist.
        """
        try:
            if self.place:
                return objects.content(below(self.place, name))
            with self.filesystem.open_input_stream(
                f"{self.path}/{name}", compression=None
            ) as stream:
                data: bytes = stream.read()
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(name, error) from error
        return data

    def unreadable(self, name: str, error: Exception) -> LedgerError:
        return LedgerError(
            f"ledger {self.root!r}: {name} cannot be read: {error_text(error)}. Nothing was called "
            "for its answers; start again when it can be."
        )
