"""HTTPS of a bridge: what it is served with, files that change under it, and files that cannot be used."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from rollbox_bridges import program
from rollbox_bridges.answering import runner_of
from rollbox_bridges.tls import Certificate, TlsError
from tests.support.authority import Authority


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a certificate for this machine, its key, and the authority that has signed it."""
    return Authority().write(tmp_path / "first", "localhost", "127.0.0.1")


async def handle(_: web.Request) -> web.StreamResponse:
    return web.Response(text="served")


async def nothing(_: web.Application) -> None:
    """Nothing is to be closed."""


@asynccontextmanager
async def https(certificate: Certificate) -> AsyncIterator[str]:
    """A server of HTTPS, as bridges are."""
    runner = runner_of(handle, nothing)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate.context).start()
        yield "https://{}:{}".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


async def asked(url: str, folder: Path) -> str:
    """Ask by a connection of its own, and trust one authority alone."""
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    async with aiohttp.ClientSession() as http, http.get(url, ssl=context) as answer:
        return await answer.text()


def put(source: Path, target: Path) -> None:
    """Put another certificate and key in the place of these."""
    for name in ("tls.crt", "tls.key"):
        shutil.copy(source / name, target / f"{name}.new")
        (target / f"{name}.new").replace(target / name)


async def test_new_connections_get_what_the_files_have_then(files: Path, tmp_path: Path) -> None:
    second = Authority().write(tmp_path / "second", "127.0.0.1")
    async with https(Certificate(files / "tls.crt", files / "tls.key")) as url:
        assert await asked(url, files) == "served"
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await asked(url, second)
        put(second, files)
        assert await asked(url, second) == "served"


async def test_files_that_cannot_be_used_any_more_change_nothing(
    files: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second = Authority().write(tmp_path / "second", "127.0.0.1")
    async with https(Certificate(files / "tls.crt", files / "tls.key")) as url:
        shutil.copy(second / "tls.crt", files / "tls.crt")
        assert await asked(url, files) == "served"
        assert "not its key" in caplog.text
        (files / "tls.key").unlink()
        assert await asked(url, files) == "served"
        put(second, files)
        assert await asked(url, second) == "served"


def locked(files: Path) -> None:
    """Give the key a password."""
    key = load_pem_private_key((files / "tls.key").read_bytes(), None)
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password"))
    (files / "tls.key").write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda files: (files / "tls.crt").unlink(), "tls.crt cannot be read: No such file"),
        (lambda files: (files / "tls.key").write_text("no key"), "tls.key not its key"),
        (lambda files: (files / "tls.crt").write_text(""), "tls.crt is no certificate in PEM"),
        (locked, "tls.key has a password"),
    ],
    ids=["gone", "no key", "no certificate", "password"],
)
def test_files_that_cannot_be_used_stop_the_start(files: Path, spoil: Callable[[Path], object], says: str) -> None:
    spoil(files)
    with pytest.raises(TlsError, match=says):
        program.certificate_of(files / "tls.crt", files / "tls.key")


def test_one_file_without_the_other_stops_the_start(files: Path) -> None:
    assert program.certificate_of(None, None) is None
    for given in ((files / "tls.crt", None), (None, files / "tls.key")):
        with pytest.raises(TlsError, match="given together"):
            program.certificate_of(*given)
