"""The text of a small declaration: towns and their weather, asked of a service over HTTP."""

TEXT = """
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Service

towns = Enrichment(
    name="towns",
    input=Input(path="raw"),
    lookups=[
        HttpLookup(
            name="weather",
            service=Service(name="weather", url="{url}", max_concurrency=5),
            request="GET /{{town}}",
            keys={{"town": "town"}},
            returns="{returns}",
            {of_lookup}timeout=5.0,
        )
    ],
    output=Output(path="published"),
    ledger={ledger},
)
"""


def declare_towns(url, *, returns="degrees INT", of_lookup="", ledger="None"):
    """The text of `enrichments/towns.py`. of_lookup: further arguments of the lookup."""
    return TEXT.format(url=url, returns=returns, of_lookup=of_lookup, ledger=ledger)
