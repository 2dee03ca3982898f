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

from controlplane.access import Share
from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.model import Sandbox

ISSUER: Final = "rollbox"
ALGORITHM: Final = "EdDSA"
# A token expires a little after its sandbox, so that a late caller gets the end's cause rather than "expired". By as
# much the clocks of gateways and sidecars, which check the expiry, may be ahead of this one.
SLACK_MS: Final = 60_000
# Size of the cache of signed tokens. Guess: the number of claims that are bound at the same time.
MOST_REMEMBERED: Final = 256
# Of public ports and egress. So long because only its own sandbox's sidecar accepts it: it is useless once that has
# ended.
PORT_TOKEN_MS: Final = 366 * 24 * 3_600_000
# ``verify_readiness`` checks the expiry itself, by the injected clock and not the machine's.
_READ: Final[Options] = {"require": ["sub", "exp", "iss"], "verify_exp": False, "verify_iat": False}


@dataclass(frozen=True, slots=True)
class Token:
    """A credential and when it expires (Unix ms)."""

    text: str
    expires_at_ms: int


class SigningKey:
    """Signs the tokens of sandboxes, and verifies readiness credentials."""

    def __init__(self, private: Ed25519PrivateKey, clock: Clock) -> None:
        self._private = private
        self._public = private.public_key()
        self._clock = clock
        # Cached: the token with which a claim's settings are bound is also the one in its answer.
        self._signed = lru_cache(maxsize=MOST_REMEMBERED)(self._sign)
        # Cached: a client shows the same shared key again and again. Its end is looked at each time.
        self._read_share = lru_cache(maxsize=MOST_REMEMBERED)(self._verified_share)

    @classmethod
    def load(cls, pem: bytes, clock: Clock) -> "SigningKey":
        """Reads the private key from a PEM file's content.

        Raises:
            ValueError: the content is not an Ed25519 private key without a passphrase.
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
        """The public key as it is written in settings: base64url of the 32 raw bytes, no padding."""
        raw = self._public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    def token(self, sandbox: Sandbox, until_ms: int | None = None) -> Token:
        """The token for exec calls to a sandbox, valid until ``SLACK_MS`` after it expires. Cost: 80 us at most.

        Args:
            sandbox: the one.
            until_ms: Unix time after which it is not valid, in any case.
        """
        expires_at_ms = sandbox.expires_at_ms + SLACK_MS
        return self._mint(sandbox, "exec", min(expires_at_ms, until_ms or expires_at_ms))

    def share(self, sandbox: Sandbox, by: str, expires_at_ms: int) -> Token:
        """What a shared key is, but for its prefix; ``by``: the id of the key that shares the sandbox."""
        return self._mint(sandbox, "share", expires_at_ms, by=by)

    def read_share(self, text: str) -> Share:
        """What a shared key says.

        Raises:
            Problem: unauthenticated (not our signature, malformed, no shared key, expired).
        """
        share = self._read_share(text)
        if share.expires_at_ms <= self._clock.now_ms():
            detail = f"the shared key of {share.sandbox_id} has expired: ask for another one"
            raise Problem("unauthenticated", detail, reason="api_key_expired")
        return share

    def _verified_share(self, text: str) -> Share:
        try:
            claims = jwt.decode(text, self._public, [ALGORITHM], issuer=ISSUER, options=_READ)
        except jwt.InvalidTokenError as error:
            raise Problem("unauthenticated", f"the shared key is not valid: {error}", reason="api_key") from error
        if claims.get("scp") != ["share"]:
            raise Problem("unauthenticated", "this is a sandbox's token, and no shared key", reason="api_key")
        made_at_ms, expires_at_ms = claims["iat"] * 1000, claims["exp"] * 1000
        return Share(str(claims["sub"]), str(claims["own"]), str(claims["by"]), made_at_ms, expires_at_ms)

    def port_token(self, sandbox: Sandbox, port: int) -> Token:
        """The token with which a gateway reaches one public port; it permits nothing else."""
        return self._mint(sandbox, f"port:{port}", sandbox.ports_revision + PORT_TOKEN_MS)

    def egress_token(self, sandbox: Sandbox) -> Token:
        """The token with which an egress replica opens the link to a sandbox; it permits nothing else."""
        return self._mint(sandbox, "egress", sandbox.egress.revision + PORT_TOKEN_MS)

    def readiness(self, sandbox: Sandbox) -> Token:
        """The credential of one sandbox's readiness push; it permits nothing else."""
        return self._mint(sandbox, "ready", self._clock.now_ms() + sandbox.spec.start_timeout_ms + SLACK_MS)

    def verify_readiness(self, text: str) -> str:
        """The id of the sandbox that the credential ``text`` was issued to.

        Raises:
            Problem: unauthenticated (not our signature, malformed, expired), permission_denied (not for readiness).
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

    def _mint(self, sandbox: Sandbox, scope: str, expires_at_ms: int, by: str = "") -> Token:
        expires_at_s = -(-expires_at_ms // 1000)
        # With it the sidecar refuses calls until the settings are bound that were promised; see ``auth.rs`` there.
        promised = sandbox.settings_digest if scope == "exec" else ""
        issued_at_s = self._clock.now_ms() // 1000
        text = self._signed(sandbox.id, sandbox.owner, scope, issued_at_s, expires_at_s, promised=promised, by=by)
        return Token(text, expires_at_s * 1000)

    def _sign(
        self, sandbox_id: str, owner: str, scope: str, issued_at_s: int, expires_at_s: int, *, promised: str, by: str
    ) -> str:
        claims = {
            "iss": ISSUER,
            "sub": sandbox_id,
            "own": owner,
            "scp": [scope],
            "iat": issued_at_s,
            "exp": expires_at_s,
            **({"set": promised} if promised else {}),
            **({"by": by} if by else {}),
        }
        return jwt.encode(claims, self._private, ALGORITHM)
