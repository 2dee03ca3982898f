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
