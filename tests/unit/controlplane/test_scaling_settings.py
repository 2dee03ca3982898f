"""Settings of the scaler: what is declared is read, and what would be ignored is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.settings import ScalingSettings, SettingError
from controlplane.settings.reader import PREFIX, Reader

SIZE = {"cpu_millicores": 4_000, "memory_bytes": 8 << 30, "disk_bytes": 1 << 40, "gpu": 0, "pods": 110}
CAPI: dict[str, Any] = {
    "name": "general",
    "provider": "cluster-api",
    "group": "capi/workers",
    "size": SIZE,
    "labels": {"pool": "general"},
    "max": 9,
}
GRPC = {**CAPI, "name": "others", "provider": "grpc", "group": "g"}


def read(pools: object = None, **more: str) -> ScalingSettings | None:
    given = {} if pools is None else {"NODE_POOLS": json.dumps(pools)}
    return ScalingSettings.read(Reader({PREFIX + name: value for name, value in {**given, **more}.items()}))


def test_without_pools_there_is_no_scaler() -> None:
    assert read() is None
    with pytest.raises(SettingError, match="SCALING_HEADROOM is '3': .* NODE_POOLS declares no node pool"):
        read(SCALING_HEADROOM="3")


def test_pools_of_cluster_api_need_nothing_more() -> None:
    found = read([CAPI])
    assert found is not None
    assert (found.options.down_after_ms, found.options.headroom, found.options.dry_run) == (600_000, 0, False)
    assert (found.kubeconfig, found.provider) == (None, None)
    assert [one.name for one in found.options.pools] == ["general"]


def test_a_remote_provider_needs_an_address_a_name_and_certificates(tmp_path: Path) -> None:
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).touch()
    remote = {
        "SCALING_PROVIDER": "provider:443",
        "SCALING_PROVIDER_NAME": "provider",
        "SCALING_PROVIDER_TLS_FOLDER": str(tmp_path),
    }
    found = read([CAPI, GRPC], **remote)
    assert found is not None
    assert found.provider is not None
    assert (found.provider.address, found.provider.name) == ("provider:443", "provider")
    for left in remote:
        with pytest.raises(SettingError, match=f"{left} is not set: it is required"):
            read([GRPC], **{name: value for name, value in remote.items() if name != left})
    with pytest.raises(SettingError, match="it is for pools of a node provider"):
        read([CAPI], **remote)


@pytest.mark.parametrize(
    ("pools", "more", "said"),
    [
        ([{**CAPI, "max": 0}], {}, "NODE_POOLS is .*max is a whole number from 1 to 5000"),
        ({"a": 1}, {}, "must be a JSON list of objects"),
        ([], {}, "must declare 1 to 32 node pools"),
        ([CAPI], {"SCALING_DRY_RUN": "maybe"}, "SCALING_DRY_RUN is 'maybe'"),
        ([CAPI], {"SCALING_DOWN_AFTER_MS": "1"}, "a whole number from 10000"),
        ([CAPI], {"SCALING_KUBECONFIG": "/nowhere"}, "must name a file that exists"),
    ],
)
def test_bad_ones_are_named(pools: object, more: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        read(pools, **more)


def test_labels_that_no_sandbox_asks_for_are_refused() -> None:
    found = read([CAPI])
    assert found is not None
    found.check_labels({"pool": "general", "sandboxes": "yes"})
    with pytest.raises(SettingError, match="node pool general has pool=general, and sandboxes run on pool=other"):
        found.check_labels({"pool": "other"})
