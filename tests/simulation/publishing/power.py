"""What a power cut leaves of a real folder: what was synced; of the rest what the seed says."""

import os
import random
import shutil
from collections.abc import Collection
from pathlib import Path

Names = dict[str, int]  # inodes


class Synced:
    """The contents and names that are on the disk for good."""

    def __init__(self) -> None:
        self._contents: dict[int, bytes] = {}  # by inode
        self._names: dict[int, Names] = {}  # by the inode of a folder

    def note(self, file: int) -> None:
        """A file or folder, which is open, was synced."""
        path = Path(f"/proc/self/fd/{file}").resolve()
        inode = path.stat().st_ino
        if path.is_dir():
            self._names[inode] = _names(path)
        else:
            self._contents[inode] = path.read_bytes()

    def note_all(self, folder: Path) -> None:
        """All that is in the folder is on the disk."""
        self._names[folder.stat().st_ino] = _names(folder)
        for path in folder.iterdir():
            if path.is_dir():
                self.note_all(path)
            else:
                self._contents[path.stat().st_ino] = path.read_bytes()

    def cut(self, folder: Path, draws: random.Random, *, spare: Collection[str]) -> None:
        """Names that were not synced may be gone, or back; contents may be empty. spare: folders
        that are of others.
        """
        if not folder.exists():
            return
        self._cut(folder, draws, spare)
        self._contents.clear()
        self._names.clear()
        self.note_all(folder)

    def _cut(self, folder: Path, draws: random.Random, spare: Collection[str]) -> None:
        lasting = self._names.get(folder.stat().st_ino, {})
        if folder.name == "_delta_log":
            self._cut_log(folder, draws)
            return
        for name, inode in sorted(_names(folder).items()):
            if name in spare:
                continue
            path, before = folder / name, lasting.get(name)
            if before != inode and draws.random() < 0.4:
                _remove(path)
                if before in self._contents:
                    path.write_bytes(self._contents[before])
            elif path.is_dir():
                self._cut(path, draws, spare)
            elif path.read_bytes() != self._contents.get(inode) and draws.random() < 0.5:
                path.write_bytes(self._contents.get(inode, b""))
        for name, inode in sorted(lasting.items()):
            if inode in self._contents and not (folder / name).exists() and draws.random() < 0.5:
                (folder / name).write_bytes(self._contents[inode])

    def _cut_log(self, folder: Path, draws: random.Random) -> None:
        """Of entries that were made one after the other the last ones are gone. The first of all is
        whole, since no program opens a log with an empty one.
        """
        lasting = self._names.get(folder.stat().st_ino, {})
        names = (name for name, inode in _names(folder).items() if lasting.get(name) != inode)
        # deltalake sums an entry up once it is there
        new = sorted(names, key=lambda name: (name[:20], "checkpoint" in name))
        stay = draws.randint(0, len(new))
        for name in new[stay:]:
            _remove(folder / name)
        for name in new[:stay]:
            inode = (folder / name).stat().st_ino
            if (
                inode not in self._contents
                and name.endswith(".json")
                and int(name[:20])
                and draws.random() < 0.3
            ):
                (folder / name).write_bytes(b"")


def _names(folder: Path) -> Names:
    return {entry.name: entry.inode() for entry in os.scandir(folder)}


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
