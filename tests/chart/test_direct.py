"""Direct networks in the chart: policies that open what their rules say, of which nothing private is."""

import ipaddress
import json
from typing import Any

import pytest

from controlplane.egress import read_networks
from tests.chart.test_images import environment
from tests.support.helm import ChartError, Manifest, named, of_kind, render

CILIUM = "cilium.io/v2/CiliumNetworkPolicy"
NAME = "rollbox-direct-a"


def _rendered(*rules: dict[str, Any], more: tuple[str, ...] = (), apis: tuple[str, ...] = (CILIUM,)) -> list[Manifest]:
    networks = {"a": {"owners": ["me"], "allow": list(rules)}}
    return render(
        "egress.direct.enabled=true", *more, as_json=[f"egress.direct.networks={json.dumps(networks)}"], apis=apis
    )


def _blocks(manifests: list[Manifest]) -> list[dict[str, Any]]:
    ways = named(manifests, "NetworkPolicy", NAME)["spec"]["egress"]
    return [peer["ipBlock"] for way in ways for peer in way["to"]]


def test_nothing_of_them_is_there_by_default() -> None:
    manifests = render()
    assert "DIRECT_NETWORKS_FILE" not in environment(manifests)
    assert not [one for one in manifests if "-direct" in one["metadata"]["name"]]
    rules = [rule for one in of_kind(manifests, "Role") for rule in one["rules"]]
    assert not [rule for rule in rules if "networkpolicies" in rule["resources"]]


def test_addresses_are_a_network_policy_for_the_pods_of_the_network() -> None:
    rules = (
        {"cidr": "203.0.113.0/24", "ports": [5432, "6000-6010"]},
        {"cidr": "203.0.113.7/32", "ports": [53], "protocol": "UDP"},
    )
    policy = named(_rendered(*rules), "NetworkPolicy", NAME)
    assert policy["metadata"]["namespace"] == "rollbox-sandboxes"
    assert policy["spec"]["podSelector"]["matchLabels"]["rollbox.dev/network"] == "a"
    assert policy["spec"]["policyTypes"] == ["Egress"]
    assert policy["spec"]["egress"] == [
        {
            "to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}],
            "ports": [{"protocol": "TCP", "port": 5432}, {"protocol": "TCP", "port": 6000, "endPort": 6010}],
        },
        {"to": [{"ipBlock": {"cidr": "203.0.113.7/32"}}], "ports": [{"protocol": "UDP", "port": 53}]},
    ]


@pytest.mark.parametrize(
    "cidr", ["10.0.0.0/8", "10.1.2.3/32", "192.168.7.0/24", "172.31.255.0/24", "169.254.169.254/32", "198.18.0.0/15"]
)
def test_what_is_private_is_refused_without_an_exception(cidr: str) -> None:
    with pytest.raises(ChartError, match="egress.allowedPrivateCidrs"):
        _rendered({"cidr": cidr, "ports": [1]})


@pytest.mark.parametrize(
    "cidr", ["11.0.0.0/8", "172.32.0.0/16", "172.15.255.255/32", "198.20.0.0/16", "223.255.255.255/32"]
)
def test_what_is_beside_it_is_not(cidr: str) -> None:
    assert _blocks(_rendered({"cidr": cidr, "ports": [1]})) == [{"cidr": cidr}]


def test_an_exception_is_as_wide_as_it_says() -> None:
    more = ("egress.allowedPrivateCidrs[0]=10.9.0.0/16",)
    assert _blocks(_rendered({"cidr": "10.9.3.0/24", "ports": [1]}, more=more)) == [{"cidr": "10.9.3.0/24"}]
    with pytest.raises(ChartError, match=r"10\.8\.0\.0/15 lies in 10\.0\.0\.0/8"):
        _rendered({"cidr": "10.8.0.0/15", "ports": [1]}, more=more)


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "128.0.0.0/1", "172.0.0.0/8", "192.0.0.0/4"])
def test_a_wide_network_is_without_what_is_private_and_blocked(cidr: str) -> None:
    (block,) = _blocks(_rendered({"cidr": cidr, "ports": [1]}, more=("egress.blockedCidrs[0]=203.0.113.0/24",)))
    outer, private = (
        ipaddress.ip_network(cidr),
        ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "203.0.113.0/24", "169.254.0.0/16"],
    )
    expected = {one for one in private if ipaddress.ip_network(one).subnet_of(outer)}  # type: ignore[arg-type]
    assert expected <= set(block["except"])
    # The API server refuses an exception that lies outside.
    assert all(ipaddress.ip_network(one).subnet_of(outer) for one in block["except"])  # type: ignore[arg-type]


