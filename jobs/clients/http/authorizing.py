"""Authentication on an executor: secrets are read here when a task starts."""

from jobs.clients.http.authorizer import Authorizer
from jobs.clients.http.secret_texts import base64_text, read_secret
from jobs.clients.http.token_headers import TokenHeaders
from jobs.clients.http.token_request import TokenRequest
from jobs.clients.http.transport import Transport
from jobs.declare.auth import ApiKey, Auth, Basic, Bearer
from jobs.errors import DeclarationError


def authorizer(auth: Auth | None, service: str, transport: Transport | None = None) -> Authorizer:
    """Return the authorizer of a service; it asks for tokens by this transport.

    Raises:
        DeclarationError: A secret is not set or not valid in a header.
    """
    match auth:
        case None:
            return Authorizer()
        case ApiKey():
            key = read_secret(auth.key)
            if auth.query is not None:
                return Authorizer({}, (key,), (auth.query, key))
            return Authorizer({auth.header: key}, (key,))
        case Bearer():
            token = read_secret(auth.token)
            return Authorizer({"Authorization": f"Bearer {token}"}, (token,))
        case Basic():
            user, password = read_secret(auth.user), read_secret(auth.password)
            if ":" in user:
                raise DeclarationError(
                    f"{auth.user.name} contains a colon, which no user name of HTTP Basic has."
                )
            pair = base64_text(f"{user}:{password}")
            return Authorizer({"Authorization": f"Basic {pair}"}, (pair, password))
    request = TokenRequest(auth, service, transport)
    return TokenHeaders(request, service, auth.refresh_before.total_seconds())
