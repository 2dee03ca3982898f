"""The image pull secrets of the sandboxes' namespace: those of all owners, and those of one alone."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final, Protocol

import structlog

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.api_server.client import Json
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.errors import Problem
from controlplane.images import Keyring, Reference
from controlplane.model.sandbox import POOL_OWNER

# How long a change of a secret takes to be noticed.
KEPT_MS: Final = 60_000
# A guess: one is read in hundredths of a second.
READ_WITHIN_S: Final = 5.0
# What a create waits at most for what has been read before; then it is judged by that.
WAIT_S: Final = 1.0
AT_ONCE: Final = 16
_KEY: Final = ".dockerconfigjson"


def text_of(secret: Json) -> str:
    """The credentials in a Secret, as ``Keyring.of`` reads them.

    Raises:
        ValueError: it has none that can be read; the message repeats nothing of it.
    """
    try:
        text = base64.b64decode(secret["data"][_KEY]).decode()
        Keyring.of([text])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"it has no {_KEY} that can be read") from error
    return text


class Reader(Protocol):
    """The part of ``KubernetesClient`` that is used."""

    async def get(self, path: str, *, within_s: float) -> Json:
        """Reads one object."""
        ...


class PullSecrets:
    """Reads Secrets of the type ``kubernetes.io/dockerconfigjson``; one that cannot be read is left out and logged.

    Args:
        client: reads objects.
        namespace: has the Secrets.
        names: those that all owners have.
        owned: those that one owner has besides, by owner.
        clock: the time of day.
    """

    def __init__(
        self, client: Reader, namespace: str, names: Sequence[str], owned: Mapping[str, Sequence[str]], clock: Clock
    ) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/secrets"
        self._names = names
        self._owned = owned
        self._clock = clock
        self._namespace = namespace
        self._texts: dict[str, str] = {}
        self._why: dict[str, str] = {}  # it was never read, by name
        self._rings: Mapping[str, Keyring] = {}
        self._own: Sequence[Keyring] = ()
        self._unread = False
        self._until_ms = 0
        self._reading: asyncio.Task[None] | None = None
        self._places = asyncio.Semaphore(AT_ONCE)
        self._log = structlog.get_logger("images")

    async def close(self) -> None:
        """Breaks off what is being read."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def of(self, owner: str) -> Keyring:
        """See ``Keyrings.of``: read at most once a minute. Cost: then one call for each secret, side by side."""
        await self._fresh()
        return self._rings.get(POOL_OWNER if owner.startswith(POOL_OWNER) else owner, self._rings[""])

    async def guards(self, reference: Reference) -> bool:
        """See ``Keyrings.guards``; every image while an owner's secret was never read. Cost: as ``of``."""
        if not self._owned:
            return False
        await self._fresh()
        # With an owner's credentials none but the mirror pulls, which reaches nothing that only nodes reach.
        unknown = self._unread and not reference.on_nodes_alone
        return unknown or any(ring.find(reference) is not None for ring in self._own)

    async def _fresh(self) -> None:
        """Waits for the first reading; for a later one a moment, and only in the call that has begun it."""
        if self._clock.now_ms() < self._until_ms:
            return
        reading, begun = self._reading, self._reading is None
        if reading is None:
            reading = self._reading = asyncio.create_task(self._read_all(), name="image pull secrets")
        if not self._rings:
            await asyncio.wait({reading})
            reading.result()
        elif begun:
            await asyncio.wait({reading}, timeout=WAIT_S)

    async def _read_all(self) -> None:
        try:
            every = [*self._names, *(name for names in self._owned.values() for name in names)]
            distinct = tuple(dict.fromkeys(every))
            for name, text in zip(distinct, await asyncio.gather(*map(self._read, distinct)), strict=True):
                # One that cannot be read any more stands as it was: without it others' images would be anybody's.
                self._texts[name] = text or self._texts.get(name, "")
            self._unread = not all(self._texts[name] for names in self._owned.values() for name in names)
            own = {owner: self._ring(names) for owner, names in self._owned.items()}
            self._rings = {
                "": self._ring(self._names),
                POOL_OWNER: self._ring(every),
                **{owner: self._ring((*names, *self._names)) for owner, names in self._owned.items()},
            }
            self._own = [*own.values()]
            self._until_ms = self._clock.now_ms() + KEPT_MS
        finally:
            self._reading = None

    def _ring(self, names: Sequence[str]) -> Keyring:
        missing = [name for name in dict.fromkeys(names) if not self._texts[name]]
        why = "; ".join(
            f"image pull secret {name} in namespace {self._namespace}: {self._why[name]}" for name in missing
        )
        texts = [self._texts[name] for name in names if self._texts[name]]
        return Keyring.of(texts, why, others_missing=self._unread)

    async def _read(self, name: str) -> str:
        try:
            async with self._places:
                secret = await self._client.get(f"{self._path}/{name}", within_s=READ_WITHIN_S)
            text = text_of(secret)
        except (Problem, ValueError) as error:
            why = error.detail if isinstance(error, Problem) else str(error)
            if isinstance(error, Refused) and error.refusal.status == HTTPStatus.NOT_FOUND:
                why = "there is none of this name"
            owners = [owner for owner, names in self._owned.items() if name in names]
            self._log.warning(
                "image pull secret not read, registries are asked without it", secret=name, owners=owners, detail=why
            )
            self._why[name] = why
            return ""
        return text
