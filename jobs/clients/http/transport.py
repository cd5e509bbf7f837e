"""The transport to a service: its proxy, trusted authorities, and client certificate."""

import ipaddress
import ssl
from contextlib import suppress
from typing import Any
from urllib.request import getproxies_environment, proxy_bypass

from yarl import URL

from jobs.declare.services import Service
from jobs.declare.values.env import Env, resolve
from jobs.errors import DeclarationError

LOOPBACK = "127.0.0.0/8,::1,"


class Transport:
    """The transport of a service and its token requests; reads files and environment."""

    def __init__(self, service: Service) -> None:
        """Raise DeclarationError for unusable files, and for a proxy that is not an address."""
        self._where = f"service {service.name}"
        self._proxy = None if service.proxy is None else self._address(resolve(service.proxy))
        self.ssl: ssl.SSLContext | bool = True
        if service.ca is not None or service.client_certificate is not None:
            self.ssl = self._context(service)

    def proxy_for(self, url: str) -> URL | None:
        """Return the declared or the environment's proxy; None by NO_PROXY or for loopback."""
        if self._proxy is not None:
            return self._proxy
        address = URL(url)
        named = getproxies_environment()
        host = address.host or ""
        if address.scheme not in named or host == "localhost":
            return None
        if proxy_bypass(f"{host}:{address.port}") or _is_in(host, LOOPBACK + named.get("no", "")):
            return None
        return self._address(named[address.scheme])

    def options_for(self, url: str) -> dict[str, Any]:
        proxy = self.proxy_for(url)
        return {} if proxy is None else {"proxy": proxy}

    def url_secrets(self, url: str) -> tuple[str, ...]:
        proxy = self.proxy_for(url)
        return () if proxy is None or not proxy.password else (proxy.password,)

    def _address(self, text: str) -> URL:
        try:
            proxy = URL(text if "://" in text else f"http://{text}")
            fits = proxy.scheme in ("http", "https") and bool(proxy.host) and proxy.port is not None
        except ValueError:
            fits = False
        if not fits:  # without the value, which may contain a password
            raise DeclarationError(
                f"{self._where}: its proxy is not an http:// or https:// address with a host."
            )
        return proxy

    def _context(self, service: Service) -> ssl.SSLContext:
        certificate, key = _path(service.client_certificate), _path(service.client_key)
        ca = _path(service.ca)
        try:
            context = ssl.create_default_context(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            raise self._unfit("ca", ca, error) from error
        if certificate is not None:
            try:
                context.load_cert_chain(certificate, key, password=_refuse_password)
            except (OSError, ssl.SSLError, ValueError) as error:
                raise self._unfit("client_certificate", certificate, error) from error
        return context

    def _unfit(self, name: str, path: str | None, error: Exception) -> DeclarationError:
        why = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
        return DeclarationError(
            f"{self._where}: {name}: {path} cannot be used: {why}. It must be a PEM file, there on "
            "every executor too."
        )


def _path(declared: str | Env | None) -> str | None:
    return None if declared is None else resolve(declared)


def _refuse_password() -> str:
    raise ValueError("its key has a password, which nobody can type here; name a key without one")


def _is_in(host: str, networks: str) -> bool:
    """Return whether a host is an address in one of these networks, which urllib does not read."""
    for network in networks.split(","):
        with suppress(ValueError):  # a name
            if ipaddress.ip_address(host) in ipaddress.ip_network(network.strip(), strict=False):
                return True
    return False
