"""``RegistryAccount``: what the private registry is shown: name and password, or tokens that are given for these.

Token flow: https://distribution.github.io/distribution/spec/auth/token/.
"""

import asyncio
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import aiohttp
from yarl import URL

from controlplane.cluster.kubernetes.node_agents.remembered import Remembered
from controlplane.images import challenges, token_in

MAX_TOKEN_BYTES: Final = 256 * 1024
# How long before its end a token is not used any more.
MARGIN_S: Final = 10.0

# Tokens, each with the loop's time (s) at which it ends, by what they are for.
Tokens = Remembered[tuple[str, float]]


class RegistryAccount:
    """Values of the ``Authorization`` header for one registry.

    Args:
        session: sends the requests for tokens.
        username: of the account.
        password: of the account.
        authority_file: the authority of the registry's certificate; None: one that systems trust. That of a service of
            tokens may be of either.
        tokens: those that were given; more are put there.
    """

    def __init__(
        self, session: aiohttp.ClientSession, username: str, password: str, authority_file: Path | None, tokens: Tokens
    ) -> None:
        self._session = session
        self._basic = aiohttp.encode_basic_auth(username, password)
        self._authority_file = authority_file
        self._tokens = tokens

    def known(self, method: str, path: str) -> str:
        """The value to begin with: a token that holds, or name and password."""
        token, until_s = self._tokens.get(_wish(method, path)) or ("", 0.0)
        return token if asyncio.get_running_loop().time() < until_s else self._basic

    async def answer(self, method: str, path: str, headers: Iterable[str]) -> str:
        """The value that answers a refusal; name and password, if the registry offers no tokens.

        Args:
            method: of the request that was refused.
            path: of that request.
            headers: the ``WWW-Authenticate`` headers of the refusal.

        Raises:
            ValueError: the registry offers tokens in a way that is not to be used.
            aiohttp.ClientError: the service of tokens does not answer, or refuses.
        """
        offered = {one.scheme: one for header in headers for one in challenges(header)}
        if (bearer := offered.get("bearer")) is None:
            return self._basic
        realm = URL(bearer.parameters.get("realm", ""))
        if realm.scheme != "https" or not realm.host:
            raise ValueError(f"its tokens are to be asked for at {str(realm)[:100]!r}, which is no address with TLS")
        query = {name: bearer.parameters[name] for name in ("service", "scope") if name in bearer.parameters}
        began_s = asyncio.get_running_loop().time()
        token, lifetime_s = await self._given(realm.update_query(query))
        self._tokens.put(_wish(method, path), (f"Bearer {token}", began_s + lifetime_s - MARGIN_S))
        return f"Bearer {token}"

    async def _given(self, realm: URL) -> tuple[str, int]:
        trusted = await asyncio.to_thread(self._trusted)
        shown = {"Authorization": self._basic}
        async with self._session.get(realm, headers=shown, ssl=trusted, allow_redirects=False) as answer:
            answer.raise_for_status()
            return token_in(await read_within(answer, MAX_TOKEN_BYTES) or b"")

    def _trusted(self) -> ssl.SSLContext:
        trusted = ssl.create_default_context()
        if self._authority_file is not None:
            trusted.load_verify_locations(self._authority_file)
        return trusted


async def read_within(answer: aiohttp.ClientResponse, limit_bytes: int) -> bytes | None:
    """The body of an answer; None: it has more bytes than the limit."""
    text = await answer.content.read(limit_bytes + 1)
    while not answer.content.at_eof() and len(text) <= limit_bytes:
        text += await answer.content.read(limit_bytes + 1)
    return text if len(text) <= limit_bytes else None


def _wish(method: str, path: str) -> str:
    """What a token is for: a repository, or the list of all, and whether something of it is to be removed."""
    name = path.partition("?")[0]
    for part in ("/manifests/", "/blobs/", "/tags/"):
        name = name.partition(part)[0]
    return f"{'delete' if method == 'DELETE' else 'pull'} {name}"
