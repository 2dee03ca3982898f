"""What the chart gives for drains: a right that a policy narrows, a budget, and a level of the API server's."""

import pytest

from tests.support.helm import Manifest, named, of_kind, render

FAIRNESS = ("FlowSchema", "PriorityLevelConfiguration")


def may_change_nodes(manifests: list[Manifest]) -> bool:
    rules = named(manifests, "ClusterRole", "rollbox-rollbox-controlplane")["rules"]
    return any("nodes" in rule["resources"] and "patch" in rule["verbs"] for rule in rules)


def environment(manifests: list[Manifest]) -> dict[str, str]:
    (container,) = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}


def node_policies(manifests: list[Manifest]) -> list[Manifest]:
    policies = of_kind(manifests, "ValidatingAdmissionPolicy")
    return [one for one in policies if one["metadata"]["name"].endswith("-nodes")]


@pytest.mark.parametrize("values", [(), ("drain=null",)])
def test_the_right_to_change_nodes_comes_with_the_policy_that_narrows_it(values: tuple[str, ...]) -> None:
    manifests = render(*values)
    assert may_change_nodes(manifests)
    (policy,) = node_policies(manifests)
    (condition,) = policy["spec"]["matchConditions"]
    assert "'system:serviceaccount:rollbox:rollbox-controlplane'" in condition["expression"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    bound = of_kind(manifests, "ValidatingAdmissionPolicyBinding")
    assert policy["metadata"]["name"] in [one["spec"]["policyName"] for one in bound]


def test_without_it_nothing_may_change_nodes() -> None:
    manifests = render("drain.byApi=false")
    assert not may_change_nodes(manifests)
    assert not node_policies(manifests)


def test_evictions_are_refused_only_where_that_was_chosen() -> None:
    budgets = {one["metadata"]["name"] for one in of_kind(render(), "PodDisruptionBudget")}
    assert "rollbox-sandboxes" not in budgets
    assert "ROLLBOX_CONTROLPLANE_CORDON_DRAINS" not in environment(render())
    manifests = render("drain.evictions=refused")
    budget = named(manifests, "PodDisruptionBudget", "rollbox-sandboxes")
    assert budget["metadata"]["namespace"] == "rollbox-sandboxes"
    assert budget["spec"]["selector"]["matchLabels"]["rollbox.dev/installation"] == "rollbox"
    assert environment(manifests)["ROLLBOX_CONTROLPLANE_CORDON_DRAINS"] == "true"


def test_the_api_servers_fairness_is_the_clusters_to_decide() -> None:
    assert not [one for kind in FAIRNESS for one in of_kind(render(), kind)]
    manifests = render("apiFairness.enabled=true", "apiFairness.shares=70")
    (level,) = of_kind(manifests, "PriorityLevelConfiguration")
    assert level["spec"]["limited"]["nominalConcurrencyShares"] == 70
    (schema,) = of_kind(manifests, "FlowSchema")
    assert schema["spec"]["priorityLevelConfiguration"]["name"] == level["metadata"]["name"]
    accounts = {one["metadata"]["name"] for one in of_kind(manifests, "ServiceAccount")}
    matched = {one["serviceAccount"]["name"] for rule in schema["spec"]["rules"] for one in rule["subjects"]}
    assert matched <= accounts
