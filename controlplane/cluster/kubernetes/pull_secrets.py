"""The image pull secrets of the sandboxes' namespace, with which the control plane asks registries too."""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from typing import Final, Protocol

import structlog

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.client import Json
from controlplane.errors import Problem
from controlplane.images import Keyring

# How long a change of a secret takes to be noticed.
KEPT_MS: Final = 60_000
_KEY: Final = ".dockerconfigjson"


class Reader(Protocol):
    """The part of ``KubernetesClient`` that is used."""

    async def get(self, path: str) -> Json:
        """Reads one object."""
        ...


class PullSecrets:
    """Reads Secrets of the type ``kubernetes.io/dockerconfigjson``; one that cannot be read is left out and logged."""

    def __init__(self, client: Reader, namespace: str, names: Sequence[str], clock: Clock) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/secrets"
        self._names = names
        self._clock = clock
        self._kept = Keyring()
        self._until_ms = 0
        self._reading = asyncio.Lock()
        self._log = structlog.get_logger("images")

    async def keyring(self) -> Keyring:
        """All their credentials, read at most once a minute. Cost: one call for each secret."""
        async with self._reading:
            if self._clock.now_ms() >= self._until_ms:
                self._kept = Keyring.of([text for name in self._names if (text := await self._read(name))])
                self._until_ms = self._clock.now_ms() + KEPT_MS
        return self._kept

    async def _read(self, name: str) -> str:
        try:
            secret = await self._client.get(f"{self._path}/{name}")
            text = base64.b64decode(secret["data"][_KEY]).decode()
            Keyring.of([text])
        except (Problem, KeyError, TypeError, ValueError, binascii.Error) as error:
            why = error.detail if isinstance(error, Problem) else f"it has no {_KEY} that can be read"
            self._log.warning("image pull secret not read, registries are asked without it", secret=name, detail=why)
            return ""
        return text
