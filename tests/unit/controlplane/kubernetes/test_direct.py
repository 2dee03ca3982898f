"""Direct networks: who may have one, what its pods have for it, and when a start is refused."""

from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest

from controlplane.cluster.engine.machine import Machine
from controlplane.cluster.kubernetes.api_server.refusals import Refusal, Refused
from controlplane.cluster.kubernetes.pods import direct_check
from controlplane.cluster.kubernetes.pods.podspec import pod
from controlplane.egress import DirectNetwork, DirectNetworks, read_networks
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from tests.unit.controlplane.kubernetes.test_podspec import BOOT, DEFAULTS

NETWORKS = DirectNetworks(
    {
        "addresses": DirectNetwork(owners=["alice"], addresses=True, names=False),
        "names": DirectNetwork(addresses=False, names=True),
        "both": DirectNetwork(addresses=True, names=True, resolvers=["203.0.113.53"]),
    }
)
HERE = replace(DEFAULTS, networks=NETWORKS)
TAKEN = {"status": {"conditions": [{"type": "Valid", "status": "True"}]}}


class _Api:
    """What of the API server's client is asked."""

    def __init__(self, **objects: dict[str, Any]) -> None:
        self._objects = objects
        self.asked: list[str] = []

    async def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        kind = path.split("/")[-2]
        if kind not in self._objects:
            raise Refused(Refusal.of(HTTPStatus.NOT_FOUND, b"{}", None), f"GET {path}")
        return self._objects[kind]


def made(network: str) -> dict[str, Any]:
    return pod("sb-1", SandboxSpec(image="a", network=network), BOOT, HERE, 1)


@pytest.mark.parametrize(
    ("owner", "network", "code"),
    [
        ("alice", "addresses", ""),
        ("bob", "addresses", "permission_denied"),
        ("bob", "names", ""),
        ("bob", "", ""),
        ("alice", "other", "unsupported"),
    ],
)
def test_an_operator_says_who_may_have_which(owner: str, network: str, code: str) -> None:
    assert [one.code for one in NETWORKS.refused(owner, network)] == ([code] if code else [])
    if code:
        with pytest.raises(Problem) as refused:
            NETWORKS.check(owner, network)
        assert refused.value.details["option"] == "network"
    else:
        NETWORKS.check(owner, network)


def test_a_pod_is_labelled_by_its_network_and_one_without_is_as_before() -> None:
    plain, direct = made(""), made("addresses")
    assert direct["metadata"]["labels"] == {**plain["metadata"]["labels"], "rollbox.dev/network": "addresses"}
    assert direct["spec"] | {"containers": []} == plain["spec"] | {"containers": []}


def test_names_are_resolved_by_the_cluster_or_by_the_installations_resolvers() -> None:
    assert made("")["spec"]["dnsConfig"]["nameservers"] == ["127.0.0.1"]
    cluster, own = made("names")["spec"], made("both")["spec"]
    assert (cluster["dnsPolicy"], "nameservers" in cluster["dnsConfig"]) == ("ClusterFirst", False)
    assert (own["dnsPolicy"], own["dnsConfig"]["nameservers"]) == ("None", ["203.0.113.53"])
    assert {"name": "ndots", "value": "1"} in own["dnsConfig"]["options"]


@pytest.mark.parametrize(
    ("network", "objects", "trouble"),
    [
        ("", {}, ""),
        ("addresses", {"networkpolicies": {}}, ""),
        ("addresses", {"ciliumnetworkpolicies": TAKEN}, "no NetworkPolicy release-direct-addresses"),
        ("names", {"ciliumnetworkpolicies": TAKEN}, ""),
        ("names", {"networkpolicies": {}}, "need Cilium"),
        ("names", {"ciliumnetworkpolicies": {}}, "no Cilium has looked"),
        (
            "names",
            {
                "ciliumnetworkpolicies": {
                    "status": {"conditions": [{"type": "Valid", "status": "False", "message": "m"}]}
                }
            },
            "Cilium refuses its policy: m",
        ),
        ("both", {"networkpolicies": {}, "ciliumnetworkpolicies": TAKEN}, ""),
        ("both", {"ciliumnetworkpolicies": TAKEN}, "no NetworkPolicy"),
    ],
)
async def test_what_nobody_enforces_is_refused(network: str, objects: dict[str, Any], trouble: str) -> None:
    api: Any = _Api(**objects)
    if not trouble:
        await direct_check.check(api, HERE, network)
        assert len(api.asked) == len(objects)
        return
    with pytest.raises(Problem, match=trouble) as refused:
        await direct_check.check(api, HERE, network)
    assert (refused.value.code, refused.value.details["option"]) == ("unsupported", "network")


async def test_an_api_server_that_refuses_the_question_says_so_itself() -> None:
    class Forbidding(_Api):
        async def get(self, path: str) -> dict[str, Any]:
            raise Refused(Refusal.of(HTTPStatus.FORBIDDEN, b"{}", None), f"GET {path}")

    api: Any = Forbidding()
    with pytest.raises(Refused):
        await direct_check.check(api, HERE, "addresses")


def test_an_engine_has_none() -> None:
    machine = Machine.of({}, {})
    with pytest.raises(Problem, match="it takes a Kubernetes cluster") as refused:
        machine.check(SandboxSpec(image="a", network="addresses"))
    assert (refused.value.code, refused.value.details["option"]) == ("unsupported", "network")


@pytest.mark.parametrize("text", ["", "[]", '{"A": {}}', '{"a": {"addresses": 1, "names": true}}'])
def test_a_file_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must hold"):
        read_networks(text)


def test_the_charts_file_is_read() -> None:
    text = '{"a": {"owners": ["me"], "addresses": true, "names": false}}'
    assert read_networks(text).by_name == {"a": DirectNetwork(owners=["me"], addresses=True, names=False)}
