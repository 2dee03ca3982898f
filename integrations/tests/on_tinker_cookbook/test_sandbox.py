"""tinker-cookbook's protocol of a sandbox."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest
from tinker_cookbook.sandbox import SandboxInterface, SandboxResult
from tinker_cookbook.sandbox.sandbox_interface import SandboxResource

from on_tinker_cookbook.boxes import IMAGE, options
from rollbox import Client
from rollbox_integrations.tinker_cookbook import HarborSandboxFactory, RollboxSandbox, SandboxFactory
from rollbox_integrations.versions import require


def seen(result: SandboxResult) -> tuple[str, str, int]:
    return result.stdout, result.stderr, result.exit_code


async def test_it_is_one_of_tinker_cookbooks(box: RollboxSandbox) -> None:
    assert isinstance(box, SandboxInterface)
    await SandboxResource(box).send_heartbeat()
    assert box.sandbox_id == box.sandbox.id


async def test_a_command_has_its_outputs_and_its_code(box: RollboxSandbox) -> None:
    assert seen(await box.run_command("echo out; echo err >&2; exit 3")) == ("out\n", "err\n", 3)
    assert seen(await box.run_command("pwd; [[ a == a ]]", workdir="/usr")) == ("/usr\n", "", 0)
    missing = await box.run_command("true", workdir="/no/such")
    assert (missing.exit_code, "/no/such" in missing.stderr) == (126, True)
    assert (await box.run_command("seq 1000000", max_output_bytes=6)).stdout == "1\n2\n3\n"
    assert len((await box.run_command("head -c 1000000 /dev/zero")).stdout) == 128 * 1024


async def test_files_are_written_and_read(box: RollboxSandbox) -> None:
    assert seen(await box.write_file("/app/new/run.sh", "#!/bin/sh\necho ran \u00e4\n", executable=True)) == ("", "", 0)
    assert (await box.run_command("/app/new/run.sh")).stdout == "ran \u00e4\n"
    assert (await box.read_file("/app/new/run.sh", max_bytes=9)).stdout == "#!/bin/sh"
    assert seen(await box.write_file("/app/data", b"\xff\n")) == ("", "", 0)
    assert (await box.read_file("/app/data")).stdout == "\ufffd\n"


async def test_a_file_that_cannot_be_had_is_a_result(box: RollboxSandbox) -> None:
    for result in (await box.read_file("/no/such"), await box.read_file("/app"), await box.write_file("/etc", "a")):
        assert (result.stdout, result.exit_code, result.stderr[:9]) == ("", 1, "rollbox: ")
    await box.run_command("truncate -s 17M /tmp/large")
    assert "has more than 16777216 bytes" in (await box.read_file("/tmp/large")).stderr
    assert len((await box.read_file("/tmp/large", max_bytes=17 * 1024**2)).stdout) == 17 * 1024**2


async def test_a_cancelled_command_is_killed(box: RollboxSandbox) -> None:
    running = asyncio.create_task(box.run_command("sleep 335"))
    while (await box.run_command("pgrep -fx 'sleep 335'")).exit_code:
        pass
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    while not (await box.run_command("pgrep -fx 'sleep 335'")).exit_code:
        pass


async def test_a_factory_of_benchmarks(client: Client) -> None:
    factory = pickle.loads(pickle.dumps(SandboxFactory(IMAGE, options())))
    box = await factory()
    assert (await box.run_command("echo a")).stdout == "a\n"
    await box.cleanup()
    await box.cleanup()


async def test_a_factory_of_the_recipe_for_harbors_tasks(client: Client, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nWORKDIR /task\nCOPY given.txt .\n")
    (tmp_path / "given.txt").write_text("given\n")
    factory = pickle.loads(pickle.dumps(HarborSandboxFactory(options())))
    box = await factory(tmp_path, 600)
    try:
        assert (await box.run_command("pwd; cat given.txt")).stdout == "/task\ngiven\n"
        record = box.sandbox.record
        assert 0 < record.expires_at_ms - record.created_at_ms <= 600_000 + 60_000
    finally:
        await box.cleanup()


def test_an_older_tinker_cookbook_is_refused() -> None:
    with pytest.raises(ImportError, match=r"tinker-cookbook .* is here; rollbox works with 99 and newer"):
        require("tinker-cookbook", "99", "tinker-cookbook")
