"""What a builder says that it has made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controlplane.cluster.kubernetes.builds.manifests import Base, Blob, made
from controlplane.errors import Problem
from controlplane.images import own_bytes

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"


def blob(mark: str, size: int = 10, kind: str = LAYER) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{mark * 64}", "size": size}


def image(*layers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"config": blob("c", 5, CONFIG), "layers": list(layers), **more}


BASE = Base("b", "mirror/b", f"sha256:{'f' * 64}", b"", Blob("x", 1), [Blob(f"sha256:{'0' * 64}", 10, LAYER)])


def test_what_a_base_has_is_below_and_costs_nothing() -> None:
    found = made(image(blob("0"), blob("1", 7), blob("2", 8)), [BASE], 15)
    assert (found.size_bytes, [one.size_bytes for one in found.own]) == (15, [7, 8])
    assert found.below == {f"sha256:{'0' * 64}": "mirror/b"}
    manifest = json.loads(found.manifest())
    assert [one["digest"][7] for one in manifest["layers"]] == ["0", "1", "2"]
    assert own_bytes(manifest) == 15


def test_the_order_of_layers_does_not_change_what_they_cost() -> None:
    assert own_bytes(json.loads(made(image(blob("1", 7), blob("0", 1)), [BASE], 15).manifest())) == 7
    # A commit says nothing: its own layer is the last one.
    assert own_bytes(image(blob("0", 3), blob("1", 4))) == 4
    assert own_bytes(image(blob("1", 4), annotations={"dev.rollbox.own-bytes": "-1"})) == 4


def test_a_layer_that_comes_twice_is_sent_once() -> None:
    assert len(made(image(blob("1", 7), blob("1", 7)), [], 7).own) == 1


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (None, "internal"),
        ([], "internal"),
        ({"layers": []}, "internal"),
        ({**image(), "layers": 7}, "internal"),
        (image(blob("1", kind="application/x")), "internal"),
        (image(blob("1", -1)), "internal"),
        (image({**blob("1"), "size": True}), "internal"),
        (image({**blob("1"), "size": "1"}), "internal"),
        (image({**blob("1"), "digest": "sha256:../../x"}), "internal"),
        (image({**blob("1"), "digest": f"sha512:{'1' * 128}"}), "internal"),
        (image({**blob("1"), "digest": 7}), "internal"),
        ({**image(blob("1")), "config": blob("c", 5)}, "internal"),
        ({**image(blob("1")), "config": blob("c", 5 << 20, CONFIG)}, "build_failed"),
        (image(), "build_failed"),
        ({**image(), "layers": None}, "build_failed"),
        (image(*[blob("1")] * 128), "build_failed"),
        (image(blob("1", 100)), "payload_too_large"),
    ],
)
def test_what_may_not_stay(said: object, code: str) -> None:
    with pytest.raises(Problem) as refused:
        made(said, [BASE], 50)
    assert refused.value.code == code
