"""The simulated disk and object store answer one script of operations, drawn from a seed, as real
ones do.
"""

import os
import random
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.storage import objects
from tests.simulation import night_at_work
from tests.simulation.disk import Disk
from tests.simulation.file_access import DiskPath, OpenFile, os_fsync, os_open, os_utime
from tests.simulation.object_store import SimulatedObjects
from tests.simulation.scheduler import Scheduler
from tests.simulation.storage import ObjectStore
from tests.support import radosgw
from tests.support.s3_server import S3Server

SEEDS = range(20)
NAMES = ("a", "b", "in/a", "in/b", "in/deep/c", "other")
FOLDERS = ("in", "in/deep", "other")


@contextmanager
def simulated(seed):
    """A night whose only thread is the test's."""
    night = Scheduler(f"conformance:{seed}", preempts=0.0)
    night_at_work.begin(night)
    try:
        yield night
    finally:
        night.finish()
        night_at_work.end()


def outcome(work, *arguments):
    """What an operation gives, or the kind of its error."""
    try:
        return work(*arguments)
    except (OSError, objects.Changed) as error:
        return next(kind.__name__ for kind in KINDS if isinstance(error, kind))


KINDS = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    objects.Changed,
    OSError,
)


# -- files
# --------------------------------------------------------------------------------------------------
def file_operations(seed, count=60):
    draws = random.Random(f"files:{seed}")
    for number in range(count):
        yield (
            draws.choice(("create", "exclusive", "append", "read", "rename", "remove", "list", "mkdir", "info", "all")),
            draws.choice((*NAMES, *FOLDERS)), draws.choice(NAMES),
            f"{number}".encode() * draws.choice((0, 1, 40)),
        )  # fmt: skip


class RealFiles:
    def __init__(self, folder):
        self.root = folder

    def create(self, path, _, data):
        (self.root / path).write_bytes(data)

    def exclusive(self, path, _, data):
        with (self.root / path).open("xb") as file:
            file.write(data)

    def append(self, path, _, data):
        with (self.root / path).open("rb+") as file:
            file.seek(0, 2)
            file.write(data)

    def read(self, path, *_):
        return (self.root / path).read_bytes()

    def rename(self, path, target, _):
        if not (self.root / path).is_dir():  # the product renames files of the ledger only
            (self.root / path).replace(self.root / target)

    def remove(self, path, *_):
        (self.root / path).unlink()

    def list(self, path, *_):
        return sorted(entry.name for entry in (self.root / path).iterdir())

    def mkdir(self, path, *_):
        (self.root / path).mkdir(parents=len(path) > 2)

    def info(self, path, *_):
        facts = (self.root / path).stat()
        return None if (self.root / path).is_dir() else facts.st_size

    def all(self, *_):
        return sorted(
            str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()
        )


class SimulatedFiles:
    def __init__(self):
        self.disk = DiskPath.disk = Disk()
        self.root = DiskPath("/simulated")
        self.disk.make_folder("/simulated", parents=True, exist_ok=True)

    def _at(self, path):
        return f"{self.root}/{path}"

    def _written(self, path, data, mode):
        with (self.root / path).open(mode) as file:
            file.write(data)

    def create(self, path, _, data):
        self._written(path, data, "wb")

    def exclusive(self, path, _, data):
        self._written(path, data, "xb")

    def append(self, path, _, data):
        if self.disk.is_folder(self._at(path)):
            raise IsADirectoryError
        self.disk.append(self.disk.found(self._at(path)), data)

    def read(self, path, *_):
        if self.disk.is_folder(self._at(path)):
            raise IsADirectoryError
        return self.disk.found(self._at(path)).data

    def rename(self, path, target, _):
        if not self.disk.is_folder(self._at(path)):
            (self.root / path).replace(self.root / target)

    def remove(self, path, *_):
        (self.root / path).unlink()

    def list(self, path, *_):
        return [child.rpartition("/")[2] for child in self.disk.children(self._at(path))]

    def mkdir(self, path, *_):
        (self.root / path).mkdir(parents=len(path) > 2)

    def info(self, path, *_):
        facts = (self.root / path).stat()
        return None if (self.root / path).is_dir() else facts.st_size

    def all(self, *_):
        return sorted(name.removeprefix(f"{self.root}/") for name in self.disk.files)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_simulated_disk_behaves_as_the_local_file_system(seed, tmp_path):
    with simulated(seed):
        real, disk = RealFiles(tmp_path), SimulatedFiles()
        for does, path, target, data in file_operations(seed):
            answers = [
                outcome(getattr(system, does), path, target, data) for system in (real, disk)
            ]
            assert answers[0] == answers[1], (does, path, target)


