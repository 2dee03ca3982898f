"""`rollbox egress`: what it prints, and which policies it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.gateway_fake import FakeGateway
from tests.unit.sdk.test_cli import made, rollbox
from tests.unit.sdk.test_egress import ATTEMPT, WRITTEN, written


def test_a_policy_is_shown_and_switched(apart: FakeGateway, tmp_path: Path) -> None:
    sandbox_id = made(apart)
    assert rollbox("egress", "show", sandbox_id).stdout.startswith("offline: in force; link none")
    apart.egress.cut = 3
    told = rollbox("egress", "set", sandbox_id, "packages")
    assert "packages: in force, 3 open connections were closed; link up" in told.stdout
    shown = rollbox("egress", "show", sandbox_id).stdout
    assert "pypi.org" in shown
    assert "80, 443" in shown
    told = rollbox("egress", "set", sandbox_id, written(tmp_path), "--json")
    assert json.loads(told.stdout)["policy"] == "custom"
    assert apart.egress.asked[-1] == {"policy": WRITTEN, "wait_ms": 10_000}


def test_a_switch_takes_a_date(apart: FakeGateway, tmp_path: Path) -> None:
    sandbox_id = made(apart)
    told = rollbox("egress", "set", sandbox_id, "packages", "--until", "2024-06-01")
    assert "packages as of 2024-06-01" in told.stdout
    dated = {"mode": "allow", "include": ["packages"], "until": "2024-06-01"}
    assert apart.egress.asked[-1]["policy"] == dated
    rollbox("egress", "set", sandbox_id, written(tmp_path), "--until", "2024-06-01")
    assert apart.egress.asked[-1]["policy"] == {**WRITTEN, "until": "2024-06-01"}


def test_a_create_takes_one(apart: FakeGateway, tmp_path: Path) -> None:
    for policy, sent in (("packages", "packages"), (written(tmp_path), WRITTEN)):
        assert rollbox("create", "python:3.12-slim", "--egress", policy).exit_code == 0
        assert apart.bodies[-1]["egress"] == sent


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), ("{", "is not JSON"), ("[]", "JSON object")])
def test_a_file_that_is_no_policy(apart: FakeGateway, tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "policy.json"
    if content is not None:
        file.write_text(content)
    told = rollbox("egress", "set", made(apart), f"@{file}")
    assert (told.exit_code, words in told.stderr) == (2, True), told.stderr


def test_attempts_are_shown(apart: FakeGateway) -> None:
    sandbox_id = made(apart)
    assert "no attempts on record" in rollbox("egress", "log", sandbox_id).stderr
    allowed = {**ATTEMPT, "host": "pypi.org", "verdict": "allowed", "count": 1, "sent_bytes": 7, "received_bytes": 9}
    apart.egress.attempts = [allowed, ATTEMPT]
    shown = rollbox("egress", "log", sandbox_id).stdout
    assert "pypi.org:443" in shown
    assert "7/9" in shown
    assert "github.com:443 x2" in shown
    told = json.loads(rollbox("egress", "log", sandbox_id, "--denied", "--json").stdout)
    assert [one["host"] for one in told] == ["github.com"]


def test_presets_are_listed_shown_declared_and_removed(apart: FakeGateway, tmp_path: Path) -> None:
    assert (
        rollbox("egress", "preset", "set", "mine", written(tmp_path)).stdout
        == "mine: mode allow, 3 and packages rules\n"
    )
    assert "packages  installation  allow  1" in " ".join(
        rollbox("egress", "preset", "list").stdout.split("\n")
    ).replace("   ", "  ")
    assert json.loads(rollbox("egress", "preset", "show", "mine").stdout) == WRITTEN
    told = rollbox("egress", "preset", "set", "mine", "packages")
    assert (told.exit_code, "is no policy" in told.stderr) == (2, True)
    assert "removed" in rollbox("egress", "preset", "delete", "mine").stderr
    assert json.loads(rollbox("egress", "preset", "delete", "mine", "--json").stdout) == {
        "name": "mine",
        "removed": False,
    }
    assert rollbox("egress", "preset", "show", "mine").exit_code != 0
