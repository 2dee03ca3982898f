"""What the control plane needs to resolve images: the settings, and the pull secrets of the sandboxes' namespace."""

from tests.support.helm import Manifest, named, render

SECRETS = ("sandboxes.imagePullSecrets[0]=one", "sandboxes.imagePullSecrets[1]=two")


def environment(manifests: list[Manifest]) -> dict[str, str]:
    (container,) = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]["containers"]
    return {one["name"].removeprefix("ROLLBOX_CONTROLPLANE_"): one.get("value", "") for one in container["env"]}


def readable(manifests: list[Manifest]) -> list[str]:
    """The names of the secrets that the control plane may read."""
    rules = [one for one in named(manifests, "Role", "rollbox-controlplane")["rules"] if "secrets" in one["resources"]]
    assert all(one["verbs"] == ["get"] for one in rules)
    return [name for one in rules for name in one["resourceNames"]]


def test_names_are_resolved_where_registries_answer() -> None:
    manifests = render()
    assert environment(manifests)["IMAGE_DIGESTS"] == "auto"
    assert not {"IMAGE_REWRITES", "PLAIN_HTTP_REGISTRIES"} & environment(manifests).keys()
    assert readable(manifests) == []


def test_the_pull_secrets_and_nothing_else_can_be_read() -> None:
    assert readable(render(*SECRETS)) == ["one", "two"]
    assert readable(render(*SECRETS, "sandboxes.images.digests=never")) == []


def test_rules_and_registries_are_handed_on() -> None:
    rules = ("docker.io/* -> mirror.example.com/hub/*", "ghcr.io/a/b -> mirror.example.com/b")
    told = environment(
        render(
            *(f"sandboxes.images.rewrites[{n}]={rule}" for n, rule in enumerate(rules)),
            "sandboxes.images.plainHttpRegistries[0]=mirror.example.com:5000",
        )
    )
    assert told["IMAGE_REWRITES"] == ",".join(rules)
    assert told["PLAIN_HTTP_REGISTRIES"] == "mirror.example.com:5000"