def test_file_times_of_the_simulated_disk_change_as_on_the_local_file_system(tmp_path):
    with simulated(0) as night:
        for root in (tmp_path, SimulatedFiles().root):
            path = root / "a"
            with path.open("wb") as file:
                file.write(b"1")
            os_fsync(handle := os_open(path, 0))
            assert handle
            made = path.stat().st_mtime_ns
            night.sleep(1.0)
            assert path.stat().st_mtime_ns == made
            os_utime(path)
            assert path.stat().st_mtime_ns >= made
            path.replace(root / "b")
            with pytest.raises(FileNotFoundError):
                path.stat()


# -- objects
# --------------------------------------------------------------------------------------------------
def object_operations(seed, count):
    draws = random.Random(f"objects:{seed}")
    for number in range(count):
        yield (
            draws.choice(("write", "create", "replace", "stale", "read", "list", "delete", "missing", "file")),
            draws.choice(NAMES), f"{number}".encode() * draws.choice((1, 40)),
        )  # fmt: skip


class Client:
    """Asks a store by the functions of `jobs.storage.objects`, and keeps the tags that it was
    given.
    """

    def __init__(self, api, place, scratch):
        self.api, self.place, self.scratch = api, place, scratch
        self.tags = {}

    def ask(self, does, name, data):
        place = f"{self.place}/{name}"
        if does in ("write", "create"):
            self.tags.setdefault(name, []).append(getattr(self.api, does)(place, data))
        elif does in ("replace", "stale"):
            tags = self.tags.get(name) or [{"e_tag": "none"}]
            self.tags.setdefault(name, []).append(
                self.api.replace(place, data, tags[-1 if does == "replace" else 0])
            )
        elif does == "read":
            found = self.api.read(place)
            return found and (found.data, found.tag["e_tag"])
        elif does == "list":
            return [(listed.name, listed.etag) for listed in self.api.listed(self.place)]
        elif does == "delete":
            self.api.delete(self.place, [name])
        elif does == "missing":
            self.api.delete(self.place, ["never", name, "nor this"])
        else:
            file = self.scratch / "file"
            file.unlink(missing_ok=True)
            size = self.api.download(place, file).size
            return size, file.read_bytes()
        return None


def compare_stores(place, tmp_path, seeds, count):
    for seed in seeds:
        with simulated(seed):
            fresh = SimulatedObjects(ObjectStore())
            clients = [
                Client(api, f"{place}/{seed}", tmp_path / name)
                for api, name in ((objects, "real"), (fresh, "other"))
            ]
            for client in clients:
                client.scratch.mkdir(exist_ok=True)
            for operation in object_operations(seed, count):
                real, other = (outcome(client.ask, *operation) for client in clients)
                assert real == other, operation


def test_a_listing_of_the_simulated_store_lags_only_for_the_given_time():
    with simulated(0) as night:
        store = SimulatedObjects(ObjectStore(), lag=10.0)
        store.write("s3://bucket/in/a", b"1")
        listings = []
        while (age := night.now) < 12.0:
            assert store.content("s3://bucket/in/a") == b"1"
            listings.append((age, bool(store.listed("s3://bucket/in"))))
            night.sleep(0.5)
    assert {is_listed for age, is_listed in listings if age < 5.0} == {True, False}
    assert all(is_listed for age, is_listed in listings if age > 10.5)


@pytest.mark.process
def test_the_simulated_store_behaves_as_an_s3_server(s3, tmp_path):
    compare_stores(s3.bucket, tmp_path, range(3), 40)


@pytest.mark.proof
@pytest.mark.process
def test_the_simulated_store_behaves_as_an_s3_server_in_long_scripts(s3, tmp_path):
    compare_stores(s3.bucket, tmp_path, range(100, 120), 200)


@pytest.mark.proof
@pytest.mark.process
@pytest.mark.skipif(
    not radosgw.is_installed(),
    reason="Ceph's radosgw and its monitor and store are not installed.",
)
def test_the_simulated_store_behaves_as_radosgw(tmp_path, monkeypatch):
    folder = tmp_path / "ceph"
    folder.mkdir()
    with radosgw.running(folder) as url:
        server = S3Server(url, Path(os.devnull))
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        objects._store.cache_clear()
        server.make_bucket("conformance")
        compare_stores("s3://conformance", tmp_path, range(100, 120), 200)


def test_a_file_left_open_by_a_night_takes_no_step_of_the_next_night():
    disk = Disk()
    with simulated(1):
        left = OpenFile(disk, "/a")
    with simulated(2):
        before = disk.operations
        left.write(b"what Arrow kept in memory")
        assert disk.operations == before
