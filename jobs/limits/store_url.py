"""The store of the limits, named by an environment variable."""

from urllib.parse import urlsplit

from jobs.declare.extras import require_extra
from jobs.errors import DeclarationError
from jobs.limits.store import LimitStore

LIMITS_URL = "TIDEGATE_LIMITS_URL"


def open_store(url: str, *, patience: float = 5.0) -> LimitStore:
    """The store at postgresql://user@host/database or file:///path, not connected yet. patience: s to wait for it.

    Raises DeclarationError for any other address.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # whose text may hold a password
        raise DeclarationError(f"{LIMITS_URL} is no address: its host or its port is none.") from None
    if parts.scheme in ("postgresql", "postgres") and parts.hostname:
        require_extra("postgres", LIMITS_URL)
        from jobs.limits.postgres_store import PostgresStore

        return PostgresStore(url, patience=patience)
    if parts.scheme == "file" and not parts.netloc and len(parts.path) > 1:
        from jobs.limits.file_store import FileStore

        return FileStore(parts.path, patience=patience)
    raise DeclarationError(
        f"{LIMITS_URL} is {parts.scheme or url[:20]!r}: it must be postgresql://user@host/database, or "
        "file:///path/of/a/file on a disk of this machine."
    )
