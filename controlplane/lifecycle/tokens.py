"""Sandbox tokens and readiness credentials: EdDSA JWTs, minted here, verified offline by gateway and sidecar."""

import base64
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.types import Options
from pydantic_core import to_json

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.model import Sandbox

ISSUER: Final = "rollbox"
ALGORITHM: Final = "EdDSA"
# A token outlives its sandbox a little, so that a late caller hears why it ended rather than "expired"; and so much may
# the clocks of gateways and sidecars, which judge it, be ahead of this one.
SLACK_MS: Final = 60_000
# Guess: of claims that are being bound at a time.
MOST_REMEMBERED: Final = 256
# Expiry is held against the injected clock, not against the machine's.
# What opens a public port lives as long as that: only its sandbox's own sidecar takes it.
PORT_TOKEN_MS: Final = 366 * 24 * 3_600_000
_READ: Final[Options] = {"require": ["sub", "exp", "iss"], "verify_exp": False, "verify_iat": False}


@dataclass(frozen=True, slots=True)
class Token:
    """A credential and when it ends (Unix ms)."""

    text: str
    expires_at_ms: int


class SigningKey:
    """Mints what sandboxes are reached with, and reads readiness credentials."""

    def __init__(self, private: Ed25519PrivateKey, clock: Clock) -> None:
        self._private = private
        self._public = private.public_key()
        self._clock = clock
        # The library's, which is the same for every token; its way to the rest costs more than the signature.
        self._head = jwt.encode({}, private, ALGORITHM).encode().partition(b".")[0]
        # The one that a claim's settings are bound with is its answer's, too.
        self._signed = lru_cache(maxsize=MOST_REMEMBERED)(self._sign)

    @classmethod
    def load(cls, pem: bytes, clock: Clock) -> "SigningKey":
        """Reads a PEM file's content.

        Raises:
            ValueError: no Ed25519 private key.
        """
        try:
            private = serialization.load_pem_private_key(pem, password=None)
        except (TypeError, UnsupportedAlgorithm) as error:
            raise ValueError(f"must hold an Ed25519 private key without a passphrase: {error}") from error
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError(f"must hold an Ed25519 private key, not a {type(private).__name__}")  # noqa: TRY004
        return cls(private, clock)

    @property
    def public_text(self) -> str:
        """The public key as settings carry it: base64url of the 32 raw bytes, no padding."""
        return _base64url(
            self._public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        ).decode()

    def token(self, sandbox: Sandbox) -> Token:
        """The token that a sandbox is used with, until a little after it expires. Cost: 60 us at most."""
        return self._mint(sandbox, "exec", sandbox.expires_at_ms + SLACK_MS)

    def port_token(self, sandbox: Sandbox, port: int) -> Token:
        """What a gateway reaches one public port with; it opens nothing else."""
        return self._mint(sandbox, f"port:{port}", sandbox.ports_revision + PORT_TOKEN_MS)

    def readiness(self, sandbox: Sandbox) -> Token:
        """The credential of one sandbox's readiness push; it opens nothing else."""
        return self._mint(sandbox, "ready", self._clock.now_ms() + sandbox.spec.start_timeout_ms + SLACK_MS)

    def verify_readiness(self, text: str) -> str:
        """The id of the sandbox that ``text`` speaks for.

        Raises:
            Problem: unauthenticated (not ours, malformed, expired), permission_denied (not for readiness).
        """
        try:
            claims = jwt.decode(text, self._public, [ALGORITHM], issuer=ISSUER, options=_READ)
        except jwt.InvalidTokenError as error:
            raise Problem("unauthenticated", f"the readiness credential is not valid: {error}") from error
        if not isinstance(claims["exp"], int) or claims["exp"] * 1000 <= self._clock.now_ms():
            raise Problem("unauthenticated", f"the readiness credential of {claims['sub']} has expired")
        if claims.get("scp") != ["ready"]:
            raise Problem("permission_denied", f"scope {claims.get('scp')} does not allow a readiness push")
        return str(claims["sub"])

    def _mint(self, sandbox: Sandbox, scope: str, expires_at_ms: int) -> Token:
        expires_at_s = -(-expires_at_ms // 1000)
        return Token(
            self._signed(sandbox.id, sandbox.owner, scope, self._clock.now_ms() // 1000, expires_at_s),
            expires_at_s * 1000,
        )

    def _sign(self, sandbox_id: str, owner: str, scope: str, issued_at_s: int, expires_at_s: int) -> str:
        claims = {
            "iss": ISSUER,
            "sub": sandbox_id,
            "own": owner,
            "scp": [scope],
            "iat": issued_at_s,
            "exp": expires_at_s,
        }
        signed = b"%b.%b" % (self._head, _base64url(to_json(claims)))
        return (b"%b.%b" % (signed, _base64url(self._private.sign(signed)))).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
