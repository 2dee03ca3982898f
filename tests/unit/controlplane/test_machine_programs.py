"""What `rollbox doctor` says of an engine and a kernel that keep programs from what they may do elsewhere."""

from pathlib import Path
from typing import Any

import pytest

from controlplane.embedded import probe


@pytest.mark.parametrize(
    ("options", "scope", "wrong"),
    [
        ([], None, []),
        (["name=seccomp,profile=default"], "0", []),
        (["name=no-new-privileges"], "0", ["setuid programs"]),
        ([], "1", ["debuggers"]),
        (None, "2", ["debuggers"]),
    ],
)
def test_it_is_told_with_what_to_do_and_nothing_of_it_is_needed(
    options: list[str] | None, scope: str | None, wrong: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "SCOPE", tmp_path / "scope")
    if scope is not None:
        (tmp_path / "scope").write_text(f"{scope}\n")
    info: dict[str, Any] = {"SecurityOptions": options}
    found = [*probe._programs_may(info)]
    assert [one.name for one in found] == ["setuid programs", "debuggers"]
    assert [one.name for one in found if not one.ok] == wrong
    assert [bool(one.fix) for one in found] == [not one.ok for one in found]
    assert not any(one.needed for one in found)
