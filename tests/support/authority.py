"""Certificates for both sides of calls between parts, as the chart makes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

USAGE: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class Authority:
    """Signs certificates as the chart's does: each is good for both sides of a connection."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        about = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rollbox tests")])
        made = _builder(about, about, self._key, timedelta(days=1))
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = made.sign(self._key, hashes.SHA256())

    def write(self, folder: Path, name: str, *also: str, lives: timedelta = timedelta(days=1)) -> Path:
        """Writes ``ca.crt``, and ``tls.crt`` and ``tls.key`` for names or addresses; returns the folder."""
        key = ec.generate_private_key(ec.SECP256R1())
        about = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = _builder(about, self._certificate.subject, key, lives)
        made = made.add_extension(x509.SubjectAlternativeName([*map(_named, (name, *also))]), critical=False)
        made = made.add_extension(x509.ExtendedKeyUsage(USAGE), critical=False)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ca.crt").write_bytes(self._certificate.public_bytes(Encoding.PEM))
        (folder / "tls.crt").write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / "tls.key").write_bytes(private)
        return folder


def _named(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    about: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lives: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(about).issuer_name(issuer).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    return made.not_valid_before(now - timedelta(days=2)).not_valid_after(now + lives)
