"""Tells URLs from paths, and makes places beside and below others. Imports nothing else."""

import errno
import os
import re
from pathlib import Path
from urllib.parse import unquote


def is_url(place: str) -> bool:
    """Return whether a place is a filesystem URL, such as s3://bucket/orders, and not a path."""
    return "://" in place


def below(place: str, *names: str) -> str:
    """Return the place of these names in a folder."""
    return "/".join((place.rstrip("/"), *names)) if is_url(place) else str(Path(place, *names))


def beside(place: str, name: str) -> str:
    """Return the place of this name in the folder of a place."""
    if is_url(place):
        return f"{place.rstrip('/').rpartition('/')[0]}/{name}"
    return str(Path(place).with_name(name))


def absolute(place: str) -> str:
    """Return a place that other processes can use: a path without links, or the URL."""
    # not `resolve`, which raises RuntimeError for links in a circle; opening names them
    return place if is_url(place) else os.path.realpath(place)


def is_circle(place: str) -> bool:
    """Return whether symbolic links lead from a path to itself."""
    try:
        Path(place).stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def plain(place: str) -> str:
    """Return a place in a single spelling: without a slash at its end."""
    return place.rstrip("/") if is_url(place) else str(Path(place))


def for_spark(place: str) -> str:
    """Return a place for Spark to read, which takes paths for patterns: `orders[1].parquet`."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", place)


def path_from_spark(url: str) -> str:
    """Return the path of Spark's `_metadata.file_path`, percent-encoded file:/x or file:///x.

    Another URL stays as it is.
    """
    return unquote(re.sub(r"^file:/+", "/", url)) if url.startswith("file:") else url
