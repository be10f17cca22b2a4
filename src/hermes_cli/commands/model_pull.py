"""`hermes model pull`: download the embedded model."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hermes_agent.models import embedded
from hermes_agent.models.embedded import catalog, model_files, pull
from hermes_agent.models.embedded.progress import Step
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core.errors import ModelMissingError
from hermes_core.text import human_size

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar


@click.command("pull")
@click.argument("name", required=False)
@click.option(
    "--gguf",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Use this model file instead of downloading one.",
)
@click.option("--yes", is_flag=True, help="Download without asking.")
@json_option
@pass_app
def command(app: App, name: str | None, gguf: Path | None, yes: bool) -> None:
    """Download the embedded model, or resume its download.

    NAME is qwen2.5-coder-1.5b or qwen2.5-coder-0.5b; the default suits this machine. With --gguf, NAME
    is the name for your file.
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
    """Return the file of a model; download it first if the user agrees.

    Raises ModelMissingError when there is no terminal to ask on.
    """
    if gguf is None:
        name = _confirmed(app, name, yes)
    bar = Bar()
    try:
        return pull.pull(name, app.home, gguf=gguf, hub=app.settings.model.hub, progress=bar.show)
    except KeyboardInterrupt:
        bar.close()
        click.echo("Download paused; run the same command to resume it.", err=True)
        raise
    finally:
        bar.close()


def _confirmed(app: App, name: str | None, yes: bool) -> str:
    """Ask before downloading; return the name of the model."""
    choice = pull.choose(app.home)
    entry = catalog.get(name or choice.name)
    if yes or entry.name in model_files.installed(app.home):
        return entry.name
    if not sys.stdin.isatty():
        raise ModelMissingError(
            f"{entry.title} is not downloaded yet ({human_size(entry.bytes)}), and there is no terminal"
            " to ask on.",
            fix=f"Run: hermes model pull {entry.name} --yes.",
        )
    reason = "" if name else f" ({choice.reason})"
    question = f"Download {entry.title}, {human_size(entry.bytes)}{reason}?"
    click.confirm(question, default=True, abort=True, err=True)
    return entry.name


class Bar:
    """Shows the progress of a download on stderr."""

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
        label = f"{human_size(step.total)} {step.text}"
        self._bar = bar = click.progressbar(length=step.total, label=label, file=sys.stderr)
        bar.pos = step.done
        bar.render_progress()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.render_finish()
            self._bar = None
