"""`rollbox image build`."""

from __future__ import annotations

import json as encoder
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import output
from rollbox.cli.options import POLICY_HELP, Json, policy_of, time_option
from rollbox.cli.progress import bars

if TYPE_CHECKING:
    from rollbox.build import BuildOptions, Secret
    from rollbox.client import Client
    from rollbox.image import BuiltImage
    from rollbox.task_images import TaskImage

app = typer.Typer()


@app.command()
def build(
    path: Annotated[
        Path,
        typer.Argument(metavar="DIR|DATASET", help="A folder with a Dockerfile; or of tasks, or a TOML file of them."),
    ],
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="The Dockerfile (DIR/Dockerfile).")
    ] = None,
    build_arg: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="The value of an ARG; may be repeated.")
    ] = None,
    target: Annotated[str, typer.Option(metavar="STAGE", help="The stage that is wanted (the last one).")] = "",
    secret: Annotated[
        list[str] | None, typer.Option(metavar="ID=FILE", help="A secret that a RUN mounts; it is in no layer.")
    ] = None,
    egress: Annotated[
        str, typer.Option(metavar="POLICY", help=f"What its steps may reach (nothing). {POLICY_HELP}")
    ] = "",
    timeout: Annotated[float, time_option("How long one build may take.")] = 1800,
    parallel: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Tasks of a data set at a time.")] = 8,
    manifest: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the image of each task to it, as `image prefetch @FILE` reads it."),
    ] = None,
    json: Json = False,
) -> None:
    """Build an image from a Dockerfile, or those of a data set, unless one of the same content is there."""
    from rollbox import task_images

    options: BuildOptions = {"args": _pairs("--build-arg", build_arg), "secrets": _secrets(secret), "timeout": timeout}
    if egress:
        options["egress"] = policy_of(egress)
    if file is None and task_images.is_data_set(path):
        if target:
            raise typer.BadParameter("the tasks of a data set have targets of their own", param_hint="--target")
        _build_all(path, options, parallel, manifest, json=json)
        return
    if manifest is not None:
        raise typer.BadParameter(f"{path} is no data set", param_hint="--manifest")
    if file is not None:
        options["file"] = file
    if target:
        options["target"] = target
    _build_one(path, options, json=json)


def _build_one(folder: Path, options: BuildOptions, *, json: bool) -> None:
    async def call(client: Client) -> BuiltImage:
        building = client.build(folder, **options)
        async for progress in building:
            if json:
                typer.echo(encoder.dumps(progress.to_json()))
            elif progress.state == "queued":
                output.message(f"it waits for its turn, as number {progress.place} of your builds")
            elif progress.text:
                output.message(progress.text.rstrip("\n"))
        return await building

    made = output.run(call, what=f"building {folder}", as_json=json, quiet=True)
    if not json:
        output.message("it was there already" if made.cached else "it was built")
        output.line(str(made))


def _build_all(path: Path, options: BuildOptions, parallel: int, manifest: Path | None, *, json: bool) -> None:
    from rollbox import task_images

    async def call(client: Client) -> list[TaskImage]:
        tasks = [task_images.with_options(one, options) for one in task_images.read(path)]
        done: list[TaskImage] = []
        with bars("items", "elapsed") as shown:
            bar = None if shown is None else shown.add_task(path.name, total=len(tasks))
            async with aclosing(task_images.built(client, tasks, parallel)) as told:
                async for one in told:
                    done.append(one)
                    _tell(one, json=json)
                    if shown is not None and bar is not None:
                        shown.advance(bar)
        return done

    done = output.run(call, what=f"building the images of {path}", as_json=json, quiet=True)
    images = {one.task: one.image for one in done if one.image is not None}
    if manifest is not None:
        output.written_file(manifest, task_images.manifest(images), as_json=json)
    if not json:
        for name, image in sorted(images.items()):
            output.line(f"{name}  {image}")
        there = sum(one.cached for one in images.values())
        output.message(f"{len(images) - there} built, {there} there already, {len(done) - len(images)} failed")
    for one in done:
        if one.error is not None:
            output.fail(one.error, as_json=json)


def _tell(one: TaskImage, *, json: bool) -> None:
    if json:
        typer.echo(encoder.dumps(one.to_json()))
    elif one.error is not None:
        output.message(f"{one.task}  failed: {one.error.code}: {one.error.detail}")


def _secrets(given: list[str] | None) -> dict[str, Secret]:
    return {name: Path(path) for name, path in _pairs("--secret", given).items()}


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    told = [one.partition("=") for one in given or ()]
    for name, equals, _ in told:
        if not name or not equals:
            raise typer.BadParameter(f"{name!r} is not of the form NAME=VALUE", param_hint=option)
    return {name: value for name, _, value in told}
