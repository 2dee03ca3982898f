"""HumanEval by sessions of llm-sandbox, with the solutions of its authors.

    pip install "rollbox-integrations[llm-sandbox]"
    rollbox up &                                   # or set ROLLBOX_URL and ROLLBOX_API_KEY
    python integrations/examples/llm_sandbox_humaneval.py localhost/rollbox/python:1

It prints how many of the first problems are solved, and whose fault it is where a sandbox was lost.
"""

import gzip
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from llm_sandbox import SandboxSession
from llm_sandbox.exceptions import SandboxTimeoutError

from rollbox_integrations.llm_sandbox import SandboxUnavailable

PROBLEMS = Path(__file__).parents[2] / "sdk/examples/data/humaneval/HumanEval.jsonl.gz"
LIMIT = 10


def solved(image: str, problem: dict[str, str]) -> bool:
    """Whether a problem is solved, in a sandbox of its own."""
    program = problem["prompt"] + problem["canonical_solution"]
    test = f"{program}\n{problem['test']}\ncheck({problem['entry_point']})\n"
    try:
        with SandboxSession(backend="rollbox", image=image, memory="256Mi", egress="offline") as session:
            return session.run(test, timeout=30).success()
    except SandboxTimeoutError:
        return False
    except SandboxUnavailable as error:
        print(f"{error.fault['code']}: {'masked' if error.fault['mask_sample'] else 'scored'}")
        return False


def main(image: str) -> None:
    """Run them, four at a time."""
    with gzip.open(PROBLEMS, "rt") as lines:
        problems = [json.loads(line) for line in lines][:LIMIT]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(partial(solved, image), problems))
    print(f"{results.count(True)} of {len(results)} solved")


if __name__ == "__main__":
    main(sys.argv[1])
