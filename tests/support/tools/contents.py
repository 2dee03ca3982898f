"""What the servers of the indexes read: packages, a repository, and what signs and opens all of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    pkcs12,
)

from tests.support.authority import Authority
from tests.support.tools.hosts import ALL, DEBIAN
from tests.support.tools.packages import debian, files

# Of the file that Java reads certificates from.
STORE_PASSWORD = "changeit"
_ABOUT = "Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: tests <tests@example.test>\nDescription: tiny\n"


def write(folder: Path) -> None:
    """Writes it.

    `hosts/NAME` has the files of a host, `git` a repository, `tls` a certificate for all names, and that of its
    authority for Java too, `ssh` the key of a user and, as the user's home, who may log in.
    """
    package = _debian(folder / "deb")
    for name, found in (*files().items(), (DEBIAN, debian(package, _ABOUT))):
        for path, content in found.items():
            at = folder / "hosts" / name / path
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(content)
    tls = Authority().write(folder / "tls", *ALL)
    authority = x509.load_pem_x509_certificate((tls / "ca.crt").read_bytes())
    entry = pkcs12.PKCS12Certificate(authority, b"tests")
    password = BestAvailableEncryption(STORE_PASSWORD.encode())
    (tls / "ca.p12").write_bytes(pkcs12.serialize_java_truststore([entry], password))
    _repository(folder / "git" / "tiny.git")
    _key(folder / "ssh")


def _debian(folder: Path) -> bytes:
    (folder / "DEBIAN").mkdir(parents=True)
    (folder / "DEBIAN" / "control").write_text(_ABOUT)
    (folder / "etc").mkdir()
    (folder / "etc" / "tiny").write_text("small\n")
    made = folder.with_suffix(".deb")
    _run("dpkg-deb", "--build", "--root-owner-group", str(folder), str(made))
    return made.read_bytes()


def _repository(bare: Path) -> None:
    work = bare.with_suffix(".work")
    who = ("-c", "user.name=tests", "-c", "user.email=tests@example.test")
    _run("git", "init", "--quiet", "--initial-branch", "main", str(work))
    (work / "size").write_text("small\n")
    _run("git", "-C", str(work), "add", "size")
    _run("git", "-C", str(work), *who, "commit", "--quiet", "--message", "tiny")
    _run("git", "clone", "--quiet", "--bare", str(work), str(bare))


def _key(folder: Path) -> None:
    key = Ed25519PrivateKey.generate()
    (folder / ".ssh").mkdir(parents=True)
    (folder / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (folder / ".ssh" / "authorized_keys").write_bytes(public + b"\n")
    for path in (folder, folder / ".ssh", folder / "key"):
        path.chmod(0o700)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull})
