"""What the tags of copies say of recorded ones, as `internal/collector` reads them."""

import pytest

from controlplane.images import is_copy, offers, recorded_owner

OWNER, LIST = "0123456789abcdef", "0123456789ab"
WHOSE, SOURCE = f"{OWNER}01234567", "5" * 64


@pytest.mark.parametrize(
    ("tag", "copy", "owner", "verdict"),
    [
        (f"copy-{SOURCE}-estargz-amd64", True, None, False),
        (f"copy-{SOURCE}-estargz-amd64-arm64", True, None, False),
        (f"copy-{SOURCE}-estargz-amd64-{OWNER}-{LIST}", True, OWNER, False),
        (f"copy-{SOURCE}-estargz-amd64-arm64-{OWNER}-{LIST}", True, OWNER, False),
        (f"boot-{SOURCE}-estargz-amd64", False, None, False),
        (f"boot-{SOURCE}-estargz-amd64-{WHOSE}", False, None, True),
        (f"tag-copy-{OWNER}-{LIST}", False, None, False),  # what a user called it
        ("copy", False, None, False),
        ("boot-", False, None, False),
    ],
)
def test_they_are_told_apart(tag: str, copy: bool, owner: str | None, verdict: bool) -> None:
    assert (is_copy(tag), recorded_owner(tag), offers(tag)) == (copy, owner, verdict)
