"""What an agent is asked for a commit: where the image goes, as whom, and from what."""

import base64
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refusal, Refused
from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.kubernetes.node_agents.commits import NodeCommits
from controlplane.cluster.kubernetes.node_agents.tokens import LIVES_S
from controlplane.cluster.protocol import Committed
from controlplane.errors import Code, Problem
from controlplane.images import PrivateRegistry
from controlplane.settings import CommitSettings, PushSettings
from controlplane.wire import node_pb2
from tests.support.authority import Authority

DIGEST = f"sha256:{'1' * 64}"
PODS = "/api/v1/namespaces/s/pods"
TARGET = "127.0.0.1:5443/commits/alice/repo:v1"


class Api:
    """An API server with one pod."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.refusal: Refused | None = None

    async def get(self, path: str) -> dict[str, Any]:
        assert path == f"{PODS}/sb-1"
        if self.refusal is not None:
            raise self.refusal
        return {"spec": {"containers": [{"name": "sidecar", "image": "s"}, {"name": "target", "image": self.image}]}}


class Agents:
    """Agents that say what they are told to say."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, node_pb2.CommitRequest]] = []
        self.made: node_pb2.Committed | None = node_pb2.Committed(digest=DIGEST, size_bytes=7, skipped=["/a: a device"])

    async def commit(self, node: str, request: node_pb2.CommitRequest) -> AsyncGenerator[node_pb2.CommitProgress, None]:
        self.asked.append((node, request))
        yield node_pb2.CommitProgress(reading=node_pb2.CommitProgress.Reading(done_bytes=1))
        if self.made is not None:
            yield node_pb2.CommitProgress(committed=self.made)


@pytest.fixture
def push(tmp_path: Path) -> PushSettings:
    (tmp_path / "account").write_text("push:pass:word\n")
    (tmp_path / "ca.crt").write_text("PEM")
    keys = Authority().write(tmp_path / "keys", "commits")
    place = CommitSettings("127.0.0.1:5445", keys)
    return PushSettings("127.0.0.1:5444", tmp_path / "account", tmp_path / "ca.crt", place)


@pytest.fixture
def agents() -> Agents:
    return Agents()


class Noon:
    def now_ms(self) -> int:
        return 1_700_000_000_999


def commits(api: Api, agents: Agents, push: PushSettings, node: str = "n1") -> NodeCommits:
    registry = PrivateRegistry("127.0.0.1:5443")
    assert push.commits is not None
    return NodeCommits(
        cast("KubernetesClient", api),
        cast("NodeAgents", agents),
        registry,
        push,
        push.commits,
        pods=PODS,
        node_of=lambda _: node,
        clock=Noon(),
    )


@pytest.mark.parametrize("base", ["mirror/docker.io/library/python", "estargz/r/python", "commits/alice/first"])
async def test_the_agent_is_told_the_registry_for_this_call(agents: Agents, push: PushSettings, base: str) -> None:
    offered = commits(Api(f"127.0.0.1:5443/{base}@{DIGEST}"), agents, push)
    assert offered.place == "127.0.0.1:5443/commits"
    made = await offered.commit("sb-1", TARGET, 1000)
    assert made == Committed(TARGET, DIGEST, 7, ("/a: a device",))
    ((node, asked),) = agents.asked
    assert (node, asked.sandbox_id, asked.container, asked.max_bytes) == ("n1", "sb-1", "target", 1000)
    assert (asked.base, asked.target) == (f"{base}@{DIGEST}", "commits/alice/repo:v1")
    told = asked.registry
    assert (told.address, told.connect, told.authority) == ("127.0.0.1:5445", "127.0.0.1:5445", "PEM")
    said = json.loads(base64.urlsafe_b64decode(told.credentials.identity_token.split(".")[1] + "=="))
    assert (said["iat"], said["exp"]) == (1_700_000_000, 1_700_000_000 + LIVES_S)
    rights = {one["name"]: one["actions"] for one in said["access"]}
    assert rights == {base: ["pull"]} | {"commits/alice/repo": ["pull", "push", "delete"]}
    # The account of the registry stays where it is.
    assert "pass:word" not in str(asked)


