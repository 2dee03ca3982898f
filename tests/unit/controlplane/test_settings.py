"""Settings: good ones are read, bad ones are named with their value and rule."""

from pathlib import Path

import pytest

from controlplane.images import StoreLimit, parse
from controlplane.settings import (
    DeviceSettings,
    EngineSettings,
    ImageSettings,
    KubernetesSettings,
    Listen,
    NodeAgentSettings,
    SettingError,
    Settings,
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    binary = tmp_path / "binary"
    binary.touch()
    return {
        "ROLLBOX_CONTROLPLANE_STATE_DIR": "/run/rb",
        "ROLLBOX_CONTROLPLANE_API_KEYS": "alice:0123456789abcdef,bob:fedcba9876543210",
        "ROLLBOX_CONTROLPLANE_SIGNING_KEY_FILE": str(binary),
        "ROLLBOX_CONTROLPLANE_ENGINE_URL": "unix:///run/docker.sock",
        "ROLLBOX_CONTROLPLANE_SIDECAR_BINARY": str(binary),
        "ROLLBOX_CONTROLPLANE_TARGET_BINARY": str(binary),
    }


def test_what_is_left_out_lies_in_the_state_directory(environ: dict[str, str]) -> None:
    settings = Settings.from_environment(environ)
    assert settings.ready == Listen(path=Path("/run/rb/ready/ready.sock"))
    assert settings.api_keys == {"0123456789abcdef": "alice", "fedcba9876543210": "bob"}
    assert isinstance(settings.backend, EngineSettings)
    assert settings.backend.engine_url == "unix:///run/docker.sock"
    assert (settings.starts_in_flight, settings.max_sandboxes, settings.probe_every_ms) == (4, 0, 0)
    assert settings.redis_url is None


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("STATE_DIR", "relative", "STATE_DIR is 'relative': must be an absolute path"),
        ("API", "nowhere", "API is 'nowhere': must be unix:/path or host:port"),
        ("API", "host:99999", "must be unix:/path or host:port"),
        ("API", "unix:relative", "must be unix: and an absolute path"),
        ("READY", "unix:/" + "x" * 108, "a socket path has at most 107 bytes"),
        ("API_KEYS", "alice", r"API_KEYS is '\(hidden\)': must be owner:key"),
        ("API_KEYS", "alice:short", "keys of at least 16 characters"),
        ("API_KEYS", f"alice:{'k' * 16}\nbob:short", r"16 characters; pair 2 is not \(owner bob\)"),
        ("API_KEYS", f"alice:{'k' * 16},bob:{'k' * 16}", "pair 2 gives bob a key of alice"),
        ("SIGNING_KEY_FILE", "/does/not/exist", "must name a file that exists"),
        ("ENGINE_URL", "tcp://1.2.3.4:2375", "must be unix: and an absolute path"),
        ("STARTS_IN_FLIGHT", "0", "must be a whole number from 1 to 1024"),
        ("MAX_SANDBOXES", "many", "must be a whole number from 0 to 1000000"),
        ("IMAGE_DIGESTS", "always", "IMAGE_DIGESTS is 'always': must be one of auto, required, never"),
        ("COMMIT_BYTES", "64Gi", "COMMIT_BYTES is '64Gi': must be a whole number from 0 to 1125899906842624"),
        ("IMAGE_REWRITES", "docker.io/* -> mirror/*", "IMAGE_REWRITES is .* must begin with a registry"),
        ("PLAIN_HTTP_REGISTRIES", "a.io:99999", "PLAIN_HTTP_REGISTRIES is .* 'a.io:99999' is not a registry"),
    ],
)
def test_a_bad_setting_is_named_with_value_and_rule(
    environ: dict[str, str], name: str, value: str, complaint: str
) -> None:
    with pytest.raises(SettingError, match=complaint):
        Settings.from_environment({**environ, f"ROLLBOX_CONTROLPLANE_{name}": value})


