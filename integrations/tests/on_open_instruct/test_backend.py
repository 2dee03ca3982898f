"""open-instruct's contract of a backend, its environment in Ray's actors, and each row of the page's table."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from open_instruct.environments import EnvironmentPool, SandboxBackend, backends
from open_instruct.environments.base import EnvCall, StepResult

from on_open_instruct.conftest import IMAGE, WITHOUT_TORCH, given
from rollbox.sync import Client, Sandbox
from rollbox_integrations.open_instruct import RollboxBackend, RollboxSandboxEnv, SandboxLostError

NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
EATS = "python3 -c \"x = b'x' * (1 << 30); print(len(x))\""
TRAINER = """
import sys, time
from rollbox_integrations.open_instruct import RollboxBackend

backend = RollboxBackend(sys.argv[1], options={"lease": 5})
backend.start()
print(backend.sandbox.id, flush=True)
time.sleep(600)
"""
PROGRAM = """
import sys
from open_instruct.environments.tools.tools import TOOL_REGISTRY
print(TOOL_REGISTRY["rollbox_sandbox"](image="a").tool_class.__name__, sys.argv[1:])
"""
PATH = {"PYTHONPATH": os.pathsep.join([WITHOUT_TORCH, os.environ["PYTHONPATH"]])}


@pytest.fixture
def box(client: Client) -> Iterator[RollboxBackend]:
    backend = backends.create_backend("rollbox", **given())
    assert isinstance(backend, RollboxBackend)
    backend.start()
    yield backend
    backend.close()


def id_of(box: RollboxBackend) -> str:
    assert box.sandbox is not None
    return box.sandbox.id


def test_a_command_has_its_outputs_and_its_code(box: RollboxBackend) -> None:
    assert isinstance(box, SandboxBackend)
    told = box.run_command("echo out; echo err >&2; [[ a == a ]] && exit 3")
    assert (told.stdout, told.stderr, told.exit_code) == ("out\n", "err\n", 3)
    long = box.run_command("echo begin; head -c 3000000 /dev/zero | tr '\\0' x")
    assert (len(long.stdout), long.stdout[:6]) == (1_000_000, "begin\n")
    with pytest.raises(ValueError, match="Unknown backend type"):
        backends.create_backend("none")


def test_files_go_both_ways(box: RollboxBackend) -> None:
    box.write_file("/made/new/a", "gr\u00fc\u00dfe")
    box.write_file("/made/new/b", b"\xff\x00")
    assert box.read_file("/made/new/a") == "gr\u00fc\u00dfe"
    assert (box.read_file("/made/new/b", binary=True), box.read_file("/made/new/b")) == (b"\xff\x00", "\ufffd\x00")
    with pytest.raises(FileNotFoundError):
        box.read_file("/no/such")
    with pytest.raises(IsADirectoryError):
        box.read_file("/made")


def test_a_deadline_is_a_result(client: Client) -> None:
    backend = RollboxBackend(**{**given(), "timeout": 3})
    with pytest.raises(RuntimeError, match="not started"):
        backend.run_command("true")
    backend.start()
    late = backend.run_command("echo begun; sleep 371")
    assert (late.exit_code, late.stdout, late.stderr[:28]) == (124, "begun\n", "Command timed out after 3s.\n")
    assert backend.run_command("pgrep -fx 'sleep 371'").exit_code == 1
    backend.close()
    backend.close()


def test_out_of_memory_is_a_result(client: Client) -> None:
    backend = RollboxBackend(**{**given(), "mem_limit": "64m"})
    backend.start()
    told = backend.run_command(EATS)
    assert (told.exit_code, "memory limit" in told.stderr) == (137, True)
    backend.close()


def test_a_sandbox_that_somebody_deletes_is_no_result(box: RollboxBackend, client: Client) -> None:
    client.delete(id_of(box))
    for call in (
        lambda: box.run_command("true"),
        lambda: box.read_file("/etc/hostname"),
        lambda: box.write_file("/tmp/a", "a"),
    ):
        with pytest.raises(SandboxLostError, match=r"deleted \(caller; mask the sample\): ") as gone:
            call()
    assert box.fault == gone.value.fault


def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    with pytest.raises(SandboxLostError, match=r"image_not_found \(caller; mask the sample\): "):
        RollboxBackend(NO_IMAGE).start()
    env = RollboxSandboxEnv(image=NO_IMAGE)
    with pytest.raises(RuntimeError, match="Reset failed after 3 attempts: image_not_found"):
        asyncio.run(env.reset())


def test_a_quota_that_is_used_up_is_no_sandbox(box: RollboxBackend, client: Client) -> None:
    owner = client.quota().owner
    client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(SandboxLostError, match=r"quota_exceeded \(caller; mask the sample\): "):
            RollboxBackend(**given(start_timeout=5)).start()
    finally:
        client.remove_quota(owner)


def test_a_sandbox_whose_program_died_is_no_result(client: Client) -> None:
    words = [sys.executable, "-c", TRAINER, IMAGE]
    with subprocess.Popen(words, env={**os.environ, **PATH}, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        backend = RollboxBackend(**given())
        backend.sandbox = Sandbox.connect(program.stdout.readline().decode().strip())
        program.send_signal(signal.SIGKILL)
    while client.get(id_of(backend)).state != "ended":
        time.sleep(0.5)
    with pytest.raises(SandboxLostError, match=r"lease_expired \(caller; mask the sample\): "):
        backend.run_command("true")


def test_a_wrong_option_is_the_callers(client: Client) -> None:
    with pytest.raises(TypeError, match="memroy"):
        RollboxBackend(IMAGE, options={"memroy": 1})
    with pytest.raises(ValueError, match="'much' is no size"):
        RollboxBackend(IMAGE, mem_limit="much")
    with pytest.raises(ValueError, match=r"invalid_argument \(caller; score the sample\): .*memory"):
        RollboxBackend(IMAGE, options={"memory": "much"}).start()


def call(name: str, **args: Any) -> EnvCall:
    return EnvCall(id="1", name=name, args=args)


async def test_an_episode_keeps_its_state_and_edits_files(client: Client) -> None:
    env = RollboxSandboxEnv(**given())
    ready, tools = await env.reset(task_prompt="Do it.")
    assert (ready.result, len(tools)) == ("[Task: Do it.] Sandbox ready.", 2)
    await env.step(call("execute_bash", command="cd /tmp; export A=kept"))
    told = await env.step(call("execute_bash", command="pwd; echo $A; exit 2"))
    assert ("[STDOUT]\n/tmp\nkept\n" in told.result, told.metadata["exit_code"]) == (True, 2)
    for args in (
        {"command": "create", "path": "/made/a.py", "file_text": "one\ntwo\n"},
        {"command": "str_replace", "path": "/made/a.py", "old_str": "two", "new_str": "three"},
        {"command": "insert", "path": "/made/a.py", "insert_line": 1, "new_str": "and"},
    ):
        assert "ERROR" not in (await env.step(call("str_replace_editor", **args))).result
    seen = await env.step(call("str_replace_editor", command="view", path="/made/a.py"))
    assert [line.split()[-1] for line in seen.result.splitlines()[1:]] == ["one", "and", "three"]
    none = await env.step(call("str_replace_editor", command="str_replace", path="/no", old_str="a", new_str="b"))
    assert "ERROR" in none.result
    assert env.get_metrics() == {"step_count": 7.0, "sandbox_lost": 0.0, "sandbox_masked": 0.0}
    await env.close()


async def test_an_episode_that_has_lost_its_sandbox_is_over_and_says_so(client: Client) -> None:
    env = RollboxSandboxEnv(**given())
    await env.reset()
    assert isinstance(env._backend, RollboxBackend)
    client.delete(id_of(env._backend))
    told = await env.step(call("execute_bash", command="true"))
    assert (told.done, told.metadata["sandbox_fault"]["mask_sample"]) == (True, True)
    assert "mask the sample" in told.metadata["error"]
    assert env.get_metrics()["sandbox_masked"] == 1.0
    await env.reset()
    assert env.get_metrics()["sandbox_masked"] == 0.0
    await env.close()


def test_environments_work_in_rays_actors(client: Client) -> None:
    """Whose processes know of rollbox by the class of the environment alone."""
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {**PATH, **connection()}})
    try:
        pool = EnvironmentPool.remote(pool_size=1, actor_class=RollboxSandboxEnv, **given())
        actor = ray.get(pool.acquire.remote())
        ray.get(actor.reset.remote())
        told: StepResult = ray.get(actor.step.remote(call("execute_bash", command="echo from an actor")))
        assert "from an actor" in told.result
        ray.get(actor.close.remote())
    finally:
        ray.shutdown()


def connection() -> dict[str, str]:
    return {name: os.environ[name] for name in ("ROLLBOX_URL", "ROLLBOX_API_KEY")}


def test_an_unmodified_program_knows_the_tool(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    words = [sys.executable, "-m", "rollbox_integrations.open_instruct", str(tmp_path / "train.py"), "--tools", "a"]
    told = subprocess.run(words, env={**os.environ, **PATH}, capture_output=True, text=True, check=True)
    assert told.stdout == "RollboxSandboxEnv ['--tools', 'a']\n"


def test_without_open_instruct_it_is_told_which_one_works() -> None:
    words = [sys.executable, "-c", "import rollbox_integrations.open_instruct"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert (told.returncode, "works with allenai/open-instruct at e6c3044" in told.stderr) == (1, True)
