"""What is asked for every row, as declared: free of Spark, so that everybody can load it."""

from jobs.lookups.coroutine import CoroutineLookup, Http, Row
from jobs.lookups.function import AsyncFunctionLookup
from jobs.lookups.http import HttpLookup
from jobs.lookups.lookup import Lookup
from jobs.lookups.sql import SqlLookup

__all__ = [
    "AsyncFunctionLookup",
    "CoroutineLookup",
    "Http",
    "HttpLookup",
    "Lookup",
    "Row",
    "SqlLookup",
]
