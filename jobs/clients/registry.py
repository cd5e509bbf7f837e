"""Maps kinds of lookups to their clients, so that declarations load without a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.declare.coroutine_lookup import CoroutineLookup
from jobs.declare.function_lookup import AsyncFunctionLookup
from jobs.declare.http_lookup import HttpLookup
from jobs.declare.sql_lookup import SqlLookup

if TYPE_CHECKING:
    from jobs.clients.client import Client
    from jobs.declare.lookup import Lookup


def client_for(lookup: Lookup, share: int) -> Client:
    """Make the client of a lookup; the client's libraries are imported here, not earlier.

    Args:
        lookup: The declared lookup.
        share: The partition's share of the calls in flight.

    Returns:
        A client that is not open yet.

    Raises:
        DeclarationError: An environment variable that the declaration names is not set, or holds no usable address.
        TypeError: A kind of lookup that has no client.
    """
    match lookup:
        case HttpLookup():
            from jobs.clients.http import HttpClient

            return HttpClient(lookup, share)
        case SqlLookup():
            from jobs.clients.sql import SqlClient

            return SqlClient(lookup, share)
        case CoroutineLookup():
            from jobs.clients.coroutine import CoroutineClient

            return CoroutineClient(lookup, share)
        case AsyncFunctionLookup():
            from jobs.clients.function import FunctionClient

            return FunctionClient(lookup, share)
    raise TypeError(f"no client for a {type(lookup).__name__}")
