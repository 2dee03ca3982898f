"""Sandbox tokens and readiness credentials: EdDSA JWTs, minted here, verified offline by gateway and sidecar."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.model import Sandbox

ISSUER: Final = "rollbox"
# A token outlives its sandbox a little, so that a late caller hears why it ended rather than "expired".
SLACK_MS: Final = 60_000
# base64url of {"alg":"EdDSA","typ":"JWT"}: the one header that there is, so that no header chooses an algorithm.
_HEADER: Final = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9"


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
        return _encoded(raw)

    def token(self, sandbox: Sandbox) -> Token:
        """The token that a sandbox is used with, until a little after it expires. Cost: 60 us."""
        return self._mint(sandbox, "exec", sandbox.expires_at_ms + SLACK_MS)

    def readiness(self, sandbox: Sandbox) -> Token:
        """The credential of one sandbox's readiness push; it opens nothing else."""
        return self._mint(sandbox, "ready", self._clock.now_ms() + sandbox.spec.start_timeout_ms + SLACK_MS)

    def verify_readiness(self, text: str) -> str:
        """The id of the sandbox that ``text`` speaks for.

        Raises:
            Problem: unauthenticated (not ours, malformed, expired), permission_denied (not for readiness).
        """
        claims = self._claims(text)
        sandbox_id, expires_at_s = claims.get("sub"), claims.get("exp")
        if claims.get("iss") != ISSUER or not isinstance(sandbox_id, str) or type(expires_at_s) is not int:
            raise _invalid("it lacks an issuer, a subject or an expiry of ours")
        if expires_at_s * 1000 <= self._clock.now_ms():
            raise Problem("unauthenticated", f"the readiness credential of {sandbox_id} has expired")
        if claims.get("scp") != ["ready"]:
            raise Problem("permission_denied", f"scope {claims.get('scp')} does not allow a readiness push")
        return sandbox_id

    def _claims(self, text: str) -> Mapping[str, Any]:
        """What a token of this key says. Cost: 0.1 ms, nearly all of it the signature; a library takes thrice."""
        signed, _, signature = text.rpartition(".")
        header, _, payload = signed.partition(".")
        if header != _HEADER:
            raise _invalid("it is no EdDSA token")
        try:
            self._public.verify(_decoded(signature), signed.encode())
            claims = json.loads(_decoded(payload))
        except (InvalidSignature, ValueError) as error:
            raise _invalid("it is not signed by this key") from error
        if not isinstance(claims, dict):
            raise _invalid("it makes no claims")
        return claims

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
        signed = f"{_HEADER}.{_encoded(json.dumps(claims, separators=(',', ':')).encode())}"
        return Token(f"{signed}.{_encoded(self._private.sign(signed.encode()))}", expires_at_s * 1000)


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    """Raises ValueError for anything that ``_encoded`` would not have written."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _encoded(raw) != text:
        raise ValueError("not base64url without padding")
    return raw


def _invalid(why: str) -> Problem:
    return Problem("unauthenticated", f"the readiness credential is not valid: {why}")
