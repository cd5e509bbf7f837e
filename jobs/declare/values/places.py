"""Checks declared places of files: folders, and URLs of object stores, which contain no secret."""

import re
from urllib.parse import unquote

from jobs.errors import DeclarationError
from jobs.storage.urls import is_url

SECRETS = re.compile(
    r"secret|passw|pwd|token|credential|signature|^sig$|^sas|(access|account|api|private|shared).?key"
)
# they support conditional writes, which leases and commits need
STORES = ("s3", "gs", "abfs", "abfss")
ICEBERG_NAME = re.compile(r"[^\s.:]+(\.[^\s.:]+){2,}")  # catalog.namespace.table


def require_table(where: str, path: str) -> None:
    """Refuse a place where no table can be published. Raises DeclarationError."""
    require_place(where, path)
    scheme = path.partition("://")[0]
    if is_url(path) and scheme not in STORES:
        raise DeclarationError(
            f"{where}: path is {path!r}; a table is in a folder, or at a URL that begins with "
            f"{', '.join(f'{store}://' for store in STORES)}: publishing needs objects that are "
            "written on condition."
        )


def require_place(where: str, path: str) -> None:
    """Refuse a path that is neither a folder nor a URL without options, such as s3://bucket/orders.

    Raises DeclarationError.
    """
    if not path:
        raise DeclarationError(f"{where}: path is ''; it must be a folder or a URL.")
    refuse_home(where, path)
    refuse_secrets(where, path)
    scheme, _, rest = path.partition("://")
    is_wrong_url = is_url(path) and (
        "?" in rest
        or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme)
        or (scheme in STORES and rest[:1] in ("", "/"))
    )
    if (
        is_wrong_url or ":/" in scheme
    ):  # deltalake takes file:/orders for a URL, and Python does not
        raise DeclarationError(
            f"{where}: path is {path!r}; a URL has a scheme in small letters, a bucket and a path, "
            "such as s3://bucket/orders. "
            "Options of the store, such as AWS_ENDPOINT_URL, go into the environment."
        )


def refuse_home(where: str, path: str) -> None:
    """Refuse ~, which some libraries replace and others do not, so that a table is torn apart."""
    if path.startswith("~"):
        raise DeclarationError(
            f"{where}: path is {path!r}; write the folder in full, because only a shell replaces ~."
        )


def refuse_secrets(where: str, path: str) -> None:
    if _holds_secret(path):
        raise DeclarationError(
            f"{where}: path contains a secret, which messages would show; leave it out: pyarrow "
            "takes it from the same places as the store's own tools, such as the environment "
            "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) or the role of the instance."
        )


def _holds_secret(path: str) -> bool:
    """Return whether a URL has a password, an S3 access key, or a parameter like a secret.

    A password with a slash ends at the next `@`: what stands before the slash is then no bucket.
    """
    if not is_url(path):
        return False
    scheme, _, rest = path.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, has_user, _ = authority.rpartition("@")
    if has_user and (":" in user or scheme.lower().startswith("s3")):
        return True
    if "@" in rest and not re.fullmatch(r"[^:]*(:[0-9]*)?", authority):
        return True
    names = (part.partition("=")[0] for part in re.split(r"[&;]", rest.partition("?")[2]))
    return any(SECRETS.search(unquote(name).lower()) for name in names)
