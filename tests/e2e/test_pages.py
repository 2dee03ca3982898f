"""Command lines of pages that need a cluster, as the pages have them, with the names of the release under test."""

from __future__ import annotations

import shlex

import pytest
import yaml

from tests.docs.blocks import blocks
from tests.support.installed import Installed, run

PAGE = "docs/operating/backup.md"


@pytest.mark.timeout(120)
async def test_what_the_page_of_backups_saves_is_what_it_names(stack: Installed) -> None:
    (block,) = [one for one in blocks(PAGE) if one.kind == "shell"]
    saved: dict[str, str] = {}
    for line in block.text.splitlines():
        words, _, file = line.partition(" > ")
        ours = [_ours(stack, one) for one in shlex.split(words)]
        saved[file] = await run(*ours)
    secrets, objects, values = (yaml.safe_load(text) for text in saved.values())
    names = {one["metadata"]["name"] for one in secrets["items"]}
    kept = {f"{stack.release}-{one}" for one in ("api-keys", "signing-key", "settings-key")}
    assert kept <= names
    assert {one["kind"] for one in objects["items"]} <= {"SandboxPool", "SandboxQuota", "EgressPreset"}
    assert values


def _ours(stack: Installed, word: str) -> str:
    return {"rollbox": stack.release, "rollbox-sandboxes": stack.sandboxes}.get(word, word)
