"""OpenEnv's contract of a provider, through its clients; each row of the page's table."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from losing import lose
from openenv.core import GenericEnvClient

from on_openenv.conftest import IMAGE
from rollbox.sync import Client
from rollbox_integrations.openenv import RollboxProvider, SandboxUnavailable

# Where the registry of the others is, so that it is one that answers.
NO_IMAGE = IMAGE.rpartition("/")[0] + "/no-such-image:1"
# The script of an episode: what is said, and what it is worth.
POLICY = [("a", 0.1), ("ab", 0.2), ("abc", 0.3)]
# A server that has a /health, and no more.
SERVER = "mkdir -p /tmp/site && echo ok > /tmp/site/health && cd /tmp/site && exec python3 -m http.server 8000"
EATS = "exec python3 -c 'x = b\"x\" * (1 << 30); print(len(x))'"
HOST = """
import sys, time
from rollbox_integrations.openenv import RollboxProvider

provider = RollboxProvider(cmd="sleep 300", lease=5, memory="128Mi")
provider.start_container(sys.argv[1])
print(provider.sandbox.id, flush=True)
time.sleep(300)
"""


def made(cmd: str | None = SERVER, **options: Any) -> RollboxProvider:
    return RollboxProvider(**{"cmd": cmd, "memory": "512Mi", "egress": "offline", **options})


@pytest.fixture
def provider(client: Client) -> Iterator[RollboxProvider]:
    with made() as one:
        yield one


def status(url: str, headers: Any = None) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.timeout(600)
def test_an_episode_runs_in_a_sandbox(client: Client, echo_image: str) -> None:
    with made(None) as provider:
        bootstrap = GenericEnvClient.from_docker_image(echo_image, provider=provider, env_vars={"A": "b"})
        environment = bootstrap.sync()
        begun = environment.reset().observation
        assert (begun["message"], begun["variable"]) == ("ready", "b")
        for said, reward in POLICY:
            told = environment.step({"message": said})
            assert (told.observation["message"], told.reward) == (said, reward)
        assert told.done
        assert provider.fault() is None
        environment.close()
        assert provider._sandbox is None


@pytest.mark.timeout(600)
async def test_a_server_that_ends_is_the_environments_own_doing(client: Client, echo_image: str) -> None:
    with made(None) as provider:
        environment = await GenericEnvClient.from_docker_image(echo_image, provider=provider)
        await environment.reset()
        with pytest.raises(Exception):  # noqa: B017, PT011 - what OpenEnv makes of a broken connection
            await environment.step({"message": "die"})
        fault = await asyncio.to_thread(provider.fault)
        assert fault is not None
        assert (fault["code"], fault["mask_sample"]) == ("exec_failed", False)
        await environment.close()


def test_the_port_is_public_or_needs_headers(provider: RollboxProvider, client: Client) -> None:
    url = provider.start_container(IMAGE)
    provider.wait_for_ready(url)
    assert (status(f"{url}/health"), provider.headers) == (200, {})
    with made(public=False) as other:
        url = other.start_container(IMAGE)
        other.wait_for_ready(url)
        assert status(f"{url}/health", other.headers) == 200
        assert status(f"{url}/health") in {401, 403, 404}


def test_one_provider_has_one_sandbox_at_a_time(provider: RollboxProvider) -> None:
    provider.start_container(IMAGE)
    with pytest.raises(RuntimeError, match="stop_container"):
        provider.start_container(IMAGE)
    provider.stop_container()
    provider.stop_container()
    provider.start_container(IMAGE)


def test_a_server_that_does_not_begin_says_why(provider: RollboxProvider, client: Client) -> None:
    url = provider.start_container(IMAGE, cmd="echo no such module >&2; exit 3")
    with pytest.raises(RuntimeError, match=r"has ended \(exited\): no such module"):
        provider.wait_for_ready(url)
    provider.stop_container()
    with pytest.raises(TimeoutError, match="did not answer for 1 s"):
        provider.wait_for_ready(provider.start_container(IMAGE, cmd="sleep 300"), timeout_s=1)


def test_an_image_that_says_no_server_is_refused_and_leaves_nothing(client: Client) -> None:
    with pytest.raises(ValueError, match=r"no openenv.yaml .*cmd="):
        made(None).start_container(IMAGE)


def test_out_of_memory_is_the_environments_own_doing(client: Client) -> None:
    with made(EATS, memory="64Mi") as provider:
        url = provider.start_container(IMAGE)
        with pytest.raises(RuntimeError, match="oom_killed|score the sample"):
            provider.wait_for_ready(url)
        fault = provider.fault()
        assert fault is not None
        assert (fault["code"], fault["mask_sample"]) == ("oom_killed", False)


def test_a_sandbox_that_somebody_deletes_is_masked(provider: RollboxProvider, client: Client) -> None:
    url = provider.start_container(IMAGE)
    provider.wait_for_ready(url)
    client.delete(provider.sandbox.id)
    fault = provider.fault()
    assert fault is not None
    assert (fault["code"], fault["fault"], fault["mask_sample"]) == ("deleted", "caller", True)
    with pytest.raises(SandboxUnavailable, match=r"deleted \(caller; mask the sample\): "):
        provider.wait_for_ready(url)


def test_a_sandbox_that_the_platform_has_lost_is_masked(provider: RollboxProvider) -> None:
    url = provider.start_container(IMAGE)
    lose(provider.sandbox.id)
    fault = provider.fault()
    assert fault is not None
    assert (fault["code"], fault["fault"], fault["mask_sample"]) == ("sandbox_lost", "platform", True)
    with pytest.raises(SandboxUnavailable, match=r"sandbox_lost \(platform; mask the sample\): "):
        provider.wait_for_ready(url)


def test_an_image_that_is_not_there_is_no_sandbox(client: Client) -> None:
    with pytest.raises(SandboxUnavailable, match=r"image_not_found \(caller; mask the sample\): ") as error:
        made().start_container(NO_IMAGE)
    assert error.value.fault["code"] == "image_not_found"


def test_a_quota_that_is_used_up_is_no_sandbox(provider: RollboxProvider, client: Client) -> None:
    provider.start_container(IMAGE)
    owner = client.quota().owner
    client.set_quota(owner, sandboxes=1)
    try:
        with pytest.raises(SandboxUnavailable, match=r"quota_exceeded \(caller; mask the sample\): "):
            made(start_timeout=5).start_container(IMAGE)
    finally:
        client.remove_quota(owner)


def test_a_host_that_is_killed_leaves_nothing(client: Client) -> None:
    words = [sys.executable, "-c", HOST, IMAGE]
    with subprocess.Popen(words, env=os.environ.copy(), stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        orphan = program.stdout.readline().decode().strip()
        program.send_signal(signal.SIGKILL)
    while client.get(orphan).state != "ended":
        time.sleep(0.5)
    end = client.get(orphan).end
    assert end is not None
    assert (end.cause, end.mask_sample) == ("lease_expired", True)


def test_a_wrong_option_is_the_callers(client: Client) -> None:
    with pytest.raises(TypeError, match="memroy is no option of Sandbox.create"):
        made(memroy=1)
    with pytest.raises(ValueError, match="workers: start_container takes image, port, env_vars and cmd"):
        made().start_container(IMAGE, workers=2)
    with pytest.raises(ValueError, match=r"invalid_argument \(caller; score the sample\): .*memory"):
        made(memory="much").start_container(IMAGE)
