"""A connection of `store/line.py` to a real Redis: how it opens, which errors it tells apart, what ends it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import exceptions

from controlplane.store.line import Line, command
from tests.support.authority import Authority
from tests.support.eventually import eventually_true
from tests.support.redis_server import redis_server
from tests.support.stack import free_port

PING = command("PING")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def with_password(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("closed"), "127.0.0.1") as url:
        yield url.removesuffix("/0")


async def test_replies_come_in_order_and_a_closed_line_opens_again(url: str) -> None:
    line = Line(url, 60)
    for _ in range(2):
        assert await line.exchange(command("SET", "a", 1) + command("GET", "a") + PING, 3) == ["OK", "1", "PONG"]
        await line.close()


async def test_the_url_says_password_name_and_database(with_password: str) -> None:
    line = Line(f"{with_password}/3?client_name=rollbox", 60)
    name, info = await line.exchange(command("CLIENT", "GETNAME") + command("CLIENT", "INFO"), 2)
    await line.close()
    assert name == "rollbox"
    assert " db=3 " in str(info)


@pytest.mark.parametrize("password", ["", ":wrong@"])
async def test_a_wrong_password_is_an_error_of_authentication(with_password: str, password: str) -> None:
    line = Line(f"redis://{password}{with_password.rpartition('@')[2]}/1", 60)
    with pytest.raises(exceptions.AuthenticationError):
        await line.exchange(PING, 1)
    assert line._streams is None


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("EVALSHA", "0" * 40, 0), exceptions.NoScriptError),
        (("EVAL", "return redis.error_reply('LOST')", 0), exceptions.ResponseError),
        (("EVAL", "return redis.error_reply('LOADING now')", 0), exceptions.BusyLoadingError),
        (("EVAL", "return redis.error_reply('ERR max number of clients reached')", 0), exceptions.ConnectionError),
        (("NONSENSE",), exceptions.ResponseError),
    ],
)
async def test_an_error_reply_is_of_its_kind_and_leaves_the_line_open(
    url: str, words: tuple[str | int, ...], kind: type[Exception]
) -> None:
    line = Line(url, 60)
    error, pong = await line.exchange(command(*words) + PING, 2)
    await line.close()
    assert (type(error), pong) == (kind, "PONG")
    assert not str(error).startswith("ERR ")


async def test_nobody_there_and_a_late_reply_are_told_apart(tmp_path: Path, url: str) -> None:
    with pytest.raises(exceptions.ConnectionError, match="no connection to Redis"):
        await Line(f"unix://{tmp_path}/none.sock", 60).exchange(PING, 1)
    line = Line(url, 0.05)
    with pytest.raises(exceptions.TimeoutError):
        await line.exchange(command("BLPOP", "nothing", 60), 1)
    assert await line.exchange(PING, 1) == ["PONG"]
    await line.close()


async def test_a_line_that_redis_ends_is_away_and_opens_again(url: str) -> None:
    line = Line(url, 60)
    (number,) = await line.exchange(command("CLIENT", "ID"), 1)
    waiting = asyncio.create_task(line.exchange(command("BLPOP", "nothing", 0), 1))
    other = Line(url, 60)
    await asyncio.sleep(0)
    assert await other.exchange(command("CLIENT", "KILL", "ID", str(number)), 1) == [1]
    with pytest.raises(exceptions.ConnectionError):
        await waiting
    assert await line.exchange(PING, 1) == ["PONG"]
    await line.close()
    await other.close()


@pytest.fixture
def over_tls(tmp_path: Path) -> Iterator[str]:
    """The URL of a Redis with a certificate of the authority in ``ca.crt``."""
    folder, port = Authority().write(tmp_path, "localhost", "127.0.0.1"), free_port()
    files = {"cert": "tls.crt", "key": "tls.key", "ca-cert": "ca.crt"}
    words = [word for name, file in files.items() for word in (f"--tls-{name}-file", str(folder / file))]
    where = ["--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no", "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(["redis-server", *where, *words], stdout=subprocess.DEVNULL) as server:
        try:
            eventually_true(lambda: _listens(port))
            yield f"rediss://localhost:{port}/0"
        finally:
            server.kill()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_tls_is_checked_against_the_authority_of_the_url(over_tls: str, tmp_path: Path) -> None:
    line = Line(f"{over_tls}?ssl_ca_certs={tmp_path}/ca.crt", 60)
    assert await line.exchange(PING, 1) == ["PONG"]
    await line.close()
    other = Authority().write(tmp_path / "other", "localhost")
    with pytest.raises(exceptions.ConnectionError, match="(?i)certificate"):
        await Line(f"{over_tls}?ssl_ca_certs={other}/ca.crt", 60).exchange(PING, 1)
