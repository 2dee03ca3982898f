"""What a sandbox begins with: files and secrets; and what a failed begin tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbox import Client, SandboxError, SandboxGroup
from rollbox.errors import ImageNotFound, PermissionDenied
from tests.support.images import IMAGE


async def test_files_are_there_from_the_start(client: Client, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\ncat /repo/sub/text /repo/bytes\n")
    (tmp_path / "run.sh").chmod(0o755)
    files: dict[str, bytes | str | Path] = {"/repo/sub/text": "gr\u00fc\u00dfe ", "/repo/bytes": b"\xff\0"}
    files["/repo/run"] = tmp_path / "run.sh"
    async with await client.create(IMAGE, memory="256Mi", files=files, env={"SECRET": "of the run"}) as sandbox:
        assert (await sandbox.exec(["/repo/run"])).stdout_bytes == "gr\u00fc\u00dfe ".encode() + b"\xff\0"
        assert (await sandbox.exec("echo $SECRET")).stdout == "of the run\n"


async def test_they_are_written_as_the_sandboxes_user(client: Client) -> None:
    wish = {"memory": "256Mi", "user": "1000"}
    async with await client.create(IMAGE, files={"/tmp/mine": "x"}, **wish) as sandbox:  # type: ignore[arg-type]
        assert (await sandbox.files.stat("/tmp/mine")).uid == 1000
    before = {record.id for record in await client.list(all=True)}
    with pytest.raises(PermissionDenied) as refused:
        await client.create(IMAGE, files={"/tmp/mine": "x", "/usr/theirs": "x"}, **wish)  # type: ignore[arg-type]
    (made,) = {record.id for record in await client.list(all=True)} - before
    assert refused.value.sandbox_id == made
    assert (await client.get(made)).state in ("ending", "ended")


async def test_each_sample_of_a_group_has_them(client: Client) -> None:
    async with await SandboxGroup.create(
        IMAGE, n=2, memory=("64Mi", "128Mi"), files={"/task": "solve"}, client=client
    ) as group:
        assert [await sandbox.files.read_text("/task") for sandbox in group] == ["solve", "solve"]


async def test_a_failed_start_is_told_with_its_story(client: Client) -> None:
    with pytest.raises(ImageNotFound, match="no-such-image") as refused:
        await client.create(IMAGE.replace("python", "no-such-image"))
    assert not refused.value.is_infra
    await _has_a_story(client, refused.value)
    with pytest.raises(ImageNotFound) as refused:
        await SandboxGroup.create(IMAGE.replace("python", "no-such-image"), n=2, client=client)
    await _has_a_story(client, refused.value)


async def _has_a_story(client: Client, error: SandboxError) -> None:
    context = await client.error_context(error)
    assert (context.code, context.missing) == ("image_not_found", "")
    assert context.sandbox_id is not None
    assert context.timeline is not None
    assert context.timeline.end is not None
    assert context.timeline.end.cause == "image_not_found"