def test_names_are_ciliums_with_a_resolver_that_knows_no_other() -> None:
    rules = (
        {"host": "broker.example.com", "ports": [1883]},
        {"host": "*.example.org", "ports": ["1-9"], "protocol": "UDP"},
    )
    spec = named(_rendered(*rules), "CiliumNetworkPolicy", NAME)["spec"]
    names = [{"matchName": "broker.example.com"}, {"matchPattern": "**.example.org"}]
    resolver, *ways = spec["egress"]
    (asked,) = resolver["toPorts"]
    assert asked["rules"]["dns"] == names
    assert resolver["toEndpoints"][0]["matchLabels"]["k8s-app"] == "kube-dns"
    assert [way["toFQDNs"] for way in ways] == [[one] for one in names]
    assert ways[1]["toPorts"] == [{"ports": [{"protocol": "UDP", "port": "1", "endPort": 9}]}]
    denied = [one["cidr"] for way in spec["egressDeny"] for one in way["toCIDRSet"]]
    assert {"10.0.0.0/8", "169.254.0.0/16", "198.18.0.0/15", "::/0"} <= set(denied)


def test_a_name_may_resolve_to_an_exception_and_resolvers_are_reached() -> None:
    more = ("egress.allowedPrivateCidrs[0]=10.9.0.0/16", "egress.direct.dns.servers[0]=10.53.0.10")
    spec = named(_rendered({"host": "a.example", "ports": [1]}, more=more), "CiliumNetworkPolicy", NAME)["spec"]
    assert spec["egress"][0]["toCIDR"] == ["10.53.0.10/32"]
    (denied,) = spec["egressDeny"]
    assert {"cidr": "10.0.0.0/8", "except": ["10.9.0.0/16", "10.53.0.10/32"]} in denied["toCIDRSet"]


def test_without_cilium_there_is_no_such_policy_and_the_control_plane_may_look() -> None:
    manifests = _rendered({"host": "a.example", "ports": [1]}, apis=())
    assert of_kind(manifests, "CiliumNetworkPolicy") == []
    (role,) = [one for one in of_kind(manifests, "Role") if one["metadata"]["name"] == "rollbox-controlplane"][:1]
    looks = {resource for rule in role["rules"] if rule["verbs"] == ["get"] for resource in rule["resources"]}
    assert {"networkpolicies", "ciliumnetworkpolicies"} <= looks


def test_the_control_plane_is_told_which_there_are() -> None:
    more = ("egress.direct.dns.servers[0]=203.0.113.53",)
    manifests = _rendered({"host": "a.example", "ports": [1]}, more=more)
    assert environment(manifests)["DIRECT_NETWORKS_FILE"] == "/etc/rollbox/direct/networks.json"
    (network,) = read_networks(
        named(manifests, "ConfigMap", "rollbox-direct")["data"]["networks.json"]
    ).by_name.values()
    assert (network.owners, network.addresses, network.names, network.resolvers) == (
        ["me"],
        False,
        True,
        ["203.0.113.53"],
    )


@pytest.mark.parametrize("setting", ["networkPolicies.enabled=false", "networkPolicies.acceptUnenforced=true"])
def test_where_nobody_enforces_policies_there_is_none(setting: str) -> None:
    with pytest.raises(ChartError, match="egress.direct.enabled"):
        _rendered({"cidr": "203.0.113.0/24", "ports": [1]}, more=(setting,))


@pytest.mark.parametrize(
    "rule",
    [
        {"cidr": "203.0.113.0/24"},
        {"cidr": "203.0.113.0/24", "host": "a.example", "ports": [1]},
        {"ports": [1]},
        {"cidr": "fd00::/8", "ports": [1]},
        {"cidr": "2002:a00::/24", "ports": [1]},
        {"host": "*", "ports": [1]},
        {"host": "a.example", "ports": [0]},
        {"host": "a.example", "ports": [1], "protocol": "ICMP"},
    ],
)
def test_a_rule_of_another_form_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ChartError):
        _rendered(rule)
