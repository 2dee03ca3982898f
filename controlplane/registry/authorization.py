"""What registries are shown: a user's name and password, or a token that they give for these (or to anybody).

Token flow: https://distribution.github.io/distribution/spec/auth/token/, which all public registries use.
"""

import base64
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Final

from yarl import URL

from controlplane.clock import Clock
from controlplane.images import Challenge, Credentials, Keyring, Reference, challenges, token_in
from controlplane.registry.outcome import Outcome, RegistryProblem
from controlplane.registry.transport import Transport

MAX_TOKEN_BYTES: Final = 256 * 1024
# How long before its end a token is not used any more.
MARGIN_MS: Final = 10_000
# Tokens are for one repository each.
MOST_KEPT: Final = 4096

# Owner, registry, repository.
_Key = tuple[str, str, str]


class Authorizations:
    """Values of the ``Authorization`` header by repository, kept until they expire."""

    def __init__(self, transport: Transport, keyring: Callable[[str], Awaitable[Keyring]], clock: Clock) -> None:
        self._transport = transport
        self._keyring = keyring
        self._clock = clock
        self._kept: dict[_Key, tuple[str, int | None]] = {}

    def known(self, reference: Reference, owner: str) -> str | None:
        """The value that the repository took last of this owner; None: none, or it has expired."""
        value, until_ms = self._kept.get((owner, reference.registry, reference.repository), (None, None))
        return value if until_ms is None or self._clock.now_ms() < until_ms else None

    async def answer(self, reference: Reference, owner: str, headers: Iterable[str], refused: str | None) -> str:
        """A value that answers the registry's challenge.

        Args:
            reference: the image.
            owner: whose credentials are shown.
            headers: the ``WWW-Authenticate`` headers.
            refused: the value that has just been refused.

        Raises:
            RegistryProblem: denied, there is no other value; away, broken, limited.
        """
        offered = {one.scheme: one for header in reversed([*headers]) for one in challenges(header)}
        ring = await self._keyring(owner)
        credentials = ring.find(reference)
        value, until_ms = None, None
        if (bearer := offered.get("bearer")) is not None:
            value, until_ms = await self._token(reference, bearer, credentials)
        elif "basic" in offered and credentials is not None:
            value = _basic(credentials)
        if value is None or value == refused:
            whose = "without credentials" if credentials is None else f"to the user {credentials.username[:64]!r}"
            why = f". Not read: {ring.missing}" if credentials is None and ring.missing else ""
            raise RegistryProblem("denied", reference.registry, f"it does not give {reference} {whose}{why}")
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[owner, reference.registry, reference.repository] = (value, until_ms)
        return value

    async def _token(
        self, reference: Reference, challenge: Challenge, credentials: Credentials | None
    ) -> tuple[str, int]:
        registry = reference.registry
        realm = _realm(registry, challenge.parameters.get("realm", ""))
        if not self._transport.secure(realm):
            raise RegistryProblem("broken", registry, "its tokens would be asked for without TLS")
        # Not the scope of the challenge: a registry that asks for more than this image gets no more.
        query = {"scope": f"repository:{reference.repository}:pull"}
        if service := challenge.parameters.get("service"):
            query["service"] = service
        headers = {} if credentials is None else {"Authorization": _basic(credentials)}
        answer = await self._transport.send(registry, "GET", realm.update_query(query), headers, MAX_TOKEN_BYTES)
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise RegistryProblem("denied", registry, f"it gives no token for {reference}")
        if answer.status != HTTPStatus.OK:
            outcome: Outcome = "limited" if answer.status == HTTPStatus.TOO_MANY_REQUESTS else "away"
            raise RegistryProblem(outcome, registry, f"its tokens' service answers {answer.status}")
        try:
            token, lifetime_s = token_in(answer.body)
        except ValueError as error:
            raise RegistryProblem("broken", registry, str(error)) from error
        return f"Bearer {token}", self._clock.now_ms() + lifetime_s * 1000 - MARGIN_MS


def _realm(registry: str, text: str) -> URL:
    try:
        realm = URL(text)
        if realm.host:
            return realm
    except ValueError:
        pass
    raise RegistryProblem("broken", registry, "it names no address for tokens")


def _basic(credentials: Credentials) -> str:
    text = f"{credentials.username}:{credentials.password}".encode()
    return f"Basic {base64.b64encode(text).decode()}"
