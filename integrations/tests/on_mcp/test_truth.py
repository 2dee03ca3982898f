"""What happened to a sandbox, and what a client sees."""

from __future__ import annotations

import asyncio
import os

import pytest
from losing import lose

from bad_inputs import NOBODY, TOO_LARGE
from on_mcp.serving import NO_IMAGE, ROLLBOX, WORDS, Calls, created, sandboxed, served
from rollbox import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

EATS = "python3 -c 'x = b\"x\" * (1 << 30); print(len(x))'"


async def test_out_of_memory_is_a_result(platform: Client) -> None:
    async with sandboxed(memory_mb=64) as call:
        result = await call.tried("run_command", command=EATS)
        told = result.structured_content
        # Under gVisor the sandbox goes with the command.
        assert (
            (told["code"], told["mask_sample"]) == ("oom_killed", False)
            if result.is_error
            else told["end"]
            in (
                "oom_killed",
                "signalled",
            )
        )


async def test_a_sandbox_that_somebody_deletes_is_told(call: Calls, platform: Client) -> None:
    await platform.delete(call.sandbox_id)
    assert (await call.fault("run_command", command="true"))[:3] == ("deleted", "caller", True)
    assert (await call.fault("read_file", path="/etc/passwd"))[0] == "deleted"
    assert (await call.client.call_tool("list_sandboxes")).structured_content["sandboxes"] == []


async def test_a_sandbox_that_the_platform_has_lost_is_told_each_time(call: Calls) -> None:
    await asyncio.to_thread(lose, call.sandbox_id)
    for _ in range(3):
        assert (await call.fault("run_command", command="true"))[:3] == ("sandbox_lost", "platform", True)


async def test_what_cannot_be_created_is_told(platform: Client) -> None:
    async with served() as client:
        told = (await client.call_tool("create_sandbox", {"image": NO_IMAGE})).structured_content
        assert (told["code"], told["mask_sample"]) == ("image_not_found", True)
        told = (await client.call_tool("create_sandbox", {"user": NOBODY})).structured_content
        assert (told["code"], told["mask_sample"], NOBODY in told["why"]) == ("invalid_argument", False, True)
        call = await created(client)
        owner = (await platform.quota()).owner
        await platform.set_quota(owner, sandboxes=1)
        try:
            told = (await client.call_tool("create_sandbox", {"start_timeout": 5})).structured_content
            assert (told["code"], told["mask_sample"]) == ("quota_exceeded", True)
        finally:
            await platform.remove_quota(owner)
        assert (await call("run_command", command="echo on"))["stdout"] == "on\n"


async def test_a_server_has_so_many_sandboxes_and_those_presets(platform: Client) -> None:
    async with served("--max-sandboxes", "1", "--max-ttl", "600") as client:
        call = await created(client)
        for arguments, why in (
            ({}, "as many as this server may have"),
            ({"egress": "open"}, "egress 'open' is none of offline"),
            ({"ttl": 601}, "over 600 s"),
            ({"memroy_mb": 1}, "memroy_mb: Extra inputs"),
            ({"cpu": 0}, "cpu: Input should be greater"),
        ):
            refused = await client.call_tool("create_sandbox", arguments)
            assert (refused.is_error, why in refused.structured_content["why"]) == (True, True), refused
        # One that has ended leaves its place.
        await platform.delete(call.sandbox_id)
        await created(client)


async def test_a_sandbox_of_another_program_is_none_of_the_servers(call: Calls, platform: Client) -> None:
    async with await platform.create(os.environ["ROLLBOX_TEST_IMAGE"]) as other:
        own, call.sandbox_id = call.sandbox_id, other.id
        for name, arguments in (("run_command", {"command": "true"}), ("delete_sandbox", {})):
            assert (await call.fault(name, **arguments))[0] == "sandbox_not_found"
        call.sandbox_id = own
        listed = (await call.client.call_tool("list_sandboxes")).structured_content["sandboxes"]
        assert [one["sandbox_id"] for one in listed] == [own]


async def test_what_the_arguments_have_wrong_is_the_callers(call: Calls) -> None:
    for arguments in ({"command": "true", "cwd": "/no/such"}, {"command": "true", "user": "nobody-here"}, {}):
        assert (await call.fault("run_command", **arguments))[:3] == ("invalid_argument", "caller", False)
    assert "base64" in (await call.fault("write_file", path="/tmp/a", content="é", encoding="base64"))[3]
    assert (await call.fault("read_file", path="/no/such"))[0] == "file_not_found"


async def test_binary_output_and_a_command_of_megabytes_are_told(call: Calls) -> None:
    assert (await call("run_command", command=r"printf 'a\377b'"))["stdout"] == "a\ufffdb"
    assert (await call.fault("run_command", command=TOO_LARGE))[:3] == ("invalid_argument", "caller", False)
    assert (await call("run_command", command="echo on"))["stdout"] == "on\n"


@pytest.mark.parametrize("options", [["--max-sandboxes", "0"], ["--max-ttl", "1"], ["--listen", "0.0.0.0:0"]])
async def test_a_server_that_may_not_be_does_not_start(options: list[str]) -> None:
    program = await asyncio.create_subprocess_exec(
        ROLLBOX, *WORDS, *options, stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    _, said = await program.communicate()
    assert (program.returncode, said.startswith(b"rollbox mcp: ")) == (1, True)
