"""Sandbox tokens and readiness credentials: EdDSA JWTs, minted here, verified offline by gateway and sidecar."""

import base64
from dataclasses import dataclass
from typing import Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.types import Options

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.model import Sandbox

ISSUER: Final = "rollbox"
ALGORITHM: Final = "EdDSA"
# A token outlives its sandbox a little, so that a late caller hears why it ended rather than "expired"; and so much may
# the clocks of gateways and sidecars, which judge it, be ahead of this one.
SLACK_MS: Final = 60_000
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
        raw = self._public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    def token(self, sandbox: Sandbox) -> Token:
        """The token that a sandbox is used with, until a little after it expires. Cost: 60 us."""
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
        claims = {
            "iss": ISSUER,
            "sub": sandbox.id,
            "own": sandbox.owner,
            "scp": [scope],
            "iat": self._clock.now_ms() // 1000,
            "exp": expires_at_s,
        }
        return Token(jwt.encode(claims, self._private, ALGORITHM), expires_at_s * 1000)
