"""What a sandbox tries, and what it saw. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from typing import Any, Final, Literal
from urllib.parse import urlsplit

# An address that answers everywhere on the internet, and a name that is made for documents. Nothing is sent to them.
INTERNET: Final = ("1.1.1.1", 443)
NAME: Final = "example.com"
HTTPS: Final = 443
# What the package cache answers by itself, where it has this index; where it has not, it says so.
CACHE: Final = ("packages.rollbox.internal", "/index.crates.io/config.json")


@dataclass(frozen=True, slots=True)
class Place:
    """A host and a port, by a name for people."""

    name: str
    host: str
    port: int

    @property
    def there(self) -> str:
        """Name, host and port."""
        return f"the {self.name} ({_bracketed(self.host)}:{self.port})"


# The metadata service of clouds, which gives a machine its credentials.
METADATA: Final = Place("metadata service", "169.254.169.254", 80)


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt.

    Attributes:
        name: unique among those that are tried together.
        how: `direct`: a connection past the proxy; `name`: a look-up; `proxy`: `CONNECT` at the proxy; `get`: a request
            at it, for `path`.
        tls: of `proxy`: whether TLS is begun once it is connected.
    """

    name: str
    how: Literal["direct", "name", "proxy", "get"]
    host: str
    port: int = 0
    tls: bool = False
    path: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """How an attempt ended.

    Attributes:
        seconds: until then.
        status: that the proxy answered; 0: none.
        code, detail: of its answer, where it is a problem.
        error: what has failed: there is no proxy, no connection, no answer, no TLS. Empty: nothing.
    """

    seconds: float = 0.0
    status: int = 0
    code: str = ""
    detail: str = ""
    error: str = ""


def offline() -> list[Try]:
    """What is tried under a policy that allows nothing."""
    return [
        Try("direct connection", "direct", *INTERNET),
        Try("name look-up", "name", NAME),
        Try("refusal", "proxy", NAME, HTTPS),
    ]


def inside(places: Sequence[Place]) -> list[Try]:
    """What is tried under a policy that allows all that is outside."""
    host, path = CACHE
    cache = Try("package cache", "get", host, path=path)
    return [*(Try(one.name, "proxy", one.host, one.port) for one in places), cache]


def allowed(probe: Place) -> list[Try]:
    """What is tried under a policy that allows one host."""
    return [Try(probe.name, "proxy", probe.host, probe.port, tls=probe.port == HTTPS)]


def place(name: str, text: str) -> Place:
    """Reads `HOST` or `HOST:PORT`; without a port it is 443.

    Raises:
        ValueError: it is neither.
    """
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.path or parts.query or parts.fragment or parts.username:
        raise ValueError(f"{text!r} is no HOST:PORT")
    return Place(name, parts.hostname, parts.port or HTTPS)


def own(name: str, url: str) -> list[Place]:
    """What is behind a URL, where its host is an address that no sandbox may reach; else nothing."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    try:
        outside = ip_address(host).is_global
    except ValueError:
        return []
    return [] if outside else [Place(name, host, parts.port or (HTTPS if parts.scheme == "https" else 80))]


def dumped(tries: Sequence[Try]) -> str:
    """As an argument of the program."""
    return json.dumps([asdict(one) for one in tries])


def told(text: str) -> Mapping[str, Seen]:
    """Reads what the program has printed.

    Raises:
        ValueError: it is something else.
    """
    try:
        read: dict[str, dict[str, Any]] = json.loads(text)
        return {name: Seen(**one) for name, one in read.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"the sandbox answers {text[:160]!r}") from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
