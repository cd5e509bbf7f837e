"""Posts a message to a webhook. Only a 2xx answer to this very request counts as delivered."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

WEBHOOK = "TIDEGATE_ALERT_WEBHOOK"  # the address is a secret: no message names it
PATIENCE = 10.0  # s, for the webhook to take a message
NO_ADDRESS = f"{WEBHOOK} must be an http:// or https:// address"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: after a 301, 302 or 303 the request becomes a GET without the message,
    whose answer looks like a delivery.
    """

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


def post(address: str, message: Mapping[str, Any]) -> None:
    """Deliver the message as JSON. Raises OSError, which names no address, if it is refused."""
    try:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise urllib.error.URLError(NO_ADDRESS)
        request = urllib.request.Request(  # noqa: S310  # its scheme is known
            address,
            json.dumps(message).encode(),
            {"Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=PATIENCE):
            pass
    except (ValueError, http.client.InvalidURL):  # whose text holds the address
        raise urllib.error.URLError(NO_ADDRESS) from None
    except http.client.HTTPException as error:
        raise urllib.error.URLError(f"its answer is not HTTP ({type(error).__name__})") from None


def host(address: str) -> str:
    """Return ` at hooks.example`, or nothing for an address without a host."""
    try:
        name = urlsplit(address).hostname
    except ValueError:
        return ""
    return f" at {name}" if name else ""


def reason(error: OSError) -> str:
    """Return an HTTP status, or the error of the network, for the end of a sentence."""
    status = getattr(error, "code", None)
    if status is None:
        return str(getattr(error, "reason", None) or type(error).__name__)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return (
            f"{status}, a redirect, which is not followed. Set {WEBHOOK} to the address that it "
            "leads to"
        )
    return str(status)
