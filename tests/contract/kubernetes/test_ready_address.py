"""Sidecars get an address, whatever the setting says."""

import asyncio
import socket
from typing import Any

import pytest

from controlplane.cluster.kubernetes.pods.ready_address import ReadyAddress
from controlplane.errors import Problem


@pytest.mark.parametrize(
    ("url", "resolved"),
    [
        ("http://10.0.0.7:8082", "http://10.0.0.7:8082"),
        ("http://[fd00::1]:8082", "http://[fd00::1]:8082"),
        ("http://10.0.0.7:8082/", "http://10.0.0.7:8082"),
    ],
)
async def test_an_address_stays(url: str, resolved: str) -> None:
    assert await ReadyAddress(url).url() == resolved


async def test_a_name_is_resolved_once_and_the_answer_outlives_the_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def answer(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        if len(asked) > 1:
            raise socket.gaierror("no answer")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.9", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", answer)
    ready = ReadyAddress("http://rollbox-ready.rollbox.svc:8082")
    assert await ready.url() == await ready.url() == "http://10.0.0.9:8082"
    assert asked == ["rollbox-ready.rollbox.svc"]
    monkeypatch.setattr("controlplane.cluster.kubernetes.pods.ready_address.FRESH_S", -1.0)
    assert await ready.url() == "http://10.0.0.9:8082"
    assert len(asked) == 2


async def test_a_name_that_leads_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise socket.gaierror("no answer")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", refuse)
    with pytest.raises(Problem, match="nowhere.invalid"):
        await ReadyAddress("http://nowhere.invalid:8082").url()
