"""Tokens with which an agent puts one image into the private registry, and does nothing else there.

They are those of Distribution's token service (https://distribution.github.io/distribution/spec/auth/jwt/).
"""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

ISSUER: Final = "rollbox-controlplane"
SERVICE: Final = "rollbox-commits"
# A commit waits for the others of its node, and then has its layer read within a minute.
LIVES_S: Final = 1800
# Clocks of the control plane's node and of the registry's may differ.
EARLY_S: Final = 60
_NUMBER_BYTES: Final = 32


def minted(folder: Path, rights: Mapping[str, Sequence[str]], now_s: int) -> str:
    """A token for some repositories.

    Args:
        folder: of ``tls.key`` (P-256) and ``tls.crt``.
        rights: repository -> what may be done to it: ``pull``, ``push``, ``delete``.
        now_s: Unix time.

    Raises:
        TypeError: the key is of another kind.
    """
    access = [{"type": "repository", "name": name, "actions": [*actions]} for name, actions in rights.items()]
    return signed(folder, access, now_s)


def signed(folder: Path, access: Sequence[Mapping[str, object]], now_s: int) -> str:
    """A token with these rights, as the specification has them; see ``minted``.

    Args:
        folder: of ``tls.key`` (P-256) and ``tls.crt``.
        access: each with ``type``, ``name`` and ``actions``.
        now_s: Unix time.

    Raises:
        TypeError: the key is of another kind.
    """
    key = load_pem_private_key((folder / "tls.key").read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{folder / 'tls.key'} is no key on an elliptic curve")
    certificate = load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    chain = [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()]
    claims = {
        "iss": ISSUER,
        "sub": ISSUER,
        "aud": SERVICE,
        "iat": now_s,
        "nbf": now_s - EARLY_S,
        "exp": now_s + LIVES_S,
        "jti": uuid4().hex,
        "access": [*access],
    }
    said = f"{_part({'typ': 'JWT', 'alg': 'ES256', 'x5c': chain})}.{_part(claims)}"
    r, s = decode_dss_signature(key.sign(said.encode(), ec.ECDSA(SHA256())))
    return f"{said}.{_text(r.to_bytes(_NUMBER_BYTES, 'big') + s.to_bytes(_NUMBER_BYTES, 'big'))}"


def _part(content: Mapping[str, object]) -> str:
    return _text(json.dumps(content).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
