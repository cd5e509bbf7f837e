"""Which client asks for which kind of lookup. A declaration does not know its client: it loads without one."""

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
    """Makes the client of a lookup; the client's own libraries are loaded here and not before.

    Args:
        lookup: As declared.
        share: The calls in flight that one partition may have.

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
    raise TypeError(f"no client asks for a {type(lookup).__name__}")
