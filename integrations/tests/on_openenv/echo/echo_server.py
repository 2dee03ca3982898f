"""An environment of OpenEnv that runs in a sandbox: it says again what it is told, and rewards length."""

from __future__ import annotations

import os
from typing import Any

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Said(Action):
    """What is told."""

    message: str


class Echo(Observation):
    """What comes back."""

    message: str
    variable: str = ""


class EchoEnvironment(Environment):  # type: ignore[type-arg]
    """Three steps an episode."""

    def __init__(self) -> None:
        super().__init__()
        self._state = State(step_count=0)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Echo:
        """Begin."""
        self._state = State(episode_id=episode_id, step_count=0)
        return Echo(message="ready", variable=os.environ.get("A", ""), done=False, reward=0.0)

    def step(self, action: Said, timeout_s: float | None = None, **_: Any) -> Echo:
        """Say it again; "eat" takes all memory, and "die" ends the server."""
        if action.message == "eat":
            return Echo(message=str(len(b"x" * (1 << 33))))
        if action.message == "die":
            os._exit(3)
        self._state.step_count += 1
        return Echo(message=action.message, done=self._state.step_count == 3, reward=len(action.message) / 10)

    @property
    def state(self) -> State:
        """How many steps there were."""
        return self._state


app = create_fastapi_app(EchoEnvironment, Said, Echo)