def test_images_are_resolved_where_registries_answer_unless_a_setting_says_otherwise(environ: dict[str, str]) -> None:
    assert Settings.from_environment(environ).images == ImageSettings("auto")
    told = {"IMAGE_DIGESTS": "required", "IMAGE_REWRITES": "docker.io/* -> m.io/hub/*", "PLAIN_HTTP_REGISTRIES": "m.io"}
    prefixed = {f"ROLLBOX_CONTROLPLANE_{name}": value for name, value in told.items()}
    images = Settings.from_environment({**environ, **prefixed}).images
    assert (images.digests, images.plain_registries) == ("required", ("m.io",))
    assert str(images.rewrites.applied(parse("python"))) == "m.io/hub/library/python:latest"
    nobody = {**environ, **prefixed, "ROLLBOX_CONTROLPLANE_IMAGE_DIGESTS": "never"}
    with pytest.raises(
        SettingError, match="PLAIN_HTTP_REGISTRIES is 'm.io': no registry is asked: IMAGE_DIGESTS=never"
    ):
        Settings.from_environment(nobody)


def test_a_missing_setting_is_named(environ: dict[str, str]) -> None:
    for name in environ:
        with pytest.raises(SettingError, match=f"{name} is not set"):
            Settings.from_environment({key: value for key, value in environ.items() if key != name})


@pytest.fixture
def on_kubernetes(tmp_path: Path) -> dict[str, str]:
    keys, signing = tmp_path / "keys", tmp_path / "signing"
    keys.write_text("alice:0123456789abcdef\nbob:fedcba9876543210\n")
    signing.touch()
    return {
        "ROLLBOX_CONTROLPLANE_BACKEND": "kubernetes",
        "ROLLBOX_CONTROLPLANE_NAMESPACE": "sandboxes",
        "ROLLBOX_CONTROLPLANE_INSTALLATION": "rollbox",
        "ROLLBOX_CONTROLPLANE_SIDECAR_IMAGE": "sidecar:1",
        "ROLLBOX_CONTROLPLANE_READY_URL": "http://rollbox-ready:8082",
        "ROLLBOX_CONTROLPLANE_GATEWAY_URL": "http://rollbox-gateway:80",
        "ROLLBOX_CONTROLPLANE_SIGNING_KEY_FILE": str(signing),
        "ROLLBOX_CONTROLPLANE_API_KEYS_FILE": str(keys),
    }


def test_a_cluster_has_ports_and_larger_bounds(on_kubernetes: dict[str, str]) -> None:
    settings = Settings.from_environment(on_kubernetes)
    assert [str(one) for one in (settings.api, settings.ready, settings.routes)] == [
        f"0.0.0.0:{port}" for port in (8081, 8082, 8083)
    ]
    assert settings.api_keys == {"0123456789abcdef": "alice", "fedcba9876543210": "bob"}
    assert (settings.starts_in_flight, settings.probe_every_ms) == (64, 20_000)
    assert settings.gateway_url == "http://rollbox-gateway:80"
    backend = settings.backend
    assert isinstance(backend, KubernetesSettings)
    assert (backend.runtime_class, backend.required_kernel, backend.dns_shards) == ("gvisor", "gVisor", 16)
    assert (backend.starts_per_node, backend.priority_class, backend.kubeconfig) == (8, "", None)
    assert (backend.node_selector, backend.tolerations, backend.image_pull_secrets) == ({}, (), ())


