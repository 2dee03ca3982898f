"""Settings of the private registry and of owners' credentials: read together, refused where one cannot be honoured."""

from pathlib import Path

import pytest

from controlplane.settings import CommitSettings, SettingError, Settings

PREFIX = "ROLLBOX_CONTROLPLANE_"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).touch()
    key = tmp_path / "key"
    key.touch()
    settings = {
        "BACKEND": "kubernetes",
        "NAMESPACE": "sandboxes",
        "INSTALLATION": "rollbox",
        "SIDECAR_IMAGE": "sidecar:1",
        "READY_URL": "http://ready:8082",
        "GATEWAY_URL": "http://gateway:80",
        "API_KEYS": "alice:0123456789abcdef,bob:fedcba9876543210",
        "SIGNING_KEY_FILE": str(key),
        "REGISTRY": "registry.example.com:5443",
        "MIRROR": "mirror:8085",
        "MIRROR_NAME": "mirror.rollbox.rollbox",
        "MIRROR_TLS_FOLDER": str(tmp_path),
        "OWNER_PULL_SECRETS": '{"alice": ["one", "two"]}',
    }
    return {f"{PREFIX}{name}": value for name, value in settings.items()}


def test_they_are_read(environ: dict[str, str], tmp_path: Path) -> None:
    images = Settings.from_environment(environ).images
    assert images.registry is not None
    assert (images.registry.host, images.registry.mirror) == ("registry.example.com:5443", "mirror:8085")
    assert (images.registry.mirror_name, images.registry.tls_folder) == ("mirror.rollbox.rollbox", tmp_path)
    assert images.owner_secrets == {"alice": ["one", "two"]}


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("REGISTRY", "registry", "REGISTRY is 'registry': must have a dot or a port"),
        ("REGISTRY", "Registry:5000", "must have a dot or a port, in small letters"),
        ("REGISTRY", "registry.example.com/team", "is not a registry"),
        ("REGISTRY", "", "MIRROR is 'mirror:8085': it needs REGISTRY"),
        ("MIRROR", "unix:/run/mirror", "MIRROR is 'unix:/run/mirror': must be host:port"),
        ("MIRROR", "mirror", "must be host:port"),
        ("MIRROR_NAME", "two words", "must be a DNS name"),
        ("MIRROR_TLS_FOLDER", "/nowhere", "MIRROR_TLS_FOLDER is '/nowhere': must name a folder that has ca.crt"),
        ("IMAGE_DIGESTS", "never", "REGISTRY is .* images are copied by digest: IMAGE_DIGESTS=never"),
        ("OWNER_PULL_SECRETS", "alice", "must be JSON"),
        ("OWNER_PULL_SECRETS", '{"alice": "one"}', "must be a JSON object of lists of names"),
        ("OWNER_PULL_SECRETS", '{"alice": []}', "must be a JSON object of lists of names"),
        (
            "OWNER_PULL_SECRETS",
            '{"carol": ["one"]}',
            "is 'carol': must name owners who have an API key",
        ),
    ],
)
def test_a_bad_one_is_named(environ: dict[str, str], name: str, value: str, complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint):
        Settings.from_environment({**environ, f"{PREFIX}{name}": value})


def test_owners_credentials_need_a_private_registry(environ: dict[str, str]) -> None:
    of_registry = ("REGISTRY", "MIRROR", "MIRROR_NAME", "MIRROR_TLS_FOLDER")
    without = {name: one for name, one in environ.items() if name.removeprefix(PREFIX) not in of_registry}
    with pytest.raises(SettingError, match="OWNER_PULL_SECRETS is .*: it needs REGISTRY"):
        Settings.from_environment(without)


def test_recorded_copies_have_a_limit_where_something_can_remove_them(environ: dict[str, str], tmp_path: Path) -> None:
    limit = {f"{PREFIX}RECORDED_BYTES": "7"}
    with pytest.raises(SettingError, match="RECORDED_BYTES is '7': it needs COLLECTOR, .* or REGISTRY_PUSH"):
        Settings.from_environment({**environ, **limit})
    for looking in ({"COLLECTOR": "collector:5446", "COLLECTOR_NAME": "collector"}, _of_commits(tmp_path)):
        named = {**environ, **{f"{PREFIX}{name}": value for name, value in looking.items()}}
        for given, read in ((limit, 7), ({}, 64 << 30)):
            registry = Settings.from_environment({**named, **given}).images.registry
            assert registry is not None
            assert registry.recorded_bytes == read


def _of_commits(tmp_path: Path) -> dict[str, str]:
    return {
        "REGISTRY_PUSH": "registry.example.com:5444",
        "REGISTRY_ACCOUNT_FILE": str(tmp_path / "key"),
        "REGISTRY_COMMITS": "mirror.example.com:5445",
        "REGISTRY_TOKENS": str(tmp_path),
        "REGISTRY_COMMITS_CA": str(tmp_path / "ca.crt"),
    }


def test_what_commits_need_is_read_together(environ: dict[str, str], tmp_path: Path) -> None:
    named = {**environ, **{f"{PREFIX}{name}": value for name, value in _of_commits(tmp_path).items()}}
    registry = Settings.from_environment(named).images.registry
    assert registry is not None
    assert registry.push is not None
    assert registry.push.authority_file is None
    assert registry.push.commits == CommitSettings("mirror.example.com:5445", tmp_path, tmp_path / "ca.crt")
    # Without a place that takes tokens agents would need the account.
    for name in ("REGISTRY_COMMITS", "REGISTRY_TOKENS"):
        with pytest.raises(SettingError, match=name):
            Settings.from_environment({key: value for key, value in named.items() if key != f"{PREFIX}{name}"})
    # Where nobody makes images of sandboxes, the registry is asked all the same: recorded copies have a limit there.
    asked = {name: one for name, one in named.items() if "COMMITS" not in name and "TOKENS" not in name}
    registry = Settings.from_environment(asked).images.registry
    assert registry is not None
    assert registry.push is not None
    assert (registry.push.commits, registry.recorded_bytes) == (None, 64 << 30)
    with pytest.raises(SettingError, match="it needs REGISTRY_PUSH"):
        Settings.from_environment({**environ, f"{PREFIX}REGISTRY_COMMITS_CA": str(tmp_path / "ca.crt")})
