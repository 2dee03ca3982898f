"""``Registries``: digests of tags, and whether what they name can run.

Source: OCI distribution specification 1.1, "Pulling manifests" and "Pulling blobs".
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, Self

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.images import (
    ACCEPTED,
    DIGEST,
    DOCKER_HUB,
    MAX_MANIFEST_BYTES,
    ImageConfig,
    Keyring,
    Reference,
    checked_config,
    checked_manifest,
    digest_of,
    entries_for,
    is_index,
    layers_of,
)
from controlplane.images.manifest import SCHEMA_1
from controlplane.registry.authorization import Authorizations
from controlplane.registry.outcome import RegistryProblem, TooLargeError
from controlplane.registry.transport import Answer, Transport

# Docker Hub's images are named docker.io, where no registry answers.
HUB_HOST: Final = "registry-1.docker.io"
# Of a configuration; that of an image with 127 layers and a long history has some 100 KiB.
MAX_CONFIG_BYTES: Final = 4 << 20
# For how long a registry may ask not to be asked.
MAX_PAUSE_S: Final = 3600.0
_ACCEPT: Final = ", ".join((*ACCEPTED, f"{SCHEMA_1}prettyjws;q=0.1"))


class Registries:
    """All registries, with the credentials of one installation. Every failure is a ``Problem``."""

    def __init__(self, transport: Transport, authorizations: Authorizations, clock: Clock) -> None:
        self._transport = transport
        self._authorizations = authorizations
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def open(
        cls, keyring: Callable[[str], Awaitable[Keyring]], clock: Clock, plain: Collection[str] = ()
    ) -> AsyncIterator[Self]:
        """A client while the block runs.

        Args:
            keyring: the credentials of an owner as they are now; the empty name stands for those that all have.
            clock: the time of day.
            plain: registries (host and perhaps port) that are asked by http.
        """
        async with Transport.open(plain) as transport:
            yield cls(transport, Authorizations(transport, keyring, clock), clock)

    async def digest(self, reference: Reference, owner: str = "") -> str:
        """The digest that a tag has now, as this owner is told. Cost: one request, and two more for a token.

        Raises:
            RegistryProblem: see ``Outcome``.
        """
        path = f"manifests/{reference.digest or reference.tag}"
        answer = await self._ask("HEAD", reference, owner, path, MAX_MANIFEST_BYTES)
        told = answer.headers.get("Docker-Content-Digest", "")
        if answer.status == HTTPStatus.OK and DIGEST.fullmatch(told):
            return told
        if answer.status not in (HTTPStatus.OK, HTTPStatus.METHOD_NOT_ALLOWED):
            raise self._refusal(reference, answer)
        # The specification leaves the header to the registry.
        return digest_of((await self._get(reference, owner, path, MAX_MANIFEST_BYTES)).body)

    async def check(
        self, reference: Reference, digest: str, architectures: Collection[str], owner: str = ""
    ) -> Mapping[str, int]:
        """See ``Registry.check``. Cost: two or three requests.

        Raises:
            Problem: unsupported, no sandbox can start from it.
            RegistryProblem: see ``Outcome``.
        """
        name, (kind, body) = str(reference), await self._manifest(reference, owner, digest)
        if is_index(kind, body):
            layers: dict[str, int] = {}
            for entry in entries_for(name, body, architectures):
                if not entry.nested:
                    kind, text = await self._manifest(reference, owner, entry.digest)
                    checked_manifest(name, kind, text)
                    layers.update(layers_of(text))
            return layers
        config = checked_manifest(name, kind, body)
        blob = await self._get(reference, owner, f"blobs/{config}", MAX_CONFIG_BYTES)
        checked_config(name, _verified(reference, config, blob.body), architectures)
        return layers_of(body)

    async def config(
        self, reference: Reference, digest: str, architectures: Collection[str], owner: str = ""
    ) -> ImageConfig:
        """See ``Registry.config``. Cost: two to four requests.

        Raises:
            Problem: unsupported, it is malformed, or for none of the architectures.
            RegistryProblem: see ``Outcome``.
        """
        name, digest = str(reference), digest or await self.digest(reference, owner)
        kind, body = await self._manifest(reference, owner, digest)
        if is_index(kind, body):
            chosen = [one.digest for one in entries_for(name, body, architectures) if not one.nested]
            if not chosen:
                raise Problem("unsupported", f"image {name}: its index has no manifest of its own", option="image")
            kind, body = await self._manifest(reference, owner, chosen[0])
        config = checked_manifest(name, kind, body)
        blob = await self._get(reference, owner, f"blobs/{config}", MAX_CONFIG_BYTES)
        return ImageConfig.parsed(name, digest, _verified(reference, config, blob.body))

    async def _manifest(self, reference: Reference, owner: str, digest: str) -> tuple[str, bytes]:
        try:
            answer = await self._get(reference, owner, f"manifests/{digest}", MAX_MANIFEST_BYTES)
        except TooLargeError as error:
            detail = f"image {reference} cannot run here: its manifest has more than {MAX_MANIFEST_BYTES} bytes"
            raise Problem("unsupported", detail, option="image") from error
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        if kind.startswith(SCHEMA_1):
            # Its digest leaves out the signatures in it.
            return kind, answer.body
        return kind, _verified(reference, digest, answer.body)

    async def _get(self, reference: Reference, owner: str, path: str, limit: int) -> Answer:
        answer = await self._ask("GET", reference, owner, path, limit)
        if answer.status != HTTPStatus.OK:
            raise self._refusal(reference, answer)
        return answer

    async def _ask(self, method: str, reference: Reference, owner: str, path: str, limit: int) -> Answer:
        host = HUB_HOST if reference.registry == DOCKER_HUB else reference.registry
        url = self._transport.url(host, f"/v2/{reference.repository}/{path}")

        async def send(value: str | None) -> Answer:
            headers = {"Accept": _ACCEPT, **({} if value is None else {"Authorization": value})}
            return await self._transport.send(reference.registry, method, url, headers, limit)

        known = self._authorizations.known(reference, owner)
        answer = await send(known)
        if answer.status != HTTPStatus.UNAUTHORIZED:
            return answer
        asked = answer.headers.getall("WWW-Authenticate", ())
        return await send(await self._authorizations.answer(reference, owner, asked, refused=known))

    def _refusal(self, reference: Reference, answer: Answer) -> RegistryProblem:
        match answer.status:
            case HTTPStatus.NOT_FOUND:
                return RegistryProblem("absent", reference.registry, f"it has no {reference}")
            case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
                return RegistryProblem("denied", reference.registry, f"it does not give {reference} to us")
            case HTTPStatus.TOO_MANY_REQUESTS:
                pause_s = _pause_s(answer.headers.get("Retry-After", ""), self._clock)
                return RegistryProblem("limited", reference.registry, "it limits how often it is asked", pause_s)
        return RegistryProblem("away", reference.registry, f"it answers {answer.status}")


def _verified(reference: Reference, digest: str, body: bytes) -> bytes:
    if digest_of(body, digest) != digest:
        raise RegistryProblem("broken", reference.registry, f"what it gives for {digest} has another digest")
    return body


def _pause_s(header: str, clock: Clock) -> float | None:
    """``Retry-After``: seconds, or a date."""
    try:
        if header.isascii() and header.isdigit():
            pause_s = float(header)
        else:
            at = parsedate_to_datetime(header)
            pause_s = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - clock.now_ms() / 1000
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(pause_s, 0.0), MAX_PAUSE_S)
