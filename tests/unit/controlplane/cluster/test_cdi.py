"""What CDI's specifications say of a kind of devices, and which sandbox holds which."""

import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.engine.cdi import Device, SpecificationError, devices, read
from controlplane.cluster.engine.devices import Devices
from controlplane.errors import Problem

KIND = "vendor.example/node"


def spec(*names: str, common: Any = None, **edits: Any) -> dict[str, Any]:
    own = {"deviceNodes": [{"path": "/dev/inside", "hostPath": "/dev/null", "permissions": "rw"}], **edits}
    listed = [{"name": name, "containerEdits": own} for name in names]
    return {"cdiVersion": "0.6.0", "kind": KIND, "devices": listed, "containerEdits": common or {}}


def test_nodes_mounts_and_variables_of_the_device_and_of_its_kind() -> None:
    common = {"env": ["A=1"], "deviceNodes": [{"path": "/dev/null"}]}
    mounts = [
        {"hostPath": "/lib/x.so.1", "containerPath": "/usr/lib/x.so", "options": ["ro", "nosuid", "bind"]},
        {"hostPath": "/run/sock", "containerPath": "/run/sock"},
    ]
    found = devices(KIND, [spec("b", "all", "a", common=common, mounts=mounts, env=["B=2"]), {"kind": "other/kind"}])
    assert [device.name for device in found] == ["a", "b"]
    assert found[0].nodes == (("/dev/null", "/dev/inside", "rw"), ("/dev/null", "/dev/null", "rwm"))
    assert found[0].binds == ("/lib/x.so.1:/usr/lib/x.so:ro", "/run/sock:/run/sock:rw")
    assert found[0].env == ("B=2", "A=1")


@pytest.mark.parametrize(
    ("kind", "specifications", "says"),
    [
        ("vendor", [spec("a")], "not the kind"),
        (KIND, [], "no specification"),
        (KIND, [spec("all")], "no specification"),
        (KIND, [spec("a", hooks=[{"hookName": "createContainer", "path": "/bin/true"}])], "needs hooks"),
        (KIND, [spec("a", common={"hooks": [{"path": "/bin/true"}]})], "needs hooks"),
        (KIND, [spec("a", intelRdt={"closID": "x"})], "needs intelRdt"),
        (KIND, [spec("a", deviceNodes=[{"path": "relative"}])], "not absolute"),
        (KIND, [spec("a", deviceNodes=[{}])], "malformed"),
        (KIND, [spec("a", mounts=[{"hostPath": "/x"}])], "malformed"),
        (KIND, [spec("a", deviceNodes="/dev/null")], "malformed"),
        (KIND, [{"kind": KIND, "devices": [3]}], "malformed"),
    ],
)
def test_what_cannot_be_done_is_refused_at_the_start(kind: str, specifications: list[Any], says: str) -> None:
    with pytest.raises(SpecificationError, match=says):
        devices(kind, specifications)


def test_specifications_are_read_from_all_folders_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.json").write_text(json.dumps(spec("one")))
    (tmp_path / "a" / "two.yaml").write_text(f"kind: {KIND}\ndevices: []\n")
    (tmp_path / "a" / "notes.txt").write_text("not one")
    assert [one["kind"] for one in read([tmp_path / "a", tmp_path / "none"])] == [KIND, KIND]
    for text in ("{", "[1]"):
        (tmp_path / "a" / "bad.json").write_text(text)
        with pytest.raises(SpecificationError, match=r"bad\.json"):
            read([tmp_path / "a"])


def held(*names: str) -> Devices:
    return Devices(KIND, [Device(name, (("/dev/null", f"/dev/{name}", "rwm"),)) for name in names])


def test_each_device_has_one_holder_until_that_is_gone() -> None:
    machine = held("a", "b")
    assert [one.name for one in machine.take("sb-1", 1)] == ["a"]
    assert [one.name for one in machine.take("sb-1", 1)] == ["a"], "a start may be repeated"
    assert [one.name for one in machine.take("sb-2", 1)] == ["b"]
    assert machine.take("sb-3", 0) == ()
    with pytest.raises(Problem, match="0 of the 2 devices") as refused:
        machine.take("sb-4", 1)
    assert refused.value.code == "capacity_unavailable"
    machine.release("sb-1")
    machine.release("sb-1")
    assert [one.name for one in machine.take("sb-4", 1)] == ["a"]


def test_what_an_earlier_control_plane_has_given_stays_with_its_holder() -> None:
    machine = held("a", "b")
    machine.adopt({"sb-old": ["a"]})
    machine.adopt({"sb-late": ["b"]})
    assert [one.name for one in machine.take("sb-1", 1)] == ["b"]


def test_a_device_that_has_gone_away_is_given_to_nobody() -> None:
    machine = Devices(KIND, [Device("gone", (("/dev/is-not-there", "/dev/x", "rwm"),))])
    with pytest.raises(Problem, match="0 of the 1 devices"):
        machine.take("sb-1", 1)
