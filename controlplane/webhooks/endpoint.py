"""Endpoints of webhooks, as operators write them. Pure."""

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from controlplane.addresses import IpAddress, connected, never_called

# Each has a queue, a connection and some series.
MOST_ENDPOINTS: Final = 16
# Those of one request.
MOST_BATCH: Final = 100
# Records of ended sandboxes are kept for a day, and so are their events.
MOST_GIVE_UP_S: Final = 86_400
MOST_URL_CHARS: Final = 2_048
Word = Annotated[str, Field(min_length=1, max_length=128)]


class EndpointSpec(BaseModel):
    """One endpoint, as it is written.

    Attributes:
        name: in metrics, logs and the dead letter.
        url: what is posted to.
        secret_file: has what signs: one key a line, "whsec_" and base64; with two both sign, while one is replaced.
        owners: whose events; none: everybody's.
        types: which events, by the last word of their type; none: all.
        batch: the most events of one request; 1: each has a request of its own.
        give_up_seconds: an event that is not taken for so long is a dead letter.
        allow_private: whether it may be at a private address or this machine, and have no TLS.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    url: Annotated[str, Field(max_length=MOST_URL_CHARS)]
    secret_file: str
    owners: list[Word] = []
    types: list[Word] = []
    batch: Annotated[int, Field(ge=1, le=MOST_BATCH)] = 1
    give_up_seconds: Annotated[int, Field(ge=1, le=MOST_GIVE_UP_S)] = 3_600
    allow_private: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where events are posted.

    Attributes:
        url: may have a password of its own: never in a log.
        keys: what signs.
        owners, kinds: whose events, and which; empty: all.
        batch: the most events of one request.
        give_up_ms: after so long without success an event is a dead letter.
        private: whether it may be at a private address.
    """

    name: str
    url: str = field(repr=False)
    keys: tuple[bytes, ...] = field(repr=False)
    owners: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    batch: int = 1
    give_up_ms: int = 3_600_000
    private: bool = False

    @classmethod
    def of(cls, spec: EndpointSpec, keys: tuple[bytes, ...]) -> "Endpoint":
        """From what is written and the keys in its file."""
        return cls(
            spec.name,
            spec.url,
            keys,
            frozenset(spec.owners),
            frozenset(spec.types),
            spec.batch,
            spec.give_up_seconds * 1_000,
            spec.allow_private,
        )

    def wants(self, owner: str, kind: str) -> bool:
        """Whether an event is for it."""
        return (not self.owners or owner in self.owners) and (not self.kinds or kind in self.kinds)

    def may_be_at(self, address: IpAddress) -> bool:
        """Whether it may be at an address: not at a metadata service, and at a private one if it says so."""
        return not never_called(address) and (self.private or connected(address).is_global)


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """The endpoints, and where it is kept how far they are.

    Attributes:
        endpoints: empty: there are no webhooks.
        folder: of this process alone; None: the store keeps it.
    """

    endpoints: tuple[Endpoint, ...] = ()
    folder: Path | None = None


def read_endpoints(text: str) -> tuple[EndpointSpec, ...]:
    """A JSON list of endpoints.

    Raises:
        ValueError: it is none, or names an endpoint twice, or a URL that may not be posted to. The message has nothing
            of URLs.
    """
    listed = _listed(text)
    specs = tuple(_spec(number, one) for number, one in enumerate(listed, start=1))
    names = [one.name for one in specs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"two endpoints are named {twice}")
    for one in specs:
        _check_url(one)
    return specs


def _listed(text: str) -> list[Mapping[str, object]]:
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError("it is no JSON list of objects")
    if len(listed) > MOST_ENDPOINTS:
        raise ValueError(f"it has {len(listed)} endpoints, and may have {MOST_ENDPOINTS}")
    return listed


def _spec(number: int, one: Mapping[str, object]) -> EndpointSpec:
    try:
        return EndpointSpec.model_validate(one)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"endpoint {number}: {where}: {first['msg']}") from None


def _check_url(spec: EndpointSpec) -> None:
    try:
        url = urlsplit(spec.url)
        host, _ = url.hostname or "", url.port
    except ValueError:
        raise ValueError(f"{spec.name}: url is none") from None
    if url.scheme not in ("http", "https") or not host or url.fragment or not spec.url.isascii() or " " in spec.url:
        raise ValueError(f"{spec.name}: url must be https://HOST/..., of ASCII characters, without a fragment")
    if url.scheme == "http" and not spec.allow_private:
        raise ValueError(f"{spec.name}: url is without TLS, which allow_private permits")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if not Endpoint.of(spec, ()).may_be_at(address):
        raise ValueError(f"{spec.name}: url is at a private address, or one that is never called (see allow_private)")
