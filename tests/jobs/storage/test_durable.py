"""A file that survives a power cut is written whole or not at all, whatever the disk refuses."""

import errno
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.storage import durable


def test_a_failed_sync_leaves_the_old_or_the_new_bytes_and_no_draft(tmp_path, monkeypatch):
    sync = os.fsync
    for step in itertools.count():
        path = tmp_path / str(step) / "deep" / "record.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"old")
        left = itertools.count()

        def failing(handle, left=left, step=step):
            if next(left) == step:
                raise OSError(errno.EIO, "Input/output error")
            sync(handle)

        monkeypatch.setattr(os, "fsync", failing)
        try:
            durable.write(path, b"new")
        except OSError as error:
            assert error.filename == str(path)  # noqa: PT017  # and then goes on
            assert path.read_bytes() in (b"old", b"new")
            assert list(path.parent.iterdir()) == [path]
        else:
            assert path.read_bytes() == b"new"
            break
    assert step == 3  # the folder's name, the file, then its name


def test_new_folders_are_synced_to_the_disk(tmp_path, monkeypatch):
    synced, sync = [], durable.sync
    monkeypatch.setattr(durable, "sync", lambda path: (synced.append(path), sync(path)))
    durable.write(tmp_path / "a" / "b" / "record.json", b"new")
    assert synced == [tmp_path.parent, tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_a_folder_is_synced_although_its_creator_was_killed(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()  # and its maker was killed before it synced the name
    synced, sync = [], durable.sync
    monkeypatch.setattr(durable, "sync", lambda path: (synced.append(path), sync(path)))
    durable.write(tmp_path / "a" / "record.json", b"new")
    assert synced == [tmp_path, tmp_path / "a"]


def test_a_path_that_cannot_be_read_is_not_reported_as_absent(tmp_path):
    assert not durable.is_there(tmp_path / "none")
    assert not durable.is_there(Path(__file__) / "none")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links"):
        durable.is_there(loop)


def test_concurrent_writers_of_a_file_use_separate_drafts(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: durable.replace(tmp_path / "index.html", b"a page"), range(400)))
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
