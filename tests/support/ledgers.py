"""An object store in memory that can do what object stores can and no more, and that fails on
demand.
"""

import io

import pyarrow as pa
import pytest
from pyarrow import fs

from jobs.declare.ledger_settings import Ttl
from jobs.ledger import ledger_files
from jobs.ledger.answers import StoredAnswer, as_answers
from jobs.ledger.selection import select
from jobs.ledger.store import LedgerFolder
from tests.support.places import place_of


class StoreBroke(OSError):  # noqa: N818  # what happened
    """The store is gone, as at the crash of a process that was using it."""


class _Upload(io.BytesIO):
    def __init__(self, done):
        super().__init__()
        self._done = done

    def close(self):
        if not self.closed:
            self._done(self.getvalue())
        super().close()


class ObjectStore(fs.FileSystemHandler):
    """Whole objects, put, created, got, listed and deleted. No append, no rename, no copy, no
    folders.
    """

    def __init__(self):
        self.objects = {}
        self.changes = []  # what was put and deleted, in order
        self.changes_left = None  # so many more, then it breaks
        self.before_listing = lambda path: None

    def _change(self, what, path):
        if self.changes_left is not None:
            if self.changes_left == 0:
                raise StoreBroke("the store is gone")
            self.changes_left -= 1
        self.changes.append((what, path))

    def _put(self, path, data):
        self._change("put", path)
        self.objects[path] = data

    def create_file(self, path, data):
        """On condition that there is none, as the stores of today can."""
        if path in self.objects:
            raise FileExistsError(path)
        self._put(path, data)

    def get_type_name(self):
        return "objects"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return [
            fs.FileInfo(path, fs.FileType.File if path in self.objects else fs.FileType.NotFound)
            for path in paths
        ]

    def get_file_info_selector(self, selector):
        assert selector.recursive
        assert selector.allow_not_found
        self.before_listing(selector.base_dir)
        return [
            fs.FileInfo(path, fs.FileType.File, size=len(data))
            for path, data in self.objects.items()
            if path.startswith(f"{selector.base_dir}/")
        ]

    def create_dir(self, path, recursive):
        pass

    def delete_file(self, path):
        if path not in self.objects:
            raise FileNotFoundError(path)
        self._change("delete", path)
        del self.objects[path]

    def open_input_stream(self, path):
        return self.open_input_file(path)

    def open_input_file(self, path):
        if path not in self.objects:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.objects[path])

    def open_output_stream(self, path, metadata):
        return pa.PythonFile(_Upload(lambda data: self._put(path, data)), mode="w")

    def _cannot(self, *arguments):
        raise AssertionError("no object store can do that")

    delete_dir = delete_dir_contents = delete_root_dir_contents = move = copy_file = (
        open_append_stream
    ) = _cannot


@pytest.fixture
def objects(monkeypatch):
    """The store behind every ledger whose root is "bucket"."""
    there = ObjectStore()
    filesystem = fs.PyFileSystem(there)
    opened = ledger_files.open_filesystem
    monkeypatch.setattr(
        ledger_files,
        "open_filesystem",
        lambda root: (filesystem, root) if root == "bucket" else opened(root),
    )
    create = ledger_files.LedgerFiles._create

    def created(files, name, data):
        if files.root == "bucket":
            there.create_file(f"{files.path}/{name}", data)
        else:
            create(files, name, data)

    monkeypatch.setattr(ledger_files.LedgerFiles, "_create", created)
    return there


@pytest.fixture
def remote(objects):
    return LedgerFolder("bucket", "weather", "0123456789abcdef")


@pytest.fixture
def folder(tmp_path, request):
    """In a folder, or where a test of `everywhere` has it."""
    return LedgerFolder(f"{place_of(request, str(tmp_path))}/ledger", "weather", "0123456789abcdef")


def data_of(folder, name):
    """The bytes of a file, by its name below the folder."""
    with folder.filesystem.open_input_file(f"{folder.path}/{name}") as file:
        return file.read()


def put(folder, name, data):
    """A file as another program leaves it, in place of any other."""
    path = f"{folder.path}/{name}"
    folder.filesystem.create_dir(path.rpartition("/")[0])
    with folder.filesystem.open_output_stream(path, compression=None) as file:
        file.write(data)


def stored(key, outcome="ok", at=1, response=b"1", run_id="run-1"):
    return StoredAnswer(key, outcome, response if outcome in ("ok", "error") else None, at, run_id)


FOR_EVER = Ttl(ok=None, miss=None, error=None)


def known(folder, keys, *, now_us=1_000, ttl=FOR_EVER):
    """What the ledger says of these keys: key -> its record."""
    found = as_answers(select(folder, pa.array(keys, pa.string()), now_us=now_us, ttl=ttl).answers)
    assert [answer.key for answer in found] == sorted({answer.key for answer in found})
    return {answer.key: answer for answer in found}


@pytest.fixture
def ledgers():
    """Shorthands: `ledgers.stored(...)` makes a record, `ledgers.known(folder, keys)` reads what
    counts.
    """
    return Shorthands


class Shorthands:
    stored = staticmethod(stored)
    known = staticmethod(known)
    data_of = staticmethod(data_of)
    put = staticmethod(put)
    StoreBroke = StoreBroke
