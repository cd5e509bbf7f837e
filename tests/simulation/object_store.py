"""The simulated object store as the functions of `jobs.storage.objects`, with etags: each request
is a step.

A listing may lag behind, an error may strike before or after a request was carried out, and the
answer of one that was carried out may be lost.
"""

import contextlib
import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path

from jobs.storage.objects import Changed, ListedObject, ReadObject, Tag
from jobs.storage.stored_files import StoredFile
from tests.simulation.night_at_work import scheduler
from tests.simulation.storage import File, ObjectStore, time_of_day


@dataclass
class SimulatedObjects:
    """lag: s for which a new object may be missing in listings; 0 as in S3, where a put is seen at
    once.
    """

    store: ObjectStore
    lag: float = 0.0

    def read(self, place: str) -> ReadObject | None:
        found = self.store.step("read", place, lambda: self.store.files.get(place))
        return None if found is None else ReadObject(found.data, _tag(found.data))

    def content(self, place: str) -> bytes:
        if (found := self.read(place)) is None:
            raise FileNotFoundError(f"there is no object {place}")
        return found.data

    def write(self, place: str, data: bytes) -> Tag:
        return self._put(place, data)

    def create(self, place: str, data: bytes) -> Tag:
        return self._put(place, data, {})

    def replace(self, place: str, data: bytes, over: Tag) -> Tag:
        return self._put(place, data, over)

    def _put(self, place: str, data: bytes, over: Tag | None = None) -> Tag:
        """over: the version to replace; of none where it is empty; None: of whatever is there."""

        def put() -> Tag:
            there = self.store.files.get(place)
            if over is not None and over != ({} if there is None else _tag(there.data)):
                raise Changed(place)
            self.store.put(place, data)
            return _tag(data)

        return self.store.step("put", place, put)

    def upload(self, file: Path, place: str) -> None:
        self._put(place, file.read_bytes())

    def download(self, place: str, file: Path) -> StoredFile:
        with file.open("xb") as target:
            found = self.store.step("read", place, lambda: self.store.files.get(place))
            if found is None:
                raise OSError(f"there is no object {place}")
            target.write(found.data)
        return StoredFile(place, len(found.data), round(found.mtime) * 10**9)

    def listed(self, folder: str) -> list[ListedObject]:
        start = f"{folder.rstrip('/')}/"

        def listing() -> list[ListedObject]:
            shown = {
                name: file for name, file in self.store.files.items() if name.startswith(start)
            }
            names = (name for name, file in shown.items() if not self._is_late(file))
            return sorted(
                (_listed(name.removeprefix(start), shown[name]) for name in names),
                key=lambda listed: listed.name,
            )

        return self.store.step("list", start, listing)

    def _is_late(self, file: File) -> bool:

        return self.lag > 0 and time_of_day() - file.mtime < self.lag * scheduler().jitter.random()

    def delete(self, folder: str, names: Iterable[str]) -> None:
        for name in names:
            place = f"{folder.rstrip('/')}/{name}"
            with contextlib.suppress(KeyError):
                self.store.step("delete", place, lambda place=place: self.store.remove(place))


FUNCTIONS = (
    "read",
    "content",
    "write",
    "create",
    "replace",
    "upload",
    "download",
    "listed",
    "delete",
)


def _tag(data: bytes) -> Tag:
    return {"e_tag": f'"{md5(data, usedforsecurity=False).hexdigest()}"'}


def _listed(name: str, file: File) -> ListedObject:
    changed = dt.datetime.fromtimestamp(file.mtime, dt.UTC)
    return ListedObject(name, changed, _tag(file.data)["e_tag"])
