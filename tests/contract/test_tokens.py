"""Tokens of the control plane as gateway and sidecar judge them, by clocks that are not the control plane's."""

from dataclasses import replace

import rollbox_gateway
from controlplane.lifecycle import SigningKey
from controlplane.lifecycle.tokens import SLACK_MS
from controlplane.model import Sandbox
from tests.support.virtual_time import EPOCH_MS, VirtualClock
from tests.support.world import PRIVATE, SPEC

TTL_S = 3_600
SANDBOX = Sandbox("sb-1", "alice", SPEC, EPOCH_MS, EPOCH_MS + TTL_S * 1000, "f")
EPOCH_S, SLACK_S = EPOCH_MS // 1000, SLACK_MS // 1000


async def test_a_token_promises_the_settings_that_a_gateway_binds() -> None:
    key = SigningKey(PRIVATE, VirtualClock())
    promised = replace(SANDBOX, settings_digest="d" * 64)

    def settings(text: str) -> object:
        said = rollbox_gateway.verify_token(key.public_text, text, EPOCH_S)
        assert not isinstance(said, str)
        return said["settings"]

    assert settings(key.token(promised).text) == "d" * 64
    assert settings(key.token(SANDBOX).text) is None
    # Public ports serve nothing before a command has started a server.
    public = replace(promised, ports_revision=EPOCH_MS)
    assert settings(key.port_token(public, 80).text) is None


async def test_a_token_serves_its_sandbox_to_the_end_where_clocks_are_a_minute_ahead() -> None:
    key = SigningKey(PRIVATE, VirtualClock())
    token = key.token(SANDBOX).text

    def judged(at_s: int, ahead_s: int) -> object:
        """What a verifier says whose clock is so far ahead of the control plane's."""
        said = rollbox_gateway.verify_token(key.public_text, token, EPOCH_S + at_s + ahead_s)
        return said if isinstance(said, str) else (said["sandbox_id"], said["expires_at_s"])

    good = ("sb-1", EPOCH_S + TTL_S + SLACK_S)
    for ahead_s in (0, SLACK_S, -SLACK_S, -TTL_S):
        assert judged(0, ahead_s) == judged(TTL_S - 1, ahead_s) == good
    # A clock that is further ahead refuses the last moments of a life, as unauthenticated, and no earlier ones.
    assert judged(TTL_S - 61, SLACK_S + 60) == good
    assert "the token expired 59 s ago" in str(judged(TTL_S - 1, SLACK_S + 60))
