"""Objects of a store, as s3://bucket/orders/x.json: written whole, also on condition that nobody else did meanwhile.

Credentials and the endpoint come from the environment, a profile (by boto3) or the role of the instance. All errors are
OSErrors.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pyarrow import fs

from jobs.storage.stored_files import StoredFile, error_text, open_filesystem

if TYPE_CHECKING:
    from obstore.store import ObjectStore

GIVES_UP_AFTER = dt.timedelta(seconds=60)  # of a store that throttles or does not answer
NO_BUCKET = "NoSuchBucket"
CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
IN_ENVIRONMENT = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")

_log = logging.getLogger("tidegate.storage")

Tag = dict[str, str]  # of one version of an object: the store's etag, and its own version where it has one


class Changed(Exception):  # noqa: N818  # what happened to the object
    """Another process wrote the object meanwhile; nothing was written."""


@dataclass(frozen=True)
class ReadObject:
    """The content of an object, and the tag of this version."""

    data: bytes
    tag: Tag


@dataclass(frozen=True)
class ListedObject:
    """An object as a listing shows it. name: below the listed folder. changed: by the store's clock."""

    name: str
    size: int
    changed: dt.datetime
    etag: str


def is_found_here(place: str) -> bool:
    """Whether a place that pyarrow opens is opened here too: obstore is installed, which reads no credentials file and
    asks no bucket for its region, and the environment says all of that.
    """
    complete = all(map(os.environ.get, IN_ENVIRONMENT)) and not os.environ.get("AWS_PROFILE")
    return place.startswith("s3://") and complete and find_spec("obstore") is not None


def can_open(place: str) -> bool:
    """Whether obstore is installed and knows this kind of store."""
    return (
        place.startswith(("s3://", "gs://", "abfs://", "abfss://", "az://"))
        and "?" not in place
        and find_spec("obstore") is not None
    )


def read(place: str) -> ReadObject | None:
    """The object, or None. Raises OSError, also without the bucket."""
    import obstore

    store, name = _opened(place)
    with _as_os_errors():
        try:
            found = obstore.get(store, name)
            return ReadObject(bytes(found.bytes()), _tag(found.meta))
        except FileNotFoundError as error:
            if NO_BUCKET in str(error):
                raise
            return None


def content(place: str) -> bytes:
    """What is in the object. Raises FileNotFoundError without it, and OSError."""
    found = read(place)
    if found is None:
        raise FileNotFoundError(f"there is no object {place}")
    return found.data


def write(place: str, data: bytes) -> Tag:
    """Write the object in place of any other. Raises OSError."""
    import obstore

    store, name = _opened(place)
    with _as_os_errors():
        return _tag(obstore.put(store, name, data))


def create(place: str, data: bytes) -> Tag:
    """Write an object that is not there yet. Raises Changed where it is, and OSError."""
    return _put_if(place, data, "create")


def replace(place: str, data: bytes, over: Tag) -> Tag:
    """Write the object in place of this version. Raises Changed if that is not the current one, and OSError."""
    return _put_if(place, data, over)


def _put_if(place: str, data: bytes, mode: Any) -> Tag:
    import obstore
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    store, name = _opened(place)
    with _as_os_errors():
        try:
            return _tag(obstore.put(store, name, data, mode=mode))
        except (AlreadyExistsError, PreconditionError) as error:
            raise Changed(place) from error
        except FileNotFoundError as error:
            if NO_BUCKET in str(error):
                raise
            raise Changed(place) from error  # it was deleted


def upload(file: Path | IO[bytes], place: str) -> None:
    """Copy a local file to the store; until it is complete nobody sees it. Raises OSError."""
    import obstore

    store, name = _opened(place)
    with _as_os_errors():
        obstore.put(store, name, file)


def download(place: str, file: Path) -> StoredFile:
    """Copy an object to a new local file, in one request. Returns which version it is, to the second. Raises OSError,
    also without the object.
    """
    import obstore

    store, name = _opened(place)
    with _as_os_errors(), file.open("xb") as target:
        found = obstore.get(store, name)
        facts = found.meta  # before its content, with which older versions of obstore end it
        for part in found:
            target.write(part)
    return StoredFile(place, facts["size"], round(facts["last_modified"].timestamp()) * 10**9)


def listed(folder: str, *, after: str = "") -> list[ListedObject]:
    """All objects below a folder, by name; none without it. Raises OSError, also without the bucket.

    An object whose name no other function here can address, such as `a//b` or one with a control character, is left
    out with a warning: no program of ours writes it.

    after: Only those whose names come after this one.
    """
    import obstore
    from obstore.exceptions import InvalidPathError

    store, prefix = _opened(folder.rstrip("/"))
    start = len(prefix) + 1 if prefix else 0
    with _as_os_errors():
        try:
            found = [
                ListedObject(one["path"][start:], one["size"], one["last_modified"], one["e_tag"] or "")
                for page in obstore.list(store, prefix, offset=f"{prefix}/{after}" if after else None)
                for one in page
                if len(one["path"]) > start  # else it is the mark of the folder itself
            ]
        except InvalidPathError:
            found = [one for one in _listed_by_arrow(folder) if one.name > after]
    return sorted(found, key=lambda one: one.name)


def _listed_by_arrow(folder: str) -> Iterator[ListedObject]:
    """The same where one name ends obstore's listing. The etag is made of time and size, which Arrow knows."""
    filesystem, path = open_filesystem(folder.rstrip("/"))
    for info in filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True)):
        name = info.path[len(path) + 1 :]
        if info.type == fs.FileType.File and _is_addressable(name):
            yield ListedObject(name, info.size, info.mtime, f"{info.mtime_ns}-{info.size}")
        elif info.type == fs.FileType.File:
            _log.warning("object %s in %s has an unusual name and is passed over", ascii(name), folder)


def _is_addressable(name: str) -> bool:
    return not CONTROLS.search(name) and not {"", ".", ".."} & set(name.split("/"))


def delete(folder: str, names: Iterable[str]) -> None:
    """Delete objects below a folder; one that is not there is no error. Raises OSError."""
    import obstore

    store, prefix = _opened(folder.rstrip("/"))
    places = [f"{prefix}/{name}" for name in names]
    with _as_os_errors():
        try:
            obstore.delete(store, places)
        except FileNotFoundError:  # of one, where a store deletes one by one: it may be before others
            for place in places:
                with contextlib.suppress(FileNotFoundError):
                    obstore.delete(store, place)


def _opened(place: str) -> tuple[ObjectStore, str]:
    """The store of a bucket, and the name in it."""
    scheme, _, rest = place.partition("://")
    bucket, _, name = rest.partition("/")
    with _as_os_errors():
        return _store(f"{scheme}://{bucket}"), name


@functools.lru_cache(maxsize=8)
def _store(bucket: str) -> ObjectStore:
    from obstore.store import from_url

    more: dict[str, Any] = {"retry_config": {"retry_timeout": GIVES_UP_AFTER}}
    if bucket.startswith("s3://") and os.environ.get("AWS_PROFILE"):
        from obstore.auth.boto3 import Boto3CredentialProvider  # obstore reads no profile itself

        more["credential_provider"] = Boto3CredentialProvider()
    return from_url(bucket, **more)


def _tag(facts: Any) -> Tag:
    return {name: facts[name] for name in ("e_tag", "version") if facts.get(name)}


@contextlib.contextmanager
def _as_os_errors() -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError, ImportError) as error:
        raise OSError(error_text(error)) from error
