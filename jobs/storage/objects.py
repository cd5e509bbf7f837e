"""Objects of a store, such as s3://bucket/orders/x.json: written whole, also conditionally.

Credentials and the endpoint come from the environment, a profile (by boto3) or the role of the
instance. All errors are OSErrors.
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

# identifies a version of an object: the store's etag, and the version id if the store has one
Tag = dict[str, str]


class Changed(Exception):  # noqa: N818  # what happened to the object
    """Another process wrote the object meanwhile; nothing was written."""


@dataclass(frozen=True)
class ReadObject:
    """The content of an object, and the tag of this version."""

    data: bytes
    tag: Tag


@dataclass(frozen=True)
class ListedObject:
    """An object in a listing.

    Attributes:
        name: Its name below the listed folder.
        changed: The time of its last change by the store's clock.
        etag: The store's etag.
    """

    name: str
    changed: dt.datetime
    etag: str


def is_configured(place: str) -> bool:
    """Return whether obstore finds the credentials and the region of a place.

    Unlike pyarrow, obstore reads no credentials file and asks no bucket for its region, so both
    must be in the environment.
    """
    complete = all(map(os.environ.get, IN_ENVIRONMENT)) and not os.environ.get("AWS_PROFILE")
    return place.startswith("s3://") and complete and find_spec("obstore") is not None


def can_open(place: str) -> bool:
    """Return whether obstore is installed and supports this kind of store."""
    return (
        place.startswith(("s3://", "gs://", "abfs://", "abfss://", "az://"))
        and "?" not in place
        and find_spec("obstore") is not None
    )


def read(place: str) -> ReadObject | None:
    """Return the object, or None. Raises OSError, also if the bucket is missing."""
    store, name = _opened(place)
    with _as_os_errors():
        try:
            found = store.get(name)
            # read before the content, because older versions of obstore drop it then
            tag = _tag(found.meta)
            return ReadObject(bytes(found.bytes()), tag)
        except FileNotFoundError as error:
            if NO_BUCKET in str(error):
                raise
            return None


def content(place: str) -> bytes:
    """Return an object's content. Raises FileNotFoundError if it is missing, and OSError."""
    found = read(place)
    if found is None:
        raise FileNotFoundError(f"there is no object {place}")
    return found.data


def small_content(place: str, largest: int) -> bytes | None:
    """Return the content of an object of at most `largest` bytes.

    Returns:
        The content; None, without reading it, for a larger object, and for a name that only pyarrow
        opens.

    Raises:
        FileNotFoundError: The object is missing.
        OSError: The store fails.
    """
    store, name = _opened(place)
    if not _is_addressable(name):
        return None
    with _as_os_errors():
        try:
            found = store.get(name)
            return bytes(found.bytes()) if found.meta["size"] <= largest else None
        except FileNotFoundError as error:
            missing = (
                f"there is no object {place}" if NO_BUCKET not in str(error) else error_text(error)
            )
    raise FileNotFoundError(missing)


def write(place: str, data: bytes) -> Tag:
    """Write the object, replacing any other. Raises OSError."""
    store, name = _opened(place)
    with _as_os_errors():
        return _tag(store.put(name, data))


def create(place: str, data: bytes) -> Tag:
    """Write a new object. Raises Changed if it exists, and OSError."""
    return _put_if(place, data, "create")


def replace(place: str, data: bytes, over: Tag) -> Tag:
    """Replace this version of the object. Raises Changed if it is not current, and OSError."""
    try:
        return _put_if(place, data, over)
    except Changed:
        current = read(place)
        if current is None or current.tag != over:
            raise
        # Ceph's gateway 16 quotes the etags that it gives, and compares those of a request without
        # quotes
        return _put_if(place, data, {name: value.strip('"') for name, value in over.items()})


def _put_if(place: str, data: bytes, mode: Any) -> Tag:
    store, name = _opened(place)
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    with _as_os_errors():
        try:
            return _tag(store.put(name, data, mode=mode))
        except (AlreadyExistsError, PreconditionError) as error:
            raise Changed(place) from error
        except FileNotFoundError as error:
            if NO_BUCKET in str(error):
                raise
            raise Changed(place) from error  # it was deleted


def upload(file: Path | IO[bytes], place: str) -> None:
    """Copy a local file to the store; it is invisible until complete. Raises OSError."""
    store, name = _opened(place)
    with _as_os_errors():
        store.put(name, file)


def copy(source: str, target: str) -> None:
    """Have the store copy an object of a bucket within it. Raises OSError."""
    store, name = _opened(source)
    with _as_os_errors():
        store.copy(name, _opened(target)[1])


def download(place: str, file: Path) -> StoredFile:
    """Copy an object to a new local file, in a single request.

    Returns its version, whose time is exact to the second. Raises OSError, also if the object is
    missing.
    """
    store, name = _opened(place)
    with _as_os_errors(), file.open("xb") as target:
        found = store.get(name)
        # read before the content, because older versions of obstore drop it then
        facts = found.meta
        for part in found:
            target.write(part)
    return StoredFile(place, facts["size"], round(facts["last_modified"].timestamp()) * 10**9)


def listed(folder: str) -> list[ListedObject]:
    """Return all objects below a folder's URL, by name; empty if it is missing. Raises OSError.

    A missing bucket is an error. An object whose name no other function here can address, such as
    `a//b` or a name with a control character, is left out with a warning: Tidegate writes no such
    object.
    """
    store, prefix = _opened(folder.rstrip("/"))
    from obstore.exceptions import InvalidPathError

    start = len(prefix) + 1 if prefix else 0
    with _as_os_errors():
        try:
            found = [
                ListedObject(entry["path"][start:], entry["last_modified"], entry["e_tag"] or "")
                for page in store.list(prefix)
                for entry in page
                if len(entry["path"]) > start  # an empty name marks the folder itself
            ]
        except InvalidPathError:
            found = [*_listed_by_arrow(folder)]
    return sorted(found, key=lambda listed: listed.name)


def _listed_by_arrow(folder: str) -> Iterator[ListedObject]:
    """Yield the objects from Arrow's listing, which has no etag: time and size replace it."""
    filesystem, path = open_filesystem(folder.rstrip("/"))
    for info in filesystem.get_file_info(
        fs.FileSelector(path, recursive=True, allow_not_found=True)
    ):
        name = info.path[len(path) + 1 :]
        if info.type == fs.FileType.File and _is_addressable(name):
            yield ListedObject(name, info.mtime, f"{info.mtime_ns}-{info.size}")
        elif info.type == fs.FileType.File:
            _log.warning(
                "object %s in %s has an unusual name and is passed over", ascii(name), folder
            )


def _is_addressable(name: str) -> bool:
    return not CONTROLS.search(name) and not {"", ".", ".."} & set(name.split("/"))


def delete(folder: str, names: Iterable[str]) -> None:
    """Delete objects below a folder; missing objects are no error. Raises OSError."""
    store, prefix = _opened(folder.rstrip("/"))
    places = [f"{prefix}/{name}" for name in names]
    with _as_os_errors():
        try:
            store.delete(places)
        # a store that deletes objects one by one stops at a missing object
        except FileNotFoundError:
            for place in places:
                with contextlib.suppress(FileNotFoundError):
                    store.delete(place)


def _opened(place: str) -> tuple[ObjectStore, str]:
    """Return the store of a bucket, and the name in it."""
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
    # the package first: of threads that begin with one of its modules, some get it half loaded
    import obstore  # noqa: F401
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError, ImportError) as error:
        raise OSError(error_text(error)) from error