async def test_the_place_of_commits_may_have_an_authority_of_its_own(
    agents: Agents, push: PushSettings, tmp_path: Path
) -> None:
    (tmp_path / "commits.crt").write_text("OWN PEM")
    api = Api(f"127.0.0.1:5443/mirror/p@{DIGEST}")
    for other in (push, replace(push, authority_file=None)):
        place = CommitSettings("127.0.0.1:5445", tmp_path / "keys", tmp_path / "commits.crt")
        there = replace(other, commits=place)
        await commits(api, agents, there).commit("sb-1", TARGET, 1)
        assert agents.asked[-1][1].registry.authority == "OWN PEM"
    await commits(api, agents, replace(push, authority_file=None)).commit("sb-1", TARGET, 1)
    assert agents.asked[-1][1].registry.authority == ""


async def test_further_ones_that_are_skipped_are_counted(agents: Agents, push: PushSettings) -> None:
    agents.made = node_pb2.Committed(digest=DIGEST, skipped=["/a: a device"], skipped_more=3)
    made = await commits(Api(f"127.0.0.1:5443/mirror/p@{DIGEST}"), agents, push).commit("sb-1", TARGET, 1)
    assert list(made.skipped) == ["/a: a device", "and 3 more"]


@pytest.mark.parametrize("image", [f"docker.io/library/python@{DIGEST}", "127.0.0.1:5443/mirror/python:1"])
async def test_what_is_not_of_the_registry_is_refused(agents: Agents, push: PushSettings, image: str) -> None:
    with pytest.raises(Problem) as refused:
        await commits(Api(image), agents, push).commit("sb-1", TARGET, 1)
    assert (refused.value.code, agents.asked) == ("unsupported", [])
    assert refused.value.details["value"]


async def test_one_that_is_gone_is_lost(agents: Agents, push: PushSettings) -> None:
    api = Api(f"127.0.0.1:5443/mirror/p@{DIGEST}")
    for node, status in (("", 0), ("n1", 404)):
        api.refusal = Refused(Refusal(status, "NotFound", "pods not found"), "read a pod") if status else None
        with pytest.raises(Problem) as refused:
            await commits(api, agents, push, node).commit("sb-1", TARGET, 1)
        assert refused.value.code == "sandbox_lost"
    api.refusal = Refused(Refusal(500, "Internal", "no"), "read a pod")
    with pytest.raises(Refused):
        await commits(api, agents, push).commit("sb-1", TARGET, 1)


async def test_an_agent_that_says_nothing_has_failed(agents: Agents, push: PushSettings) -> None:
    agents.made = None
    with pytest.raises(Problem) as failed:
        await commits(Api(f"127.0.0.1:5443/mirror/p@{DIGEST}"), agents, push).commit("sb-1", TARGET, 1)
    assert failed.value.code == "internal"


@pytest.mark.parametrize("code", ["invalid_argument", "unauthenticated", "permission_denied"])
async def test_an_agent_that_does_not_understand_a_commit_is_to_be_asked_again(push: PushSettings, code: Code) -> None:
    class Other(Agents):
        async def commit(
            self, node: str, request: node_pb2.CommitRequest
        ) -> AsyncGenerator[node_pb2.CommitProgress, None]:
            if node:
                raise Problem(code, "registry: credentials are needed")
            yield node_pb2.CommitProgress()

    offered = commits(Api(f"127.0.0.1:5443/mirror/a@{DIGEST}"), Other(), push)
    with pytest.raises(Problem, match="credentials are needed.*different versions while an upgrade") as caught:
        await offered.commit("sb-1", TARGET, 1000)
    assert (caught.value.code, caught.value.entry.retry, caught.value.retry_after_ms) == (
        "upstream_timeout",
        "later",
        30_000,
    )
