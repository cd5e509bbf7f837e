"""The auth of an OpenAPI operation, as a declaration has it."""

from collections.abc import Mapping
from itertools import chain
from urllib.parse import urljoin

from jobs.commands.describing.openapi_document import OpenApi, Operation
from jobs.commands.describing.openapi_texts import quoted
from jobs.errors import DeclarationError


def auth_of(
    document: OpenApi, operation: Operation, prefix: str
) -> tuple[str | None, Mapping[str, str]]:
    """Return the code of the first scheme that Tidegate knows, and its secret variables.

    Raises DeclarationError if the operation needs a scheme, and Tidegate knows none of them.
    """
    ways = document.security(operation)
    for scheme in chain(*ways):
        kind, name = scheme.get("type"), f"{prefix}_KEY"
        if kind == "apiKey" and scheme["in"] in ("header", "query"):
            return (
                f"ApiKey(Env({quoted(name)}), {scheme['in']}={quoted(scheme['name'])})",
                _unset(name),
            )
        if kind == "http" and scheme["scheme"].lower() == "basic":
            both = [f"{prefix}_USER", f"{prefix}_PASSWORD"]
            return f"Basic(Env({quoted(both[0])}), Env({quoted(both[1])}))", _unset(*both)
        flow = scheme.get("flows", {}).get("clientCredentials")
        if flow:
            both = [f"{prefix}_CLIENT_ID", f"{prefix}_CLIENT_SECRET"]
            return (
                "OAuth2ClientCredentials(\n"
                f"            token_url=Env({quoted(prefix + '_TOKEN_URL')}),\n"
                f"            client_id=Env({quoted(both[0])}),\n"
                f"            client_secret=Env({quoted(both[1])}),\n"
                "        )"
            ), {f"{prefix}_TOKEN_URL": absolute(document, flow["tokenUrl"]), **_unset(*both)}
        if kind in ("http", "oauth2", "openIdConnect"):
            return f"Bearer(Env({quoted(prefix + '_TOKEN')}))", _unset(f"{prefix}_TOKEN")
    if ways and all(ways):
        kinds = ", ".join(
            f"{scheme.get('type')} {scheme.get('in', '')}".rstrip() for scheme in chain(*ways)
        )
        raise DeclarationError(
            f"{operation.name}: its auth ({kinds}) is not supported by a lookup. Choose another "
            "with --operation, or write a coroutine that sends it."
        )
    return None, {}


def absolute(document: OpenApi, address: str) -> str:
    """Return an address of the document; a relative one begins at the first server's."""
    given = urljoin(f"{document.address}/", quoted(address)[1:-1])
    return given if given.startswith("http") else f"http://localhost{given}"


def _unset(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "")
