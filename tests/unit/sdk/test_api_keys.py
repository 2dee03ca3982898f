"""API keys through the SDK and the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from rollbox import Client, sync
from rollbox.api_key import SCOPES, duration_ms, key_body
from rollbox.cli.app import app
from rollbox.errors import InvalidArgument, NotFound
from tests.support.gateway_fake import FakeGateway


def run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


async def test_a_key_is_made_listed_rotated_and_revoked(fake: FakeGateway, client: Client) -> None:
    made = await client.create_key("ci", ["run", "images"], expires="30d")
    assert (made.text, made.record.scopes) == ("rbxk_key-000000000000_1", ("run", "images"))
    assert made.text not in repr(made)
    assert (made.record.expires_at_ms or 0) - made.record.made_at_ms == 30 * 86_400_000
    assert (await client.create_key("for ever", "read", expires=None)).record.expires_at_ms is None
    assert [one.name for one in await client.keys()] == ["ci", "for ever"]
    assert (await client.rotate_key(made.record.id, grace=0)).text == "rbxk_another"
    assert fake.api_keys.graces_ms == [0]
    assert (await client.revoke_key(made.record.id)).state == "revoked"
    with pytest.raises(NotFound):
        await client.revoke_key("key-nosuch")


async def test_operators_make_and_list_those_of_others(client: Client) -> None:
    made = await client.create_key("theirs", ["read"], owner="bob")
    assert (made.record.owner, [one.id for one in await client.keys("bob")]) == ("bob", [made.record.id])
    assert await client.keys() == []


def test_the_same_without_await(apart: FakeGateway) -> None:
    with sync.Client() as client:
        made = client.create_key("ci", ["run"])
        assert client.keys() == [made.record]
        assert client.rotate_key(made.record.id).text == "rbxk_another"
        assert client.revoke_key(made.record.id).state == "revoked"


async def test_a_sandbox_is_shared_by_a_key_that_no_log_shows(client: Client) -> None:
    async with await client.create("python") as sandbox:
        shared = await sandbox.share("5m")
        assert (shared.sandbox_id, shared.key, "rbxs" in repr(shared)) == (sandbox.id, "rbxs_shared", False)
        with pytest.raises(InvalidArgument, match="ttl 'soon' is no duration"):
            await sandbox.share("soon")


@pytest.mark.parametrize(
    ("given", "in_ms"), [(1, 1000), ("90s", 90_000), ("1.5h", 5_400_000), ("30d", 2_592_000_000), ("0", 0), (0.25, 250)]
)
def test_durations_are_seconds_or_have_a_unit(given: float | str, in_ms: int) -> None:
    assert duration_ms("expires", given) == in_ms


@pytest.mark.parametrize("given", ["", "d", "-1", "1w", "1 h", "nan", True, "1e3"])
def test_what_is_no_duration_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgument, match="expires .* is no duration"):
        duration_ms("expires", given)


def test_scopes_are_told_where_one_is_wrong() -> None:
    for wrong in ([], ["root"], "rum"):
        with pytest.raises(InvalidArgument, match=", ".join(SCOPES)):
            key_body("ci", wrong, None, None)


def test_the_command_line_prints_the_key_alone_and_the_rest_beside_it(apart: FakeGateway) -> None:
    made = run("key", "create", "ci", "--scope", "run", "--scope", "images", "--expires", "30d")
    assert (made.exit_code, made.stdout) == (0, "rbxk_key-000000000000_1\n")
    assert "key-000000000000 of me: run, images; it expires in 30d. It is not shown again." in made.stderr
    as_json = json.loads(run("key", "create", "ever", "--scope", "read", "--expires", "never", "--json").stdout)
    assert (as_json["key"], as_json["expires_at_ms"]) == ("rbxk_key-000000000001_1", None)
    listed = run("key", "list").stdout
    assert "run, images" in listed
    assert "never" in listed
    assert run("key", "rotate", "ci").stdout == "rbxk_another\n"
    assert apart.api_keys.graces_ms == [3_600_000]
    assert run("key", "revoke", "ci").stdout == "key-000000000000\n"
    assert run("key", "revoke", "key-000000000001").exit_code == 0
    unknown = run("key", "revoke", "nosuch")
    assert unknown.exit_code != 0
    assert "there is no key 'nosuch'" in unknown.stderr
