"""The command line reads the machine's certificates where the gateway is called by https, and only there."""

import ssl

import pytest

from rollbox.cli import imports
from tests.unit.sdk.test_imports import run

READS = """
import os, ssl
read = []
real = ssl.SSLContext.set_default_verify_paths
ssl.SSLContext.set_default_verify_paths = lambda self: read.append(real(self))
os.environ.update(ROLLBOX_URL={url!r}, ROLLBOX_API_KEY="k")
from rollbox.cli.imports import client_class
client_class()
print(bool(read))
"""


@pytest.mark.parametrize(("url", "reads"), [("http://127.0.0.1:1", False), ("https://gateway.example", True)])
def test_certificates_are_read_for_https(url: str, reads: bool) -> None:
    assert run(READS.format(url=url)) == str(reads)


def test_contexts_that_are_made_later_read_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOX_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("ROLLBOX_API_KEY", "k")
    imports.client_class()
    assert "set_default_verify_paths" not in vars(ssl.SSLContext)
