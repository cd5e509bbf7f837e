"""Proxies, authorities and client certificates, at a real TLS server and a real forward proxy on
loopback.
"""

import asyncio
import base64
import contextlib
import ssl

import pytest
from aiohttp import web

from jobs.clients.client import CallFailed
from jobs.clients.http.token_headers import _TOKENS
from jobs.clients.http.transport import Transport
from jobs.declare.values.fingerprint import fingerprint
from jobs.errors import AccessRefused, DeclarationError, RunStopped
from jobs.run.plan.service_checks import check_service
from tests.jobs.clients.http.test_http_client import ask, lookup
from tests.support.authority import HOST, Authority
from tests.support.loop_thread import LoopThread, end_service
from tidegate import Enrichment, Env, Input, OAuth2ClientCredentials, Output, Service

pytestmark = pytest.mark.process


class TlsService:
    """An HTTPS service; it wants a certificate of who asks, if told so."""

    def __init__(self, authority, loop, *, wants_certificate=False):
        self.log = []
        self._loop = loop
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.ca)
        context.load_cert_chain(authority.certificate("server"))
        context.verify_mode = ssl.CERT_REQUIRED if wants_certificate else ssl.CERT_NONE
        loop.run(self._start(context))

    async def _answer(self, request):
        self.log.append(request.path)
        if request.method == "POST":
            return web.json_response({"access_token": "abc", "token_type": "bearer"})
        return web.json_response({"temp_c": 3.9, "wind": {"speed": 5.1}})

    async def _start(self, context):
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"https://127.0.0.1:{self.port}"

    def stop(self):
        self._loop.run(end_service(self._runner))


class ForwardProxy:
    """Tunnels CONNECT, and forwards requests for whole addresses, always to the port that it was
    given.
    """

    def __init__(self, loop, port, *, password=None):
        self.log = []  # the first line of each request
        self._port = port
        self._wanted = password and base64.b64encode(password.encode()).decode()
        self._server = loop.run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._loop = loop
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        line = head.split(b"\r\n")[0].decode()
        self.log.append(line)
        if self._wanted and f"Basic {self._wanted}".encode() not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._port)
        if line.startswith("CONNECT "):
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            method, address, version = line.split(" ")
            path = "/" + address.split("/", 3)[3]
            to_writer.write(head.replace(line.encode(), f"{method} {path} {version}".encode(), 1))
        try:
            await asyncio.gather(_pipe(reader, to_writer), _pipe(to_reader, writer))
        finally:
            to_writer.close()
            writer.close()

    def stop(self):
        self._loop.loop.call_soon_threadsafe(self._server.close)


