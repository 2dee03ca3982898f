"""What `store/line.py` takes of redis-py that is not public: that it is there, and that nothing else is taken."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from redis.asyncio.connection import AbstractConnection, Connection, UnixDomainSocketConnection

from controlplane.store import line as module
from controlplane.store.line import Line, command
from tests.support.installed import ROOT
from tests.support.redis_server import redis_server

# The base class of parsers, and the streams of a connection.
PRIVATE = {"redis._parsers", "_reader", "_writer"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


def _private(tree: ast.AST) -> Iterator[str]:
    """The names of others that begin with an underscore."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(part.startswith("_") for part in (node.module or "").split(".")):
            yield str(node.module)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and ast.unparse(node.value) != "self":
            yield node.attr
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "getattr"
            and isinstance(node.args[1], ast.Constant)
        ):
            yield str(node.args[1].value)


def test_no_other_part_is_taken() -> None:
    assert set(_private(ast.parse(Path(str(module.__file__)).read_text()))) == PRIVATE


def test_the_library_is_of_the_minor_version_that_has_them() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (redis,) = (one for one in map(Requirement, declared) if one.name == "redis")
    assert version("redis") in redis.specifier
    major, minor = map(int, version("redis").split(".")[:2])
    assert f"{major}.{minor + 1}" not in redis.specifier, "another minor version may have them no more"


async def test_a_connection_hands_its_streams_to_its_parser_and_takes_them_back(url: str) -> None:
    line = Line(url, 60)
    assert await line.exchange(command("PING"), 1) == ["PONG"]
    parser, connection = line._replies, line._connection
    assert isinstance(connection, UnixDomainSocketConnection)
    assert (parser.reader, parser.writer) == (connection._reader, connection._writer)
    # Nothing stands between: what is written arrives, and what arrives is read.
    assert await line.exchange(command("SET", "a", "1") + command("GET", "a"), 2) == ["OK", "1"]
    await line.close()
    assert (parser.reader, parser.writer) == (None, None)


@pytest.mark.parametrize("name", ["_reader", "_writer"])
async def test_a_library_that_has_them_no_more_is_refused_in_so_many_words(
    monkeypatch: pytest.MonkeyPatch, url: str, name: str
) -> None:
    connected = UnixDomainSocketConnection._connect

    async def elsewhere(self: UnixDomainSocketConnection) -> None:
        await connected(self)  # type: ignore[no-untyped-call]
        taken[name] = getattr(self, name)
        setattr(self, name, None)

    taken: dict[str, object] = {}
    monkeypatch.setattr(UnixDomainSocketConnection, "_connect", elsewhere)
    line = Line(url, 60)
    with pytest.raises(TypeError, match="this redis-py keeps the streams of a connection elsewhere"):
        await line.exchange(command("PING"), 1)
    setattr(line._connection, name, taken[name])
    await line._connection.disconnect()


def test_both_kinds_of_connection_have_the_same_base() -> None:
    assert issubclass(Connection, AbstractConnection)
    assert issubclass(UnixDomainSocketConnection, AbstractConnection)
