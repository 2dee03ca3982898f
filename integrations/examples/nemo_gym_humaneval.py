"""HumanEval as a resources server of NeMo Gym: an answer's tests run in a sandbox of its own, which is deleted after.

A sandbox that was lost gives a reward that is masked, with NeMo Gym's name for what failed.

    pip install "rollbox-integrations[nemo-gym]"
    rollbox up &                                   # or set ROLLBOX_URL and ROLLBOX_API_KEY
    python integrations/examples/nemo_gym_humaneval.py localhost/rollbox/python:1

The program asks the server as an agent does. Its policy is a script: the author's answer, and no answer.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.sandbox import AsyncSandbox, SandboxCreateError, SandboxSpec
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf

from rollbox_integrations.nemo_gym import failure

PROBLEMS = Path(__file__).resolve().parents[2] / "sdk/examples/data/humaneval/HumanEval.jsonl.gz"
UNSOLVED = "    pass\n"


class HumanEvalConfig(BaseResourcesServerConfig):
    """Where answers are tried."""

    sandbox_provider: dict[str, Any]
    image: str
    timeout_s: float = 60.0


class HumanEvalRequest(BaseVerifyRequest):
    """An answer and its tests."""

    tests: str


class HumanEvalServer(SimpleResourcesServer):
    """Gives 1 where the tests pass over the answer."""

    config: HumanEvalConfig

    async def verify(self, body: HumanEvalRequest) -> BaseVerifyResponse:
        """Run the tests of an answer."""
        program = f"{body.response.output_text}\n{body.tests}"
        spec = SandboxSpec(image=self.config.image, files={"/tmp/answer.py": program}, resources={"memory_mib": 512})
        sandbox = AsyncSandbox(self.config.sandbox_provider, spec)
        try:
            await sandbox.start()
            result = await sandbox.exec("python3 /tmp/answer.py", timeout_s=self.config.timeout_s)
            reward, told = float(result.return_code == 0), failure(result)
        except SandboxCreateError as error:
            reward, told = 0.0, failure(error)
        finally:
            await sandbox.stop()
        return BaseVerifyResponse(**body.model_dump(), reward=reward, **told)


def server(image: str, **options: str) -> HumanEvalServer:
    """Return the server; `options` are the provider's."""
    place = {"host": "127.0.0.1", "port": 0}
    config = HumanEvalConfig(
        **place, entrypoint="", name="humaneval", image=image, sandbox_provider={"rollbox": options}
    )
    head = ServerClient(head_server_config=BaseServerConfig(**place), global_config_dict=OmegaConf.create({}))
    return HumanEvalServer(config=config, server_client=head)


def requests(count: int, *, solved: bool) -> Iterator[dict[str, Any]]:
    """Yield what an agent sends of the first problems."""
    with gzip.open(PROBLEMS, "rt") as lines:
        for _, line in zip(range(count), lines, strict=False):
            one = json.loads(line)
            answer = one["prompt"] + (one["canonical_solution"] if solved else UNSOLVED)
            tests = f"{one['test']}\ncheck({one['entry_point']})\n"
            yield {"responses_create_params": {"input": one["prompt"]}, "response": said(answer), "tests": tests}


def said(text: str) -> dict[str, Any]:
    """What a model has answered, in the words of the Responses API."""
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed"}
    content = [{"type": "output_text", "text": text, "annotations": []}]
    head = {"id": "r", "created_at": 0.0, "model": "script", "object": "response"}
    choice = {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
    return {**head, **choice, "output": [{**message, "content": content}]}


def main(image: str, count: int = 20) -> None:
    """Print the mean rewards."""
    with TestClient(server(image, egress="offline").setup_webserver()) as agent:
        for solved in (True, False):
            answers = [agent.post("/verify", json=one).json() for one in requests(count, solved=solved)]
            mean = sum(one["reward"] for one in answers) / count
            print(f"{'solved' if solved else 'untouched'}: {count} problems, mean reward {mean:g}")


if __name__ == "__main__":
    main(sys.argv[1])
