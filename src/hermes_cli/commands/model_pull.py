"""`hermes model pull`: fetch the embedded model, with a bar."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hermes_agent.models import embedded
from hermes_agent.models.embedded import catalog, model_files, pull
from hermes_agent.models.embedded.progress import Step, megabytes
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core.errors import ModelMissingError

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar


@click.command("pull")
@click.argument("name", required=False)
@click.option(
    "--gguf",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Use this model file instead of fetching one.",
)
@click.option("--yes", is_flag=True, help="Fetch without asking.")
@json_option
@pass_app
def command(app: App, name: str | None, gguf: Path | None, yes: bool) -> None:
    """Fetch the embedded model, or go on with a fetch that was broken off.

    NAME is a model of the catalog (qwen2.5-coder-1.5b, qwen2.5-coder-0.5b); without it, the one that
    suits this machine. With --gguf, NAME is what your file is to be called.
    """
    path = obtain(app, name, gguf=gguf, yes=yes)
    if app.as_json:
        app.emit({"name": path.stem, "path": str(path)})
        return
    click.echo(f"{path.stem} is ready: {path}")
    click.echo(embedded.advice(), err=True)


def obtain(
    app: App, name: str | None = None, *, gguf: Path | None = None, yes: bool = False
) -> Path:
    """The file of a model, fetched with a bar when the user agrees.

    Raises ModelMissingError when it is to be fetched and nobody can be asked.
    """
    if gguf is None:
        name = _agreed(app, name, yes)
    bar = Bar()
    try:
        return pull.pull(name, app.home, gguf=gguf, hub=app.settings.model.hub, progress=bar.show)
    except KeyboardInterrupt:
        bar.close()
        click.echo("What was fetched is kept; the next pull goes on from there.", err=True)
        raise
    finally:
        bar.close()


def _agreed(app: App, name: str | None, yes: bool) -> str:
    """The name of the model to fetch, which the user has said yes to."""
    choice = pull.choose(app.home)
    entry = catalog.get(name or choice.name)
    if yes or entry.name in model_files.installed(app.home):
        return entry.name
    if not sys.stdin.isatty():
        raise ModelMissingError(
            f"{entry.title} is not here, and nobody can be asked whether to fetch it "
            f"({megabytes(entry.bytes)}).",
            fix=f"Run: hermes model pull {entry.name} --yes.",
        )
    why = "" if name else f" ({choice.reason})"
    question = f"Fetch {entry.title}, {megabytes(entry.bytes)}{why}?"
    click.confirm(question, default=True, abort=True, err=True)
    return entry.name


class Bar:
    """Shows the steps of a fetch on stderr: bytes as a bar, words as lines."""

    def __init__(self) -> None:
        self._bar: ProgressBar[int] | None = None
        self._label = ""

    def show(self, step: Step) -> None:
        if not step.total:
            self.close()
            click.echo(step.text, err=True)
            return
        if self._bar is None or self._label != step.text:
            self.close()
            self._open(step)
        if self._bar is not None:
            self._bar.update(step.done - self._bar.pos)

    def _open(self, step: Step) -> None:
        self._label = step.text
        label = f"{megabytes(step.total)} {step.text}"
        self._bar = bar = click.progressbar(length=step.total, label=label, file=sys.stderr)
        bar.pos = step.done
        bar.render_progress()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.render_finish()
            self._bar = None
