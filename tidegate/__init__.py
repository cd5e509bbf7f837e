"""Tidegate: nightly tables enriched from slow or paid outside systems. Users import from here only."""

from jobs.declarations import Enrichment, EventTime, Expectation, Input, Output, Summary, Tolerance
from jobs.errors import DeclarationError, PublishConflict, RunStopped, TidegateError
from jobs.lookups import AsyncFunctionLookup, HttpLookup, Lookup, SqlLookup
from jobs.services import Cache, Env, Outage, Retry, Service

__all__ = [
    "AsyncFunctionLookup",
    "Cache",
    "DeclarationError",
    "Enrichment",
    "Env",
    "EventTime",
    "Expectation",
    "HttpLookup",
    "Input",
    "Lookup",
    "Outage",
    "Output",
    "PublishConflict",
    "Retry",
    "RunStopped",
    "Service",
    "SqlLookup",
    "Summary",
    "TidegateError",
    "Tolerance",
]