def test_node_agents_are_all_of_their_settings_or_none(on_kubernetes: dict[str, str], tmp_path: Path) -> None:
    def backend(**settings: str) -> KubernetesSettings:
        environ = on_kubernetes | {f"ROLLBOX_CONTROLPLANE_{name}": value for name, value in settings.items()}
        found = Settings.from_environment(environ).backend
        assert isinstance(found, KubernetesSettings)
        return found

    assert backend().node_agents is None
    for name in ("ca.crt", "tls.crt", "tls.key"):
        with pytest.raises(SettingError, match=f"NODE_AGENTS_TLS is .* there is no {name}"):
            backend(NODE_AGENTS="rollbox/rollbox-node", NODE_AGENTS_NAME="node.rollbox", NODE_AGENTS_TLS=str(tmp_path))
        (tmp_path / name).touch()
    told = {"NODE_AGENTS": "rollbox/rollbox-node", "NODE_AGENTS_NAME": "node.rollbox", "NODE_AGENTS_TLS": str(tmp_path)}
    assert backend(**told).node_agents == NodeAgentSettings("rollbox", "rollbox-node", "node.rollbox", tmp_path)
    limited = backend(**told | {"NODE_IMAGES": "60%"}).node_agents
    assert limited is not None
    assert limited.images == StoreLimit(percent=60)
    with pytest.raises(SettingError, match=r"NODE_IMAGES is '100%': must be 1% to 95% of the file system"):
        backend(**told | {"NODE_IMAGES": "100%"})
    for bad in ("rollbox-node", "Rollbox/node", "/node", "rollbox/"):
        with pytest.raises(SettingError, match=r"NODE_AGENTS is .* must be NAMESPACE/NAME"):
            backend(**told | {"NODE_AGENTS": bad})
    for missing in told:
        with pytest.raises(SettingError, match="NODE_AGENTS"):
            backend(**{name: value for name, value in told.items() if name != missing})


def test_silent_sandboxes_are_looked_for_only_where_a_gateway_can_be_asked_too(on_kubernetes: dict[str, str]) -> None:
    del on_kubernetes["ROLLBOX_CONTROLPLANE_GATEWAY_URL"]
    with pytest.raises(SettingError, match="GATEWAY_URL is not set: .* PROBE_EVERY_MS is not 0"):
        Settings.from_environment(on_kubernetes)
    never = Settings.from_environment(on_kubernetes | {"ROLLBOX_CONTROLPLANE_PROBE_EVERY_MS": "0"})
    assert (never.probe_every_ms, never.gateway_url) == (0, None)


def test_what_pods_are_placed_by_is_json_and_lists(on_kubernetes: dict[str, str]) -> None:
    placed = {
        "NODE_SELECTOR": '{"pool": "sandboxes"}',
        "TOLERATIONS": '[{"key": "sandboxes", "operator": "Exists"}]',
        "IMAGE_PULL_SECRETS": "one, two",
        "AGENT_SANDBOX": "true",
        "REDIS_URL": "redis://:secret@redis:6379/0",
    }
    environ = on_kubernetes | {f"ROLLBOX_CONTROLPLANE_{name}": value for name, value in placed.items()}
    settings = Settings.from_environment(environ)
    assert isinstance(settings.backend, KubernetesSettings)
    assert settings.backend.node_selector == {"pool": "sandboxes"}
    assert settings.backend.tolerations == [{"key": "sandboxes", "operator": "Exists"}]
    assert settings.backend.image_pull_secrets == ("one", "two")
    assert settings.backend.agent_sandbox
    assert settings.redis_url == "redis://:secret@redis:6379/0"


def test_lazy_pulling_needs_a_runtime_class_and_repositories(on_kubernetes: dict[str, str]) -> None:
    def backend(**given: str) -> KubernetesSettings:
        environ = on_kubernetes | {f"ROLLBOX_CONTROLPLANE_LAZY_{name}": value for name, value in given.items()}
        read = Settings.from_environment(environ).backend
        assert isinstance(read, KubernetesSettings)
        return read

    assert (backend().lazy_runtime_class, backend().lazy_images) == ("", ())
    both = backend(RUNTIME_CLASS="gvisor-lazy", IMAGES="localhost:5000/estargz/, registry.example.com/")
    assert both.lazy_images == ("localhost:5000/estargz/", "registry.example.com/")
    with pytest.raises(SettingError, match="LAZY_IMAGES is not set"):
        backend(RUNTIME_CLASS="gvisor-lazy")
    with pytest.raises(SettingError, match="LAZY_RUNTIME_CLASS does not say how"):
        backend(IMAGES="registry.example.com/")
    for wrong in ("", "registry.example.com", "registry.example.com/team", "estargz/"):
        with pytest.raises(SettingError, match="LAZY_IMAGES is"):
            backend(RUNTIME_CLASS="gvisor-lazy", IMAGES=wrong)


