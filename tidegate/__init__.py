"""Tidegate: nightly tables enriched from slow or paid outside systems. The public interface."""

import tidegate.quiet_start  # noqa: F401  # first, because the others take a second

# isort: split
from jobs.declare.auth import ApiKey, Basic, Bearer, OAuth2ClientCredentials
from jobs.declare.batch import Batch, Pages
from jobs.declare.coroutine_lookup import CoroutineLookup, Http, Row, lookup
from jobs.declare.enrichment import Enrichment, EventTime, Expectation, Summary, Tolerance
from jobs.declare.function_lookup import AsyncFunctionLookup
from jobs.declare.http_lookup import HttpLookup
from jobs.declare.inputs import Input
from jobs.declare.ledger_settings import Ledger, Ttl
from jobs.declare.limits.adaptive import Adaptive
from jobs.declare.limits.budgets import Budget
from jobs.declare.limits.rates import Rate
from jobs.declare.lookup import Lookup
from jobs.declare.published.outputs import Output
from jobs.declare.published.windows import Session, Sliding, Tumbling, Window
from jobs.declare.services import Cache, Outage, Retry, Service
from jobs.declare.sql_lookup import SqlLookup
from jobs.declare.values.env import Env
from jobs.declare.values.prices import Price
from jobs.declare.vendor_jobs import (
    NOT_KNOWN_YET,
    Failed,
    Item,
    JobLookup,
    Over,
    Refused,
    Running,
    jobs,
)
from jobs.declare.waterfall import Waterfall
from jobs.errors import DeclarationError, PublishConflict, RunStopped, TidegateError
from tidegate.frames import enrich

__all__ = [
    "NOT_KNOWN_YET",
    "Adaptive",
    "ApiKey",
    "AsyncFunctionLookup",
    "Basic",
    "Batch",
    "Bearer",
    "Budget",
    "Cache",
    "CoroutineLookup",
    "DeclarationError",
    "Enrichment",
    "Env",
    "EventTime",
    "Expectation",
    "Failed",
    "Http",
    "HttpLookup",
    "Input",
    "Item",
    "JobLookup",
    "Ledger",
    "Lookup",
    "OAuth2ClientCredentials",
    "Outage",
    "Output",
    "Over",
    "Pages",
    "Price",
    "PublishConflict",
    "Rate",
    "Refused",
    "Retry",
    "Row",
    "RunStopped",
    "Running",
    "Service",
    "Session",
    "Sliding",
    "SqlLookup",
    "Summary",
    "TidegateError",
    "Tolerance",
    "Ttl",
    "Tumbling",
    "Waterfall",
    "Window",
    "enrich",
    "jobs",
    "lookup",
]
