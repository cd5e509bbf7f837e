"""What is shown in place of personal values, and of errors that may repeat them."""

import re

HIDDEN = "***"
PERSONAL = "its error may repeat a personal key"
# of HTTP, at the beginning of an error; a server may leave out the phrase behind it, as Tomcat does
_STATUS = re.compile(r"[1-5]\d\d(?= [A-Za-z]| ?:|$)")


def http_status(error: str | None) -> str:
    """Return the HTTP status with which an error begins: the only part that repeats no key."""
    begin = _STATUS.match(error or "")
    return begin[0] if begin else ""


def shown_reason(reason: str) -> str:
    """Return what is shown of an error of a call with a personal key."""
    return http_status(reason) or f"{PERSONAL}; `try` shows it"
