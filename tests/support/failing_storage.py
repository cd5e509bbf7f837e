"""A filesystem below one folder that fails at one operation, whichever process and thread of a run
does it.
"""

import contextlib
import errno
import fcntl
import io
import json
import os
import secrets
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from jobs.storage import durable

ERRORS = {
    "EIO": ("local", lambda: OSError(errno.EIO, "Input/output error")),
    "ETIMEDOUT": ("local", lambda: OSError(errno.ETIMEDOUT, "Connection timed out")),
    "ESTALE": ("local", lambda: OSError(errno.ESTALE, "Stale file handle")),
    "503": (
        "objects",
        lambda: OSError("AWS Error SLOW_DOWN during GetObject operation: 503 Slow Down"),
    ),
}
WIDTH = 100  # bytes of a counter's file


class _Stream:
    """A file of the local filesystem whose every read, write and close is an operation."""

    def __init__(self, inner, step):
        self._inner, self._step, self.closed = inner, step, False

    def read(self, size=-1):
        return self._step("read", lambda: self._inner.read(None if size in (-1, None) else size))

    def write(self, data):
        return self._step("write", lambda: self._inner.write(data))

    def close(self):
        if not self.closed:
            self.closed = True
            self._step("close", self._inner.close)

    def __getattr__(self, name):
        return getattr(self._inner, name)


class _Object(io.BytesIO):
    """A new object of a store, which exists from its close on, whole."""

    def __init__(self, path):
        super().__init__()
        self._path = Path(path)

    def close(self):
        draft = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}.object")
        draft.write_bytes(self.getvalue())
        draft.replace(self._path)
        super().close()


class Counter:
    """Which operation is to fail, in this process."""

    def __init__(self):
        self._fails_at, self._steps, self._failed = None, 0, None

    def fail_at(self, step):
        self._fails_at, self._steps, self._failed = step, 0, None

    @property
    def failed(self):
        """The operation that failed; None when there were not so many."""
        return self._failed

    def fails(self, name):
        self._steps += 1
        if self._steps == self._fails_at:
            self._failed = name
        return self._steps == self._fails_at


class CounterOfAll:
    """The same for all processes of a run, in a file; once it is gone, nothing fails."""

    def __init__(self, path):
        self._path = str(path)

    def fail_at(self, step):
        Path(self._path).touch()
        with self._locked() as file:
            self._write(file, {"fails_at": step, "steps": 0, "failed": None})

    @property
    def failed(self):
        with self._locked() as file:
            return json.load(file)["failed"]

    def fails(self, name):
        with contextlib.suppress(FileNotFoundError), self._locked() as file:
            state = json.load(file)
            state["steps"] += 1
            fails = state["steps"] == state["fails_at"]
            state["failed"] = name if fails else state["failed"]
            self._write(file, state)
            return fails
        return False

    @contextlib.contextmanager
    def _locked(self):
        """The file, while no other process reads or writes it: a task of the step before may still
        be at work.
        """
        with Path(self._path).open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    @staticmethod
    def _write(file, state):
        """In one operation, over what was there: Spark may kill a worker at any moment."""
        os.pwrite(file.fileno(), json.dumps(state).ljust(WIDTH).encode(), 0)


class FailingStorage(fs.FileSystemHandler):
    """The local filesystem. The operation that the counter names fails; if `applied`, after it has
    been carried out.
    """

    def __init__(self, kind, applied, counter=None):
        self._type, self._error = ERRORS[kind]
        self._applied = applied
        self._local = fs.LocalFileSystem()
        self._counter = counter or Counter()

    @property
    def failed(self):
        return self._counter.failed

    def fail_at(self, step):
        self._counter.fail_at(step)

    def step(self, name, work):
        fails = self._counter.fails(name)
        if fails and not self._applied:
            raise self._error()
        done = work()
        if fails:
            raise self._error()
        return done

    def get_type_name(self):
        return self._type

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return self.step("info", lambda: self._local.get_file_info(paths))

    def get_file_info_selector(self, selector):
        return self.step("list", lambda: self._local.get_file_info(selector))

    def create_dir(self, path, recursive):
        self.step("create_dir", lambda: self._local.create_dir(path, recursive=recursive))

    def delete_dir(self, path):
        self.step("delete_dir", lambda: self._local.delete_dir(path))

    def delete_file(self, path):
        self.step("delete", lambda: self._local.delete_file(path))

    def move(self, source, target):
        self.step("move", lambda: self._local.move(source, target))

    def open_input_stream(self, path):
        opened = self.step("open", lambda: self._local.open_input_stream(path, compression=None))
        return pa.PythonFile(_Stream(opened, self.step), mode="r")

    def open_input_file(self, path):
        opened = self.step("open", lambda: self._local.open_input_file(path))
        return pa.PythonFile(_Stream(opened, self.step), mode="r")

    def open_output_stream(self, path, metadata):
        def create():
            return (
                _Object(path)
                if self._type == "objects"
                else self._local.open_output_stream(path, compression=None)
            )

        return pa.PythonFile(_Stream(self.step("create", create), self.step), mode="w")

    def _not_needed(self, *arguments):
        raise AssertionError("the ledger does not need that")

    delete_dir_contents = delete_root_dir_contents = copy_file = open_append_stream = _not_needed


class Filesystem(fs.PyFileSystem):
    """It names its type as the handler does: Arrow puts a "py::" before that, so that none would be
    a local one.
    """

    @property
    def type_name(self):
        return self.handler.get_type_name()


def put_under(root, storage, put=setattr):
    """Have all that the ledger does below this folder go through the storage, what it writes to
    last too.

    put(object, name, value): sets an attribute, as monkeypatch.setattr does.
    """
    from jobs.ledger import keyed_file, ledger_files

    filesystem, root = Filesystem(storage), str(root)
    for module in (ledger_files, keyed_file):
        # the storage may be there already: a worker of Spark takes one task after another
        usual = getattr(module.open_filesystem, "usual", module.open_filesystem)

        def opened(path, usual=usual):
            found, inside = usual(path)
            return (filesystem if inside.startswith(root) else found), inside

        opened.usual = usual
        put(module, "open_filesystem", opened)
    usual_create = getattr(
        ledger_files.LedgerFiles._create, "usual", ledger_files.LedgerFiles._create
    )

    def created(files, name, data):
        if files.path.startswith(root):
            durable.create(Path(f"{files.path}/{name}"), data)  # which is a step, see below
        else:
            usual_create(files, name, data)

    created.usual = usual_create
    put(ledger_files.LedgerFiles, "_create", created)
    for name in ("replace", "create"):
        usual_write = getattr(getattr(durable, name), "usual", getattr(durable, name))

        def lasting(path, data, write=usual_write, **options):
            if not str(path).startswith(root):
                return write(path, data, **options)
            return storage.step("lasting", lambda: write(path, data, **options))

        lasting.usual = usual_write
        put(durable, name, lasting)


class InWorkers:
    """Part of what a task is sent: puts the storage into the process that takes it. The counter
    must be of all.
    """

    def __init__(self, root, kind, applied, counter):
        self._arguments = str(root), kind, applied, counter

    def __reduce__(self):
        return _arrived, self._arguments


def _arrived(root, kind, applied, counter):
    put_under(root, FailingStorage(kind, applied, counter))
