"""Maps kinds of lookups to their clients, so that declarations load without a client."""

from jobs.clients.client import Client
from jobs.declare.coroutine_lookup import CoroutineLookup
from jobs.declare.function_lookup import AsyncFunctionLookup
from jobs.declare.http_lookup import HttpLookup
from jobs.declare.lookup import Lookup
from jobs.declare.sql_lookup import SqlLookup
from jobs.declare.vendor_jobs import JobLookup


def client_for(lookup: Lookup, share: int) -> Client:
    """Return the client of a lookup, not open yet, and import its libraries only now.

    Raises:
        DeclarationError: A declared environment variable is not set, or holds no usable address.
    """
    match lookup:
        case HttpLookup():
            from jobs.clients.http.http_client import HttpClient

            return HttpClient(lookup, share)
        case SqlLookup():
            from jobs.clients.sql.sql_client import SqlClient

            return SqlClient(lookup, share)
        case JobLookup():
            from jobs.clients.vendor_session import JobClient

            return JobClient(lookup, share)
        case CoroutineLookup():
            from jobs.clients.coroutine import CoroutineClient

            return CoroutineClient(lookup, share)
        case AsyncFunctionLookup():
            from jobs.clients.function import FunctionClient

            return FunctionClient(lookup)
    raise TypeError(f"no client for a {type(lookup).__name__}")
