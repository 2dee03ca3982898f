"""Lazy pulling: a second runtime class, allowed and known to the control plane, where it is enabled."""

from base64 import b64decode

from tests.chart.test_images import environment
from tests.support.helm import named, of_kind, render

IMAGES = ("localhost:5000/estargz/", "registry.example.com/lazy/")
ENABLED = ("lazyPulling.enabled=true", *(f"lazyPulling.images[{place}]={one}" for place, one in enumerate(IMAGES)))


def test_without_it_there_is_one_runtime_class() -> None:
    manifests = render()
    assert [one["handler"] for one in of_kind(manifests, "RuntimeClass")].count("runsc-lazy") == 0
    assert not [name for name in environment(manifests) if name.startswith("LAZY")]


def test_where_it_is_enabled_pods_may_use_its_runtime_class() -> None:
    manifests = render(*ENABLED, "runtimeClass.nodeSelector.pool=sandboxes")
    plain, lazy = (named(manifests, "RuntimeClass", name) for name in ("gvisor", "gvisor-lazy"))
    assert (plain["handler"], lazy["handler"]) == ("runsc", "runsc-lazy")
    assert lazy["overhead"] == plain["overhead"]
    assert lazy["scheduling"] == plain["scheduling"]
    policy = named(manifests, "ValidatingAdmissionPolicy", "rollbox-rollbox-sandboxes")
    assert "in ['gvisor', 'gvisor-lazy']" in policy["spec"]["validations"][0]["expression"]
    told = environment(manifests)
    assert (told["LAZY_RUNTIME_CLASS"], told["LAZY_IMAGES"]) == ("gvisor-lazy", ",".join(IMAGES))
    (role,) = [one for one in of_kind(manifests, "ClusterRole") if "controlplane" in one["metadata"]["name"]]
    (classes,) = [rule for rule in role["rules"] if rule["resources"] == ["runtimeclasses"]]
    assert classes["resourceNames"] == ["gvisor", "gvisor-lazy"]


def test_a_class_that_is_there_already_is_used_and_not_made() -> None:
    manifests = render(*ENABLED, "runtimeClass.create=false", "runtimeClass.name=cloud")
    assert not of_kind(manifests, "RuntimeClass")
    assert environment(manifests)["LAZY_RUNTIME_CLASS"] == "cloud-lazy"


def test_what_the_mirror_converts_is_mounted_lazily_and_nodes_get_an_account_for_it() -> None:
    registry = ("registry.enabled=true", "registry.addresses[0]=10.0.0.1")
    manifests = render(*ENABLED, *registry)
    told = environment(manifests)
    converted = f"{told['REGISTRY']}/estargz/"
    assert told["LAZY_IMAGES"] == ",".join((*IMAGES, converted))
    account = b64decode(named(manifests, "Secret", "rollbox-registry-nodes")["data"]["credentials"]).decode()
    assert account.startswith("pull:")
    assert not [
        one for one in of_kind(render(*registry), "Secret") if one["metadata"]["name"].endswith("registry-nodes")
    ]
    # It is enough.
    assert environment(render("lazyPulling.enabled=true", *registry))["LAZY_IMAGES"] == converted
    # Named twice by an operator, it is one.
    again = environment(render(*ENABLED, *registry, f"lazyPulling.images[2]={converted}"))
    assert again["LAZY_IMAGES"] == told["LAZY_IMAGES"]


def test_values_of_a_chart_without_it_still_render() -> None:
    # As `helm upgrade --reuse-values` has them.
    old, new = render("lazyPulling=null", "nodeAgent=null"), render()
    assert [(one["kind"], one["metadata"]["name"]) for one in old] == [
        (one["kind"], one["metadata"]["name"]) for one in new
    ]
    assert environment(old) == environment(new)
