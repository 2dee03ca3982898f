"""The real node agent as a program of this machine, and certificates for it and its clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.support.installed import ROOT

SERVER: Final = "node.rollbox.rollbox"
CLIENT: Final = "control-plane.rollbox.rollbox"
USAGE: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class Authority:
    """Signs certificates as the chart's does: each is good for both sides of a connection."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        about = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rollbox node agents")])
        made = _builder(about, about, self._key, timedelta(days=1))
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = made.sign(self._key, hashes.SHA256())

    def write(self, folder: Path, name: str, *, lives: timedelta = timedelta(days=1)) -> Path:
        """Writes ``ca.crt``, and ``tls.crt`` and ``tls.key`` for a name; returns the folder."""
        key = ec.generate_private_key(ec.SECP256R1())
        about = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = _builder(about, self._certificate.subject, key, lives)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        made = made.add_extension(x509.ExtendedKeyUsage(USAGE), critical=False)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ca.crt").write_bytes(self._certificate.public_bytes(Encoding.PEM))
        (folder / "tls.crt").write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / "tls.key").write_bytes(private)
        return folder


def _builder(
    about: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lives: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(about).issuer_name(issuer).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    return made.not_valid_before(now - timedelta(days=2)).not_valid_after(now + lives)


def why_no_agent() -> str | None:
    """Why the agent cannot be built here, or None."""
    return None if shutil.which("go") else "go is not on PATH"


def build(folder: Path) -> Path:
    """Builds the agent from these sources into a folder; its program. Cost: seconds, a minute on a fresh machine."""
    subprocess.run([str(ROOT / "setup/go.sh"), "rollbox-node", str(folder)], check=True)
    return folder / "rollbox-node"


@dataclass(frozen=True)
class Agent:
    """An agent that runs."""

    address: str


@contextlib.asynccontextmanager
async def running(program: Path, settings: Mapping[str, str]) -> AsyncIterator[Agent]:
    """The agent with these settings (without ``ROLLBOX_NODE_``) while the block runs, on a port that is free."""
    environ = {
        "ROLLBOX_NODE_NAME": "node-1",
        "ROLLBOX_NODE_CLIENT": CLIENT,
        "ROLLBOX_NODE_LISTEN": "127.0.0.1:0",
        "ROLLBOX_NODE_NAMESPACE": "rollbox-sandboxes",
        "ROLLBOX_NODE_HANDLERS": "runsc",
        **{f"ROLLBOX_NODE_{name}": value for name, value in settings.items()},
    }
    process = await asyncio.create_subprocess_exec(program, "agent", env=environ, stderr=asyncio.subprocess.PIPE)
    try:
        yield Agent(await _address(process))
    finally:
        process.terminate()
        assert process.stderr is not None
        said = await process.stderr.read()
        assert await process.wait() == 0, said.decode()


async def _address(process: asyncio.subprocess.Process) -> str:
    """Where it says that it listens."""
    assert process.stderr is not None
    async with asyncio.timeout(30):
        async for line in process.stderr:
            said = json.loads(line)
            if said["msg"] == "node agent started":
                return str(said["address"])
    raise AssertionError("the agent has ended")
