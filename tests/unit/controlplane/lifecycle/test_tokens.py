"""Tokens: what they say, and which readiness credentials are taken."""

import asyncio
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from controlplane.errors import Problem
from controlplane.lifecycle import SigningKey
from controlplane.model import Sandbox
from tests.support.virtual_time import EPOCH_MS, VirtualClock
from tests.support.world import PRIVATE, SPEC

SANDBOX = Sandbox("sb-1", "alice", SPEC, EPOCH_MS, EPOCH_MS + 3_600_000, "f")


@pytest.fixture
def key() -> SigningKey:
    return SigningKey(PRIVATE, VirtualClock())


async def test_a_token_says_what_the_contract_says(key: SigningKey) -> None:
    token = key.token(SANDBOX)
    claims = jwt.decode(token.text, options={"verify_signature": False})
    assert claims == {
        "iss": "rollbox",
        "sub": "sb-1",
        "own": "alice",
        "scp": ["exec"],
        "iat": EPOCH_MS // 1000,
        "exp": EPOCH_MS // 1000 + 3_660,
    }
    assert token.expires_at_ms == claims["exp"] * 1000
    assert len(key.public_text) == 43


async def test_a_readiness_credential_is_taken_until_it_expires(key: SigningKey) -> None:
    credential = key.readiness(SANDBOX).text
    assert key.verify_readiness(credential) == "sb-1"
    await asyncio.sleep(SPEC.start_timeout_ms / 1000 + 61)
    with pytest.raises(Problem, match="unauthenticated: .* has expired"):
        key.verify_readiness(credential)


async def test_a_sandbox_token_is_no_readiness_credential(key: SigningKey) -> None:
    with pytest.raises(Problem, match=r"permission_denied: scope \['exec'\]"):
        key.verify_readiness(key.token(SANDBOX).text)


def forged(**changes: Any) -> str:
    claims = {"iss": "rollbox", "sub": "sb-1", "scp": ["ready"], "exp": EPOCH_MS // 1000 + 60, **changes}
    return jwt.encode({name: value for name, value in claims.items() if value is not None}, PRIVATE, "EdDSA")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b.c",
        jwt.encode({"sub": "sb-1", "exp": 1}, "x" * 32, "HS256"),
        jwt.encode({"iss": "rollbox", "sub": "sb-1", "exp": 2**40}, Ed25519PrivateKey.generate(), "EdDSA"),
        jwt.encode({"iss": "rollbox", "sub": "sb-1", "exp": 2**40}, "", "none"),
        forged(iss="other"),
        forged(sub=None),
        forged(exp=None),
        forged(exp="soon"),
    ],
    ids=[
        "empty",
        "garbage",
        "other algorithm",
        "other key",
        "unsigned",
        "issuer",
        "no subject",
        "no expiry",
        "bad expiry",
    ],
)
async def test_a_forged_credential_is_refused(key: SigningKey, text: str) -> None:
    with pytest.raises(Problem, match="unauthenticated"):
        key.verify_readiness(text)


def test_a_key_file_must_hold_an_ed25519_key() -> None:
    elliptic = generate_private_key(SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for pem in (b"", b"nonsense", elliptic):
        with pytest.raises(ValueError, match=r"."):
            SigningKey.load(pem, VirtualClock())
