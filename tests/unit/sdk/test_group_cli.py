"""`rollbox group`: what it lists, shows and deletes."""

import json

import pytest
from typer.testing import CliRunner, Result

from rollbox import sync
from rollbox.cli import app
from tests.support.gateway_fake import FakeGateway


def rollbox(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def made(name: str, n: int = 2) -> list[str]:
    return [sandbox.id for sandbox in sync.SandboxGroup.create("python", n=n, name=name)]


def test_groups_are_listed_with_their_states(apart: FakeGateway) -> None:
    (first, _), (other,) = made("a"), made("b", 1)
    rollbox("create", "python")
    apart.end(first)
    header, *rows = rollbox("group", "list").stdout.splitlines()
    assert header.split() == ["group", "sandboxes", "states", "image", "age"]
    assert [row.split()[:5] for row in rows] == [
        ["a", "1", "1", "running", "python"],
        ["b", "1", "1", "running", "python"],
    ]
    apart.end(other)
    assert [one["name"] for one in json.loads(rollbox("group", "list", "--json").stdout)] == ["a"]
    everything = json.loads(rollbox("group", "list", "--all", "--json").stdout)
    assert [(one["name"], one["sandboxes"], one["states"]) for one in everything] == [
        ("a", 2, {"ended": 1, "running": 1}),
        ("b", 1, {"ended": 1}),
    ]
    assert everything[0]["images"] == ["python"]


def test_a_group_shows_each_sample_with_its_state_and_why_it_ended(apart: FakeGateway) -> None:
    ids = made("a", 11)
    apart.end(ids[2], "oom_killed")
    header, *rows = rollbox("group", "show", "a").stdout.splitlines()
    assert header.startswith("sample  id")
    assert [row.split()[:2] for row in rows] == [[str(number), one] for number, one in enumerate(ids)]
    assert "ended" in rows[2]
    assert "oom_killed (workload)" in rows[2]
    told = json.loads(rollbox("group", "show", "a", "--json").stdout)
    assert (told["name"], [one["sample"] for one in told["members"]]) == ("a", [str(number) for number in range(11)])
    assert told["members"][2]["sandbox"]["end"]["cause"] == "oom_killed"


def test_of_a_sample_that_was_made_anew_the_last_one_is_shown(apart: FakeGateway) -> None:
    (first,) = made("a", 1)
    apart.end(first)
    labels = ("--label", "rollbox.group=a", "--label", "rollbox.sample=0")
    again = rollbox("create", "python", *labels).stdout.strip()
    apart.sandboxes[again]["created_at_ms"] = 2
    (member,) = json.loads(rollbox("group", "show", "a", "--json").stdout)["members"]
    assert member["sandbox"]["id"] == again


def test_a_group_is_deleted_and_once_more_is_success(apart: FakeGateway) -> None:
    ids = made("a")
    assert rollbox("group", "delete", "a").stdout.split() == ids
    assert {apart.sandboxes[one]["state"] for one in ids} == {"ended"}
    again = rollbox("group", "delete", "a")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "there was no sandbox of a group a\n")
    assert json.loads(rollbox("group", "delete", "a", "--json").stdout) == {"deleted": [], "failed": []}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "nobody"), "there is no group nobody"),
        (("show", "-x-"), "No such option"),
        (("show", "a/b"), "the name of a group 'a/b' is not"),
        (("delete", "a b"), "the name of a group 'a b' is not"),
    ],
)
def test_nonsense_is_refused(apart: FakeGateway, arguments: tuple[str, ...], said: str) -> None:
    refused = rollbox("group", *arguments)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_help_names_every_command() -> None:
    told = rollbox("group", "--help").stdout
    assert all(command in told for command in ("list", "show", "delete"))
    assert "group" in rollbox("--help").stdout
