"""smolagents: an executor of `CodeAgent`s, by `executor=RollboxPythonExecutor("python:3.12")`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from io import BytesIO
from typing import Any, Literal, Unpack, cast

import rollbox.sync
from rollbox import Cell, CellResult, SandboxError
from rollbox.options import CreateOptions
from rollbox_integrations import outcome
from rollbox_integrations.versions import require

require("smolagents", "1.25.0", "smolagents")

import PIL.Image  # noqa: E402 - of smolagents, not before its version is known
from smolagents.default_tools import FinalAnswerTool  # noqa: E402
from smolagents.local_python_executor import CodeOutput  # noqa: E402
from smolagents.memory import MemoryStep  # noqa: E402
from smolagents.monitoring import AgentLogger, LogLevel  # noqa: E402
from smolagents.remote_executors import RemotePythonExecutor  # noqa: E402
from smolagents.tools import Tool, get_tools_definition_code  # noqa: E402
from smolagents.utils import AgentError  # noqa: E402

# How much of what a cell prints is kept; smolagents shows a model less.
_MOST_OUTPUT_BYTES = 2**20
_INSTALL_LIMIT_S = 600.0
_DISTRIBUTIONS = {"PIL": "pillow"}
# Imports that the final answer's definition begins with, and does without where they are guarded further down.
_GUARDED = ("import PIL", "import numpy")


class SandboxUnavailable(RuntimeError):  # noqa: N818 - as other hosts' adapters name it
    """There is no sandbox any more, or the platform does not answer: nothing of the model's doing.

    Attributes:
        fault: whose it is, and whether to mask the sample.
    """

    def __init__(self, error: SandboxError) -> None:
        super().__init__(outcome.sentence(error))
        self.fault = outcome.fault(error)


class RollboxPythonExecutor(RemotePythonExecutor):  # type: ignore[misc]  # smolagents has no types
    """A Python that keeps its variables, in a sandbox of the agent's own, which is deleted with the agent.

        executor = RollboxPythonExecutor("python:3.12", memory="1Gi", egress="packages")
        with CodeAgent(tools=[], model=model, executor=executor, step_callbacks=[executor.check]) as agent:
            agent.run("...")

    Final answers are taken as JSON alone: nothing from the sandbox is unpickled here.

    Attributes:
        sandbox: the SDK's own, for what smolagents has no call for.
        fault: whose fault it is that there is no sandbox any more; None while there is one.
    """

    def __init__(
        self,
        image: str,
        *,
        additional_imports: Sequence[str] = (),
        timeout: float | None = 60.0,
        kernel: Literal["jupyter"] | None = None,
        logger: AgentLogger | None = None,
        **options: Unpack[CreateOptions],
    ) -> None:
        """Create the sandbox, and start its Python.

        Args:
            image: any that has `python3`, 3.8 or newer.
            additional_imports: packages to install first, which needs an `egress` that has them.
            timeout: seconds that a step's code may take; None: without limit.
            kernel: "jupyter": the image's `ipykernel`, which also takes `!` and `%`.
            logger: smolagents'; by default what the agent logs has all that is to be said.
            options: of `Sandbox.create`.

        Raises:
            SandboxUnavailable: there is none, and that says nothing about the sample.
            ValueError: an option is wrong, or the image has no such Python.
        """
        super().__init__(list(additional_imports), logger or AgentLogger(level=LogLevel.ERROR))
        self.sandbox: rollbox.sync.Sandbox | None = None
        self.fault: outcome.Fault | None = None
        self._lost: SandboxError | None = None
        self._timeout_s = timeout
        self._tools = ""
        options["labels"] = {**(options.get("labels") or {}), "rollbox.host": "smolagents"}
        try:
            self.sandbox = rollbox.sync.Sandbox.create(image, **options)
            self._python = self.sandbox.interpreter(kernel=kernel, max_output_bytes=_MOST_OUTPUT_BYTES)
            self.installed_packages = self.install_packages(self.additional_imports)
        except BaseException as error:
            self.cleanup()
            if isinstance(error, SandboxError):
                raise _told(error) from error
            raise

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Run the code of a step; what it printed, and the value of its last expression. See smolagents.

        Raises:
            AgentError: the code raised, passed its limit or lost its Python: the model reads why.
            SandboxUnavailable: there is no sandbox any more, or the platform does not answer.
        """
        if self.sandbox is None or self._lost is not None:
            raise (SandboxUnavailable(self._lost) if self._lost else RuntimeError("it is cleaned up")) from self._lost
        try:
            cell = self._python.run(code, timeout=self._timeout_s)
            if cell.variables_lost:
                # The tools went with the variables: without them no agent can give an answer.
                self._python.run(self._tools)
        except SandboxError as error:
            self._lost, self.fault = error, outcome.fault(error)
            raise _told(error) from error
        logs = cell.stdout + cell.stderr
        if cell.error is not None and cell.error.name == self.FINAL_ANSWER_EXCEPTION:
            return CodeOutput(output=self._deserialize_final_answer(cell.error.value), logs=logs, is_final_answer=True)
        if not cell.ok:
            raise AgentError(f"{logs}\n{_why(cell, self._timeout_s)}", self.logger)
        shown = next((one for one in cell.results if one.main), None)
        return CodeOutput(output=None if shown is None else _value(shown), logs=logs, is_final_answer=False)

    def send_tools(self, tools: dict[str, Tool]) -> None:
        """Define an agent's tools, and install what they need. See smolagents.

        Raises:
            AgentError: pip has failed, with what it said.
        """
        needed = {package for tool in tools.values() for package in tool.to_dict()["requirements"]} - {"smolagents"}
        if "final_answer" in tools:
            self._patch_final_answer_with_exception(cast("FinalAnswerTool", tools["final_answer"]))
        missing = {_DISTRIBUTIONS.get(package, package) for package in needed} - set(self.installed_packages)
        self.installed_packages += self.install_packages(sorted(missing))
        lines = get_tools_definition_code(tools).splitlines()
        self._tools = "\n".join(line for line in lines if line not in _GUARDED or line[7:] in needed)
        self.run_code_raise_errors(self._tools)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Install packages by the sandbox's own pip. See smolagents.

        Raises:
            AgentError: pip has failed, with what it said.
        """
        if additional_imports and self.sandbox is not None:
            words = ["python3", "-m", "pip", "install", "--quiet", *additional_imports]
            result = self.sandbox.exec(words, merge=True, timeout=_INSTALL_LIMIT_S)
            if result.exit_code:
                raise AgentError(
                    f"pip could not install {', '.join(additional_imports)}:\n{result.stdout}", self.logger
                )
        return additional_imports

    def check(self, step: MemoryStep, agent: Any = None) -> None:  # noqa: ANN401 - smolagents'
        """End the run of an agent that has no sandbox any more; for `step_callbacks`.

        smolagents takes whatever an executor raises for a mistake of the model, and asks it for another step.

        Raises:
            SandboxUnavailable: there is none.
        """
        if self._lost is not None:
            raise SandboxUnavailable(self._lost) from self._lost

    def cleanup(self) -> None:
        """Delete the sandbox; its lease ends one that could not be deleted."""
        if (sandbox := getattr(self, "sandbox", None)) is not None:
            self.sandbox = None
            with contextlib.suppress(SandboxError):
                sandbox.delete()

    def __del__(self) -> None:
        """As smolagents' own executors' sandboxes end."""
        self.cleanup()


def _told(error: SandboxError) -> SandboxUnavailable | ValueError:
    wrong = error.fault == "caller" and not error.mask_sample
    return ValueError(outcome.sentence(error)) if wrong else SandboxUnavailable(error)


def _why(cell: Cell, limit_s: float | None) -> str:
    """Say to a model why its code has no value."""
    if cell.error is not None and cell.end == "finished":
        return f"Executing code yielded an error:\n{cell.error.name}\n{cell.error.value}\n{cell.error.traceback}"
    if cell.end == "deadline":
        said = f"The code passed its limit of {limit_s:g} s and was interrupted."
    else:
        said = f"The interpreter ended: {cell.reason or cell.end}."
    return (
        f"{said} All variables are lost, and tools are defined anew."
        if cell.variables_lost
        else f"{said} Variables are kept."
    )


def _value(shown: CellResult) -> Any:  # noqa: ANN401 - smolagents'
    """A picture, or the text of a value."""
    picture = shown.png or shown.jpeg
    return shown.text if picture is None else PIL.Image.open(BytesIO(picture))