def test_devices_are_of_a_class_and_claimed_by_a_template(on_kubernetes: dict[str, str]) -> None:
    def devices(**given: str) -> DeviceSettings | None:
        environ = on_kubernetes | {f"ROLLBOX_CONTROLPLANE_GPU_{name}": value for name, value in given.items()}
        read = Settings.from_environment(environ).backend
        assert isinstance(read, KubernetesSettings)
        return read.devices

    assert devices() is None
    named = {"DEVICE_CLASS": "gpu.example.com", "CLAIM_TEMPLATE": "r-gpu"}
    assert devices(**named) == DeviceSettings("gpu.example.com", "r-gpu")
    assert devices(**named, RUNTIME_CLASS="gvisor-gpu") == DeviceSettings("gpu.example.com", "r-gpu", "gvisor-gpu")
    with pytest.raises(SettingError, match="GPU_CLAIM_TEMPLATE is not set"):
        devices(DEVICE_CLASS="gpu.example.com")
    with pytest.raises(SettingError, match="GPU_DEVICE_CLASS does not say which"):
        devices(RUNTIME_CLASS="gvisor-gpu")


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("BACKEND", "nomad", "BACKEND is 'nomad': must be one of engine, kubernetes"),
        ("READY_URL", "rollbox-ready:8082", "must be http://host:port"),
        ("READY_URL", "http://rollbox-ready:8082/v1", "must be http://host:port"),
        ("NODE_SELECTOR", "pool=sandboxes", "must be JSON"),
        ("NODE_SELECTOR", '{"pool": 1}', "must be a JSON object of texts"),
        ("TOLERATIONS", "{}", "must be a JSON list of objects"),
        ("PORTS_DOMAIN", "Ports.example.com", "must be a DNS name in small letters"),
        ("PORTS_DOMAIN", "example.com.", "must be a DNS name in small letters"),
        ("DNS_SHARDS", "0", "must be a whole number from 1 to 256"),
        ("REDIS_URL", "http://:hush@redis", r"REDIS_URL is '\(hidden\)': must be redis://host:port"),
        ("API_KEYS", "alice:0123456789abcdef", "API_KEYS is .* and not both"),
        ("ENGINE_URL", "unix:///run/docker.sock", "it is for BACKEND=engine"),
        ("KUBECONFIG", "/does/not/exist", "must name a file that exists"),
    ],
)
def test_a_bad_setting_of_a_cluster_is_named(
    on_kubernetes: dict[str, str], name: str, value: str, complaint: str
) -> None:
    with pytest.raises(SettingError, match=complaint):
        Settings.from_environment({**on_kubernetes, f"ROLLBOX_CONTROLPLANE_{name}": value})


def test_a_setting_for_a_cluster_is_not_ignored_on_an_engine(environ: dict[str, str]) -> None:
    with pytest.raises(SettingError, match="RUNTIME_CLASS is 'gvisor': it is for BACKEND=kubernetes"):
        Settings.from_environment({**environ, "ROLLBOX_CONTROLPLANE_RUNTIME_CLASS": "gvisor"})


@pytest.mark.parametrize(
    ("keys", "named", "operators"),
    [
        ("alice:0123456789abcdef", "", {"alice"}),
        ("alice:0123456789abcdef,bob:fedcba9876543210", "", set[str]()),
        ("alice:0123456789abcdef,bob:fedcba9876543210", "bob", {"bob"}),
    ],
)
def test_operators_are_named_or_the_only_owner(
    environ: dict[str, str], keys: str, named: str, operators: set[str]
) -> None:
    more = {"ROLLBOX_CONTROLPLANE_API_KEYS": keys, "ROLLBOX_CONTROLPLANE_OPERATORS": named}
    assert Settings.from_environment({**environ, **more}).operators == operators


