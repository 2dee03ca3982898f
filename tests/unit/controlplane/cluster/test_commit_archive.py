"""The archive that an engine loads: the image's own words, and one layer more."""

import hashlib
import io
import json
import tarfile
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.cluster.engine.commit.archive import archive

BELOW = f"sha256:{64 * 'b'}"
BASE: dict[str, Any] = {
    "Architecture": "arm64",
    "Variant": "v8",
    "Os": "linux",
    "Config": {
        "Env": ["A=b"],
        "Cmd": ["sh"],
        "Entrypoint": ["/init"],
        "User": "1000:1000",
        "WorkingDir": "/repo",
        "Labels": {"x": "y"},
        "Hostname": "of a container",
        "Volumes": {"/data": {}},
    },
    "RootFS": {"Type": "layers", "Layers": [BELOW]},
}


def unpacked(layer: bytes) -> tuple[dict[str, bytes], str]:
    digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    made = archive(BASE, digest, len(layer), name="localhost/a:id-{id}", created="2026-01-01T00:00:00Z")
    with tarfile.open(fileobj=io.BytesIO(made.head + layer + made.tail)) as read:
        files = {one.name: (read.extractfile(one) or io.BytesIO()).read() for one in read}
    return files, made.digest


@given(st.binary(max_size=2000))
def test_every_part_is_where_its_digest_says(layer: bytes) -> None:
    files, digest = unpacked(layer)
    blobs = {name: data for name, data in files.items() if name.startswith("blobs/sha256/")}
    assert all(hashlib.sha256(data).hexdigest() == name.rpartition("/")[2] for name, data in blobs.items())
    (told,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(files[f"blobs/{told['digest'].replace(':', '/')}"])
    assert manifest["config"]["digest"] == digest
    assert manifest["layers"][0]["digest"] == BELOW
    assert f"blobs/{BELOW.replace(':', '/')}" not in files
    name = f"localhost/a:id-{digest.partition(':')[2]}"
    assert told["annotations"] == {"org.opencontainers.image.ref.name": name}
    (for_docker,) = json.loads(files["manifest.json"])
    assert (for_docker["RepoTags"], len(for_docker["Layers"])) == ([name], 2)
    assert files[for_docker["Layers"][1]] == layer


def test_the_image_says_what_its_own_says_and_nothing_of_a_container() -> None:
    files, digest = unpacked(b"layer")
    config = json.loads(files[f"blobs/{digest.replace(':', '/')}"])
    assert (config["architecture"], config["variant"], config["os"]) == ("arm64", "v8", "linux")
    assert config["config"] == {
        name: value for name, value in BASE["Config"].items() if name not in ("Hostname", "Volumes")
    }
