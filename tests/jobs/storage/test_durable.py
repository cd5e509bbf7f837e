"""A file that survives a power cut is written whole or not at all, whatever the disk refuses."""

import errno
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.storage import durable


def test_whichever_sync_fails_readers_see_the_old_bytes_or_the_new_ones_and_no_draft_stays(
    tmp_path, monkeypatch
):
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


def test_the_names_of_folders_that_are_made_are_on_the_disk_too(tmp_path, monkeypatch):
    synced, sync = [], durable.sync
    monkeypatch.setattr(durable, "sync", lambda path: (synced.append(path), sync(path)))
    durable.write(tmp_path / "a" / "b" / "record.json", b"new")
    assert synced == [tmp_path.parent, tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_the_name_of_a_folder_is_on_the_disk_though_who_made_it_was_killed(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()  # and its maker was killed before it synced the name
    synced, sync = [], durable.sync
    monkeypatch.setattr(durable, "sync", lambda path: (synced.append(path), sync(path)))
    durable.write(tmp_path / "a" / "record.json", b"new")
    assert synced == [tmp_path, tmp_path / "a"]


def test_what_cannot_be_looked_at_is_not_taken_for_absent(tmp_path):
    assert not durable.is_there(tmp_path / "none")
    assert not durable.is_there(Path(__file__) / "none")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links"):
        durable.is_there(loop)


def test_writers_of_a_file_at_once_do_not_take_each_others_drafts(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: durable.replace(tmp_path / "index.html", b"a page"), range(400)))
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
