"""Manifests from which no sandbox can start are refused, with the reason; everything else is accepted."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import Problem
from controlplane.images import (
    ACCEPTED,
    MAX_LAYERS,
    checked_config,
    checked_manifest,
    digest_of,
    entries_for,
    is_index,
    layers_of,
)

OCI_INDEX, DOCKER_LIST, OCI_MANIFEST, DOCKER_MANIFEST = ACCEPTED
D = digest_of(b"x")
LAYER = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": D, "size": 1}


def manifest(**change: Any) -> bytes:
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest_of(b"config"), "size": 1}
    return json.dumps({"schemaVersion": 2, "config": config, "layers": [LAYER], **change}).encode()


def index(*architectures: str, os: str = "linux") -> bytes:
    entries = [
        {"mediaType": OCI_MANIFEST, "digest": digest_of(one.encode()), "platform": {"os": os, "architecture": one}}
        for one in architectures
    ]
    return json.dumps({"schemaVersion": 2, "manifests": entries}).encode()


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(Problem) as caught:
        act()
    assert caught.value.code == "unsupported"
    assert caught.value.details["option"] == "image"
    return caught.value.detail


@pytest.mark.parametrize("media_type", [OCI_MANIFEST, DOCKER_MANIFEST])
@pytest.mark.parametrize("layers", [1, MAX_LAYERS])
def test_a_sound_manifest_names_its_configuration(media_type: str, layers: int) -> None:
    text = manifest(layers=[LAYER] * layers)
    assert checked_manifest("a", media_type, text) == digest_of(b"config")
    assert layers_of(text) == {D: 1}


@pytest.mark.parametrize("size", [None, "7", -1, 0])
def test_a_layer_of_an_odd_size_counts_for_nothing(size: object) -> None:
    assert layers_of(manifest(layers=[{**LAYER, "size": size}])) == {D: 0}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schemaVersion": 1}, "schema 1"),
        ({"layers": []}, "0 layers; a container needs 1 to 127"),
        ({"layers": [LAYER] * 128}, "128 layers"),
        ({"layers": None}, "no list of layers"),
        ({"layers": ["x"]}, "no list of layers"),
        ({"config": {"mediaType": "application/vnd.cncf.helm.config.v1+json"}}, "no container image but"),
        ({"layers": [{**LAYER, "mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"}]}, "not hold"),
        ({"layers": [{**LAYER, "digest": "../../etc"}]}, "no digest"),
    ],
)
def test_a_manifest_that_cannot_run_is_refused(change: dict[str, Any], reason: str) -> None:
    assert reason in refused(lambda: checked_manifest("a", OCI_MANIFEST, manifest(**change)))


def test_schema_1_is_known_by_its_media_type() -> None:
    kind = "application/vnd.docker.distribution.manifest.v1+prettyjws"
    assert "schema 1" in refused(lambda: checked_manifest("a", kind, b'{"name": "a"}'))


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"[" * 100_000, b"\xff", b'"text"'], ids=repr)
def test_what_is_no_manifest_is_refused(body: bytes) -> None:
    refused(lambda: checked_manifest("a", OCI_MANIFEST, body))
    refused(lambda: entries_for("a", body, {"amd64"}))
    refused(lambda: checked_config("a", body, {"amd64"}))


@pytest.mark.parametrize(
    ("there", "nodes", "chosen"),
    [
        (("amd64", "arm64"), {"amd64"}, {"amd64"}),
        (("amd64", "arm64"), {"amd64", "arm64"}, {"amd64", "arm64"}),
        (("386",), {"amd64"}, {"386"}),
        (("386", "amd64"), {"amd64"}, {"amd64"}),
        (("arm64",), {"amd64", "arm64"}, {"arm64"}),
        (("s390x",), set[str](), set[str]()),
    ],
)
def test_nodes_choose_their_own_entries(there: tuple[str, ...], nodes: set[str], chosen: set[str]) -> None:
    assert {one.architecture for one in entries_for("a", index(*there), nodes)} == chosen


def test_an_index_without_an_entry_for_any_node_is_refused() -> None:
    words = refused(lambda: entries_for("a", index("s390x", "arm64"), {"amd64"}))
    assert "it has arm64, s390x for Linux, and the nodes are amd64" in words
    assert "it has nothing for Linux" in refused(lambda: entries_for("a", index("amd64", os="windows"), {"amd64"}))


def test_a_configuration_for_another_platform_is_refused() -> None:
    for body, architectures in (
        (b'{"architecture":"amd64"}', {"amd64"}),
        (b"{}", {"arm64"}),
        (b'{"os":"linux"}', set()),
    ):
        checked_config("a", body, architectures)
    assert "is for 'arm64', and the nodes are amd64" in refused(
        lambda: checked_config("a", b'{"os":"linux","architecture":"arm64"}', {"amd64"})
    )
    assert "sandboxes are Linux" in refused(lambda: checked_config("a", b'{"os":"windows"}', set()))


def test_an_index_is_known_by_its_type_or_by_its_body() -> None:
    assert is_index(DOCKER_LIST, b"")
    assert is_index("text/plain", index("amd64"))
    assert not is_index(OCI_MANIFEST, index("amd64"))
    assert not is_index("", manifest())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["manifests", "layers", "config", "platform", "digest", "mediaType", "os"]), inner
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_accepted_or_refused_typed(value: Any) -> None:
    body = json.dumps(value).encode()
    for act in (
        lambda: checked_manifest("a", "", body),
        lambda: entries_for("a", body, {"amd64"}),
        lambda: checked_config("a", body, {"amd64"}),
    ):
        with suppress(Problem):
            act()