def test_an_operator_without_a_key_is_a_mistake(environ: dict[str, str]) -> None:
    with pytest.raises(SettingError, match="must name owners who have an API key") as caught:
        Settings.from_environment({**environ, "ROLLBOX_CONTROLPLANE_OPERATORS": "alice,carol"})
    assert (caught.value.variable, caught.value.value) == ("ROLLBOX_CONTROLPLANE_OPERATORS", "carol")


def test_the_console_is_on_unless_it_is_switched_off(environ: dict[str, str]) -> None:
    assert Settings.from_environment(environ).console
    assert not Settings.from_environment({**environ, "ROLLBOX_CONTROLPLANE_CONSOLE": "off"}).console
    with pytest.raises(SettingError, match="must be one of on, off"):
        Settings.from_environment({**environ, "ROLLBOX_CONTROLPLANE_CONSOLE": "no"})


FEED_KEY = "0123456789abcdefghijklmnopqrstuv"


def test_egress_is_not_installed_unless_a_port_is_given(environ: dict[str, str], tmp_path: Path) -> None:
    assert Settings.from_environment(environ).egress is None
    file = tmp_path / "presets.json"
    file.write_text('{"web": {"mode": "open"}}')
    key = tmp_path / "feed.key"
    key.write_text(f"{FEED_KEY}\n")
    given = {
        "EGRESS_PORT": "3128",
        "EGRESS_POLICY": "web",
        "EGRESS_PRESETS_FILE": str(file),
        "FEED_KEY_FILE": str(key),
    }
    environ |= {f"ROLLBOX_CONTROLPLANE_{name}": value for name, value in given.items()}
    settings = Settings.from_environment(environ)
    egress = settings.egress
    assert egress is not None
    assert settings.feed_key == FEED_KEY
    assert FEED_KEY not in repr(settings)
    assert (egress.port, egress.default) == (3128, "web")
    assert sorted(egress.presets) == ["offline", "packages", "swe-eval", "web"]


@pytest.mark.parametrize(
    ("port", "name", "value", "complaint"),
    [
        ("80", "EGRESS_PORT", "80", "must be a whole number from 1024 to 65535"),
        ("", "EGRESS_POLICY", "packages", "EGRESS_PORT is not set"),
        ("", "EGRESS_PRESETS_FILE", "/etc/hosts", "EGRESS_PORT is not set"),
        ("", "FEED_KEY_FILE", "/etc/hosts", "EGRESS_PORT is not set"),
        ("", "EGRESS_PACKAGES", "pypi.org", "EGRESS_PORT is not set"),
        ("3128", "EGRESS_PACKAGES", "pypi.org,https://a.test", "must be a DNS name in small letters"),
        ("3128", "EGRESS_POLICY", "packages", "FEED_KEY_FILE is not set: it is required"),
        ("3128", "FEED_KEY_FILE", "/does/not/exist", "must be a file that can be read; No such file"),
        ("3128", "FEED_KEY_FILE", "/etc/hosts", "at least 32 printable characters without spaces"),
        ("3128", "EGRESS_POLICY", "nothing", "must be one of offline, packages, swe-eval"),
        ("3128", "EGRESS_PRESETS_FILE", "/etc/hosts", "must hold JSON"),
        ("3128", "EGRESS_PRESETS_FILE", "/does/not/exist", "must name a file that exists"),
    ],
)
def test_settings_of_egress_that_are_refused(
    environ: dict[str, str], port: str, name: str, value: str, complaint: str
) -> None:
    environ |= {"ROLLBOX_CONTROLPLANE_EGRESS_PORT": port, f"ROLLBOX_CONTROLPLANE_{name}": value}
    with pytest.raises(SettingError, match=complaint):
        Settings.from_environment(environ)
