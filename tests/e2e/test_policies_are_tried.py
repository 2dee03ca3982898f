"""A network plugin that ignores policies is found out: by install, `helm test` and `rollbox doctor --cluster`.

On the bridge (ROLLBOX_TEST_CNI=bridge) nothing enforces a policy. On Cilium a policy that allows everything stands in
for that: policies only ever add to what is allowed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.doctor import check_pods, network
from controlplane.reach.ways import READY
from tests.support.command_line import rollbox
from tests.support.installed import (
    ONE_OF_EACH,
    Installed,
    apply,
    ignores_policies,
    installed,
    kubeconfig,
    kubectl,
    objects,
)

RELEASE = "rollbox-open"
VALUES = (
    *ONE_OF_EACH,
    # The class of the release that is there already.
    "runtimeClass.create=false",
    "networkPolicies.acceptUnenforced=false",
)
OPEN: dict[str, Any] = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "all-is-allowed"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{}], "egress": [{}]},
}
COMPLAINTS = ("does not enforce NetworkPolicy", "enforces NetworkPolicy, but not for all")


@contextlib.asynccontextmanager
async def everything_allowed(namespace: str) -> AsyncIterator[None]:
    """For the pods of a namespace."""
    await apply(OPEN, namespace=namespace)
    try:
        yield
    finally:
        await kubectl("delete", "networkpolicy", "all-is-allowed", "-n", namespace, "--ignore-not-found")


def complaint(text: str) -> str:
    """Which of the two it is."""
    (found,) = [one for one in COMPLAINTS if one in text]
    return found


@pytest.mark.timeout(400)
async def test_an_install_fails_where_policies_do_not_hold_and_changes_nothing(stack: Installed) -> None:
    await kubectl("create", "namespace", RELEASE)
    async with everything_allowed(RELEASE):
        with pytest.raises(RuntimeError) as refused:
            # Uninstalled and looked through all the same: nothing is left.
            async with installed(RELEASE, *VALUES):
                pass
    text = str(refused.value)
    assert complaint(text)
    assert "nothing was changed" in text
    assert "networkPolicies.acceptUnenforced=true" in text
    assert "BROKEN: a sandbox reaches the API server" in text
    assert f"ok: a sandbox reaches the {READY}" in text


# Every sandbox is open meanwhile.
@pytest.mark.disrupts
@pytest.mark.timeout(400)
async def test_helm_test_and_doctor_find_a_release_whose_policies_do_not_hold(stack: Installed) -> None:
    if ignores_policies():
        # As somebody who has not been asked: the preflight would have refused it.
        values = ("networkPolicies.acceptUnenforced=false", "preflight.enabled=false")
        await stack.upgrade(*values)
        try:
            with pytest.raises(RuntimeError) as refused:
                await stack.test()
        finally:
            await stack.rollback()
    else:
        async with everything_allowed(stack.sandboxes):
            with pytest.raises(RuntimeError) as refused:
                await stack.test()
            status, found = await doctor(stack)
        assert status == 1
        assert complaint(found[f"network policies of {stack.release}"]["detail"])
    assert complaint(str(refused.value))
    assert "BROKEN: a sandbox reaches the gateway" in str(refused.value)


async def test_doctor_says_whether_policies_hold_where_sandboxes_run_and_leaves_nothing(stack: Installed) -> None:
    status, found = await doctor(stack)
    assert found[f"{READY} from {stack.release}"]["ok"]
    held = not ignores_policies()
    assert found[f"network policies of {stack.release}"]["ok"] == held
    for name in ("API server", "kubelet of its node", "gateway"):
        assert found[f"{name} from {stack.release}"]["ok"] == held, found[f"{name} from {stack.release}"]["detail"]
    assert status == (0 if all(one["ok"] for one in found.values()) else 1)
    pods = [*await objects("pods", "-n", stack.sandboxes), *await objects("pods", "-n", stack.namespace)]
    assert not [one["metadata"]["name"] for one in pods if one["metadata"]["name"].startswith("doctor-")]


@pytest.mark.timeout(400)
async def test_doctor_says_it_before_an_install_too(stack: Installed) -> None:
    (plane, *_) = await stack.component("controlplane")
    image = plane["spec"]["containers"][0]["image"]
    async with KubernetesClient.connect(kubeconfig()) as client:
        verdicts = {one.way.name: one for one in await network._of_namespace(client, image, "gvisor")}
    assert verdicts[READY].state == "kept"
    held = "broken" if ignores_policies() else "kept"
    for name in ("API server", "kubelet of its node", "cluster DNS", "port of another pod"):
        assert verdicts[name].state == held, verdicts[name].sentence
    left = [one for one in await objects("namespaces") if one["metadata"]["name"].startswith(check_pods.NAMESPACE)]
    assert all("deletionTimestamp" in one["metadata"] for one in left)


async def doctor(stack: Installed) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status, and what was found by name."""
    only = ("--release", stack.release)
    status, out, err = await rollbox(stack, "doctor", "--cluster", "--kubeconfig", str(kubeconfig()), *only, "--json")
    assert out, err
    return status, {one["name"]: one for one in json.loads(out)["checks"]}
