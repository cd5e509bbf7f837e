"""Which places are URLs, and places beside and below others. Declarations ask it too, so it imports nothing of ours."""

from pathlib import Path


def is_url(place: str) -> bool:
    """Whether a place is a filesystem URL, as s3://bucket/orders, and not a path."""
    return "://" in place


def below(place: str, *names: str) -> str:
    """The place of these names in a folder."""
    return "/".join((place.rstrip("/"), *names)) if is_url(place) else str(Path(place, *names))


def beside(place: str, name: str) -> str:
    """The place of this name in the folder that a place is in."""
    return f"{place.rstrip('/').rpartition('/')[0]}/{name}" if is_url(place) else str(Path(place).with_name(name))


def absolute(place: str) -> str:
    """A place that another process finds: a path without links, or the URL."""
    return place if is_url(place) else str(Path(place).resolve())


def plain(place: str) -> str:
    """A place in one spelling: without a slash at its end."""
    return place.rstrip("/") if is_url(place) else str(Path(place))
