"""Pools in the client and on the command line: request bodies, output, and arguments that are refused."""

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rollbox import Client, Pool, PoolFailure
from rollbox.cli import app
from rollbox.errors import InvalidArgument, NotFound
from rollbox.pool import PoolOptions, changes_body, pool_body
from tests.support.gateway_fake import FakeGateway


def rollbox(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_pools_template_is_that_of_a_create() -> None:
    body = pool_body("python", (2, 50), PoolOptions(cpu=2, surge=3, starts_per_minute=None))
    assert body == {
        "template": {
            "image": "python",
            "cpu_millicores": {"limit": 2000},
            "memory_bytes": {"request": 256 << 20, "limit": 2 << 30},
        },
        "min_warm": 2,
        "max_warm": 50,
        "auto": True,
        "surge": 3,
    }
    assert pool_body("python", 4, PoolOptions())["min_warm"] == 4


@pytest.mark.parametrize("warm", [-1, (3, 2), (1, 2, 3), "4", True, (0.5, 2)])
def test_sizes_that_make_no_sense_are_refused(warm: Any) -> None:
    with pytest.raises(InvalidArgument, match="warm"):
        pool_body("python", warm, PoolOptions())


def test_a_change_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="nothing is to be changed"):
        changes_body({})
    assert changes_body({"drain": False}) == {"drain": False}
    assert changes_body({"recording_of": ""}) == {"recording_of": ""}
    assert pool_body("python", 1, PoolOptions(recording_of="alice"))["recording_of"] == "alice"
    assert pool_body("python", 1, PoolOptions(interpreter="python"))["interpreter"] == "python"
    assert changes_body({"interpreter": ""}) == {"interpreter": ""}


async def test_a_pool_is_declared_read_changed_and_removed(client: Client, fake: FakeGateway) -> None:
    made = await client.set_pool("p", "python", (1, 9), starts_per_minute=60)
    assert (made.name, made.image, made.min_warm, made.max_warm) == ("p", "python", 1, 9)
    assert await client.pools() == [await client.pool("p")] == [made]
    assert (await client.change_pool("p", drain=True)).drain
    fake.pools["p"]["status"]["failures"] = [{"code": "image_not_found", "detail": "no", "count": 2}]
    assert (await client.pool("p")).failures == (PoolFailure("image_not_found", "no", 2),)
    assert [await client.remove_pool("p"), await client.remove_pool("p")] == [True, False]
    with pytest.raises(NotFound):
        await client.pool("p")


def test_a_declaration_that_is_not_sound_is_told() -> None:
    status = {"ready": 1, "why": "left", "failures": []}
    pool = Pool.from_json({"name": "p", "spec": None, "trouble": "min_warm 4 ...", "status": status})
    assert (pool.image, pool.trouble, pool.ready) == ("", "min_warm 4 ...", 1)


def test_the_command_line_changes_one_thing_and_deletes_twice(apart: FakeGateway) -> None:
    assert rollbox("pool", "set", "p", "python", "--warm", "2:50", "--surge", "4").exit_code == 0
    for words, name, value in (
        (("set", "p", "--warm", "7"), "max_warm", 7),
        (("set", "p", "--recording-of", "alice"), "recording_of", "alice"),
        (("set", "p", "--recording-of", ""), "recording_of", ""),
        (("set", "p", "--interpreter", "python"), "interpreter", "python"),
        (("set", "p", "--interpreter", ""), "interpreter", ""),
        (("drain", "p"), "drain", True),
        (("drain", "p", "--undo"), "drain", False),
    ):
        assert rollbox("pool", *words).exit_code == 0
        assert (apart.pools["p"]["spec"][name], apart.pools["p"]["spec"]["surge"]) == (value, 4)
    wrong = rollbox("pool", "set", "p", "--interpreter", "node")
    assert (wrong.exit_code, "only python can wait for its caller" in wrong.stderr) == (2, True), wrong.stderr
    assert rollbox("pool", "delete", "p").stdout == "p\n"
    gone = rollbox("pool", "delete", "p")
    assert (gone.exit_code, gone.stdout, gone.stderr) == (0, "", "there was no pool p\n")


def test_failures_are_told_on_stderr(apart: FakeGateway) -> None:
    rollbox("pool", "set", "p", "nope", "--warm", "1")
    apart.pools["p"]["status"]["failures"] = [{"code": "image_not_found", "detail": "there is none", "count": 3}]
    assert "3 starts failed: image_not_found: there is none" in rollbox("pool", "show", "p").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("p", "python"), "--warm is missing"),
        (("p", "python", "--warm", "5:2"), "the minimum 5 is greater than the maximum 2"),
        (("p", "python", "--warm", "many"), "--warm 'many' is not of the form N or MIN:MAX"),
        (("p", "--cpu", "4"), "IMAGE is missing"),
        (("p",), "nothing is to be changed"),
    ],
)
def test_nonsense_is_refused_before_anything_is_sent(apart: FakeGateway, arguments: tuple[str, ...], said: str) -> None:
    refused = rollbox("pool", "set", *arguments)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert apart.pools == {}
