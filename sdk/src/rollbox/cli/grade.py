"""`rollbox grade`: tests over what a sandbox has made, in a fresh one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rollbox import labels as label_rules
from rollbox.cli import output
from rollbox.cli.options import POLICY_HELP, Json, ResourceArguments, policy_of, time_option, with_resources
from rollbox.cli.sandboxes import FilesGiven, files_given

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.grading import Verdict

_EXIT_BY_FAULT = {"sample": 1, "grader": 3, "platform": 5}
_TIMEOUT = 124
_Paths = list[str] | None


@with_resources
def grade(
    sandbox_id: Annotated[str, typer.Argument(metavar="ID", help="The solver's sandbox; its processes are killed.")],
    *,
    run: Annotated[str, typer.Option(metavar="COMMAND", help="The tests, for the shell of the grader.")],
    image: Annotated[str | None, typer.Option(help="Image of the grader.")] = None,
    checkpoint: Annotated[str | None, typer.Option(metavar="ID", help="Checkpoint, in place of an image.")] = None,
    take: Annotated[_Paths, typer.Option(metavar="PATH", help="What is handed over; may be repeated.")] = None,
    file: FilesGiven = None,
    exclude: Annotated[_Paths, typer.Option(metavar="PATH", help="What of it is not; may be repeated.")] = None,
    links_to: Annotated[_Paths, typer.Option(metavar="PATH", help="Where links may lead to; may be repeated.")] = None,
    reward_file: Annotated[_Paths, typer.Option(metavar="PATH", help="Where the tests leave the reward.")] = None,
    egress: Annotated[str, typer.Option(metavar="POLICY", help=POLICY_HELP)] = "offline",
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE", help="May be repeated.")] = None,
    cwd: Annotated[str | None, typer.Option(help="Directory of the tests.")] = None,
    user: Annotated[str | None, typer.Option(help="User of the tests, and owner of what is handed over.")] = None,
    take_user: Annotated[str | None, typer.Option(help="User to read the solver's files as.")] = None,
    timeout: Annotated[float, time_option("Time for the tests.")] = 600,
    handover_timeout: Annotated[float, time_option("Time to stop the solver and to hand over.")] = 120,
    max_bytes: Annotated[str, typer.Option(metavar="SIZE", help="Most data that is taken.")] = "1Gi",
    max_entries: Annotated[int, typer.Option(help="Most files, directories and links that are taken.")] = 100_000,
    delete: Annotated[bool, typer.Option(help="Delete the solver's sandbox afterwards.")] = False,
    start_timeout: Annotated[float, time_option("Time until the grader must be ready.")] = 120,
    resources: ResourceArguments,
    json: Json = False,
) -> None:
    """Run tests over what a sandbox has made, in a fresh one that its code cannot touch; exits with 0 if they pass.

    1: they failed, or what was made could not be taken. 124: they took too long. 3, 5: no fault of what was made.
    """

    async def call(client: Client) -> Verdict:
        solver = await client.connect(sandbox_id)
        return await solver.grade(
            image,
            run=run,
            checkpoint=checkpoint,
            take=take or (),
            files=files_given(file or ()),
            exclude=exclude or (),
            links_to=links_to or (),
            reward_files=reward_file or (),
            egress=policy_of(egress),
            env=label_rules.parse(env or ()),
            cwd=cwd,
            user=user,
            take_user=take_user,
            timeout=timeout,
            handover_timeout=handover_timeout,
            max_bytes=max_bytes,
            max_entries=max_entries,
            keep=not delete,
            start_timeout=start_timeout,
            **resources.options(),
        )

    verdict = output.run(call, what=f"grading {sandbox_id}", as_json=json)
    if json:
        output.data(verdict.to_json())
    else:
        _print(verdict)
    failed = 0 if verdict.passed else 1
    raise typer.Exit(_TIMEOUT if verdict.reason == "timeout" else _EXIT_BY_FAULT.get(verdict.fault, failed))


def _print(verdict: Verdict) -> None:
    from rollbox.cli.exec import print_output
    from rollbox.files.paths import shown

    if verdict.result is not None:
        print_output(verdict.result, raw=False)
    for path, reason in verdict.taken.dropped.items():
        output.message(f"left out: {shown(path)} ({reason})")
    for path in verdict.taken.missing:
        output.message(f"not there: {shown(path)}")
    if verdict.fault != "none":
        output.message(f"no verdict, by a fault of the {verdict.fault}: {verdict.detail} ({verdict.reason})")
    reward = "none, mask the sample" if verdict.mask_sample else f"{verdict.reward}"
    output.message(f"reward: {reward}")
