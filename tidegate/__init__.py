"""Tidegate: nightly tables enriched from slow or paid outside systems. Users import from here only."""

from jobs.declarations import Enrichment, EventTime, Expectation, Input, Output, Summary, Tolerance
from jobs.environment import Env
from jobs.errors import DeclarationError, PublishConflict, RunStopped, TidegateError
from jobs.ledger.declared import Ledger, Ttl
from jobs.lookups import AsyncFunctionLookup, CoroutineLookup, Http, HttpLookup, Lookup, Row, SqlLookup
from jobs.lookups.auth import ApiKey, Basic, Bearer, OAuth2ClientCredentials
from jobs.lookups.batch import Batch, Pages
from jobs.lookups.coroutine import lookup
from jobs.lookups.prices import Price
from jobs.lookups.services import Cache, Outage, Retry, Service

__all__ = [
    "ApiKey",
    "AsyncFunctionLookup",
    "Basic",
    "Batch",
    "Bearer",
    "Cache",
    "CoroutineLookup",
    "DeclarationError",
    "Enrichment",
    "Env",
    "EventTime",
    "Expectation",
    "Http",
    "HttpLookup",
    "Input",
    "Ledger",
    "Lookup",
    "OAuth2ClientCredentials",
    "Outage",
    "Output",
    "Pages",
    "Price",
    "PublishConflict",
    "Retry",
    "Row",
    "RunStopped",
    "Service",
    "SqlLookup",
    "Summary",
    "TidegateError",
    "Tolerance",
    "Ttl",
    "lookup",
]
