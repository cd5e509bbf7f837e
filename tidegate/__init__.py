"""Tidegate: nightly tables enriched from slow or paid outside systems. Users import from here only."""

from jobs.declarations import Enrichment, EventTime, Expectation, Input, Output, Summary, Tolerance
from jobs.environment import Env
from jobs.errors import DeclarationError, PublishConflict, RunStopped, TidegateError
from jobs.ledger.declared import Ledger, Ttl
from jobs.lookups import AsyncFunctionLookup, HttpLookup, Lookup, SqlLookup
from jobs.lookups.auth import ApiKey, Basic, Bearer, OAuth2ClientCredentials
from jobs.lookups.batch import Batch, Pages
from jobs.lookups.prices import Price
from jobs.lookups.services import Cache, Outage, Retry, Service

__all__ = [
    "ApiKey",
    "AsyncFunctionLookup",
    "Basic",
    "Batch",
    "Bearer",
    "Cache",
    "DeclarationError",
    "Enrichment",
    "Env",
    "EventTime",
    "Expectation",
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
    "RunStopped",
    "Service",
    "SqlLookup",
    "Summary",
    "TidegateError",
    "Tolerance",
    "Ttl",
]
