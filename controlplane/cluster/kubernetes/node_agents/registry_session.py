"""``RegistrySession``: the private registry's API, with the account that may list and remove there."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

from controlplane.cluster.kubernetes.node_agents.registry_account import RegistryAccount, Tokens
from controlplane.cluster.kubernetes.node_agents.registry_api import RegistryApi
from controlplane.cluster.kubernetes.node_agents.remembered import Remembered
from controlplane.errors import Problem
from controlplane.settings import PushSettings

WITHIN_S: Final = 60.0
ASKED_AT_ONCE: Final = 16
# One for each repository, and for what is removed of it.
MOST_TOKENS: Final = 32_768


class RegistrySession:
    """Opens the API of one private registry; the tokens that it has given are kept.

    Args:
        push: the address and the account.
        what: that is asked for, for people.
    """

    def __init__(self, push: PushSettings, what: str) -> None:
        self._push = push
        self._what = what
        self._tokens: Tokens = Remembered(MOST_TOKENS)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[RegistryApi]:
        """The API while the block runs. Cost: a connection; the account is read anew, since its Secret may be renewed.

        Raises:
            Problem: upstream_timeout: the registry does not answer, refuses, or gives no answer of the API.
        """
        account = await asyncio.to_thread(self._push.account_file.read_text)
        username, _, password = account.strip().partition(":")
        trusted = await asyncio.to_thread(ssl.create_default_context, cafile=self._push.authority_file)
        async with aiohttp.ClientSession(
            f"https://{self._push.address}/v2/",
            connector=aiohttp.TCPConnector(ssl=trusted, limit=ASKED_AT_ONCE),
            timeout=aiohttp.ClientTimeout(total=WITHIN_S),
        ) as session:
            try:
                known = RegistryAccount(session, username, password, self._push.authority_file, self._tokens)
                yield RegistryApi(session, known)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, IndexError, TypeError) as error:
                detail = f"the private registry {self._push.address} does not tell {self._what}: {_told(error)}"
                raise Problem("upstream_timeout", detail) from error


def _told(error: Exception) -> str:
    """An error in words. That of an answer shows the request as Python writes it: with the account."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"it answers {error.status} to {error.request_info.method} {error.request_info.url.path}"
    return repr(error)