async def _pipe(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    _TOKENS.clear()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def start():
    """Starts servers, and stops them at the end."""
    loop, started = LoopThread().start(), []

    def start(kind, *arguments, **options):
        started.append(kind(*arguments, **options))
        return started[-1]

    yield lambda kind, *arguments, **options: start(
        kind, *_with_loop(kind, loop, arguments), **options
    )
    for service in reversed(started):
        service.stop()
    loop.stop()


def _with_loop(kind, loop, arguments):
    return (arguments[0], loop) if kind is TlsService else (loop, *arguments)


def of(url, **fields):
    return lookup(url, service=Service(name="geo", url=url, max_concurrency=2, **fields))


ANSWER = [(3.9, 5.1)]


def test_a_private_certificate_authority_is_trusted_only_if_declared(authority, start, monkeypatch):
    service = start(TlsService, authority)
    (failure,) = ask(of(service.url), ("JFK",))
    assert isinstance(failure, CallFailed)
    assert ask(of(service.url, ca=authority.ca), ("JFK",)) == ANSWER
    monkeypatch.setenv("OUR_CA", authority.ca)
    assert ask(of(service.url, ca=Env("OUR_CA")), ("JFK",)) == ANSWER


def test_a_certificate_that_nobody_trusts_stops_a_run_before_any_call(authority, start):
    service = start(TlsService, authority)
    trusted = of(service.url, ca=authority.ca)
    for declared, error in ((trusted, None), (of(service.url), "self-signed certificate")):
        enrichment = Enrichment(
            name="e", input=Input(path="in"), lookups=[declared], output=Output(path="out")
        )
        with pytest.raises(RunStopped, match=error) if error else contextlib.nullcontext():
            check_service(enrichment, declared)
    assert service.log == []


def test_a_service_that_wants_a_client_certificate_gets_it(authority, start):
    service = start(TlsService, authority, wants_certificate=True)
    (failure,) = ask(of(service.url, ca=authority.ca), ("JFK",))
    assert isinstance(failure, CallFailed)
    ours = authority.certificate("us")
    assert ask(of(service.url, ca=authority.ca, client_certificate=ours), ("JFK",)) == ANSWER
    assert (
        ask(of(service.url, ca=authority.ca, client_certificate=ours, client_key=ours), ("JFK",))
        == ANSWER
    )


def test_a_token_is_fetched_with_the_declared_certificates(authority, start, monkeypatch):
    service = start(TlsService, authority, wants_certificate=True)
    proxy = start(ForwardProxy, service.port)
    monkeypatch.setenv("SECRET", "x")
    auth = OAuth2ClientCredentials(
        token_url=f"https://{HOST}/token", client_id=Env("SECRET"), client_secret=Env("SECRET")
    )
    ours = authority.certificate("us")
    declared = of(
        f"https://{HOST}", auth=auth, ca=authority.ca, client_certificate=ours, proxy=proxy.url
    )
    assert ask(declared, ("JFK",)) == ANSWER
    assert service.log == ["/token", "/v1/JFK"]
    assert proxy.log == [f"CONNECT {HOST}:443 HTTP/1.1"] * 2


def test_a_declared_proxy_is_used_and_its_password_is_shown_nowhere(authority, start, monkeypatch):
    service = start(TlsService, authority)
    proxy = start(ForwardProxy, service.port, password="us:pa55word")
    declared = of(f"https://{HOST}", ca=authority.ca, proxy=Env("OUR_PROXY"))
    monkeypatch.setenv("OUR_PROXY", proxy.url.replace("://", "://us:pa55word@"))
    assert ask(declared, ("JFK",)) == ANSWER
    assert proxy.log == [f"CONNECT {HOST}:443 HTTP/1.1"]
    monkeypatch.setenv("OUR_PROXY", proxy.url.replace("://", "://us:wrong55@"))
    (refused,) = ask(declared, ("JFK",))
    assert isinstance(refused, AccessRefused)
    assert str(refused).startswith(f"geo at https://{HOST}: its proxy denies access: 407 ")
    assert "wrong55" not in str(refused)


def test_the_proxies_of_the_environment_are_used_as_other_programs_use_them(
    authority, start, service, monkeypatch
):
    tls = start(TlsService, authority)
    proxy = start(ForwardProxy, tls.port)
    plain_proxy = start(ForwardProxy, int(service.url.rpartition(":")[2]))
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    monkeypatch.setenv("http_proxy", plain_proxy.url)
    assert ask(of(f"https://{HOST}", ca=authority.ca), ("JFK",)) == ANSWER
    assert ask(of(f"http://{HOST}"), ("JFK",)) == ANSWER
    assert proxy.log == [f"CONNECT {HOST}:443 HTTP/1.1"]
    assert plain_proxy.log == [f"GET http://{HOST}/v1/JFK HTTP/1.1"]
    assert ask(of(tls.url, ca=authority.ca), ("JFK",)) == ANSWER  # loopback needs no proxy
    monkeypatch.setenv("NO_PROXY", f"other.test,{HOST}")
    (failure,) = ask(of(f"http://{HOST}"), ("JFK",))
    assert str(failure).startswith("cannot connect: ")
    assert (len(proxy.log), len(plain_proxy.log)) == (1, 1)


@pytest.mark.parametrize(
    ("exceptions", "url", "is_used"),
    [
        ("api.test:8443", "https://api.test:8443", False),
        ("api.test:8443", "https://api.test", True),
        ("10.0.0.0/8, fd00::/8", "http://10.1.2.3", False),
        ("10.0.0.0/8, fd00::/8", "http://[fd00::1]:8080", False),
        ("10.0.0.0/8", "http://11.1.2.3", True),
        ("fd00::1", "http://[fd00::1]:8080", False),
    ],
)
def test_no_proxy_accepts_ports_and_networks(monkeypatch, exceptions, url, is_used):
    monkeypatch.setenv("http_proxy", "http://proxy.test:3128")
    monkeypatch.setenv("https_proxy", "http://proxy.test:3128")
    monkeypatch.setenv("no_proxy", exceptions)
    found = Transport(Service(name="weather", url=url, max_concurrency=1)).proxy_for(url)
    assert (found is not None) is is_used


def test_an_unreachable_proxy_is_named_as_the_proxy(start, closed):
    (failure,) = ask(of(f"https://{HOST}", proxy=closed), ("JFK",))
    assert str(failure).startswith("cannot connect to the proxy: ")
    assert failure.passing


@pytest.fixture
def closed():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def test_files_and_addresses_that_cannot_be_used_are_refused_before_any_call(
    authority, tmp_path, monkeypatch
):
    def sentence(**fields):
        declared = of("http://127.0.0.1:1", **fields)
        enrichment = Enrichment(
            name="e", input=Input(path="raw"), lookups=[declared], output=Output(path="out")
        )
        with pytest.raises(DeclarationError) as refused:
            check_service(enrichment, enrichment.lookups[0])
        return str(refused.value)

    (tmp_path / "empty.pem").touch()
    message = sentence(ca=str(tmp_path / "none.pem"))
    assert (
        f"service geo: ca: {tmp_path / 'none.pem'} cannot be used: No such file or directory."
        in message
    )
    assert "client_certificate: " in sentence(client_certificate=str(tmp_path / "empty.pem"))
    assert "OUR_CA is not set" in sentence(ca=Env("OUR_CA"))
    monkeypatch.setenv("OUR_PROXY", "socks5://us:pa55word@proxy")
    message = sentence(proxy=Env("OUR_PROXY"))
    assert "service geo: its proxy is not an http:// or https:// address with a host" in message
    assert "pa55word" not in message
    with pytest.raises(DeclarationError, match="proxy holds a user; it must be Env") as refused:
        of("http://w", proxy="http://us:pa55word@proxy:3128")
    assert "pa55word" not in str(refused.value)
    with pytest.raises(
        DeclarationError, match="client_key is declared without a client_certificate"
    ):
        of("http://w", client_key="key.pem")


def test_proxies_and_certificates_change_no_fingerprint():
    plain = of("http://w")
    assert fingerprint(
        of("http://w", ca="ca.pem", proxy="http://p:1", client_certificate="us.pem")
    ) == fingerprint(plain)
