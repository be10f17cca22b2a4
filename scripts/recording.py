"""The recording of docs/images/tour.svg: one turn in the real interface, as an animated picture.

It is taken like the pictures of scripts/screenshots.py. The model waits before each of its steps until
a frame has been taken, so the same code gives the same recording.
"""

import asyncio
import html
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from scripts import screenshots
from scripts.screenshots import MODEL, ROOT, USAGE, Tour

from hermes_agent.testing.scripted import Step, call, say, together
from hermes_agent.testing.server import Recorded, ScriptedServer

SIZE = (84, 26)
PROMPT = "Make the greeting friendlier, then tidy up ../old-builds."
ANSWER = """\
The greeting is **friendlier** now, and the test passes:

```python
greet("world")  # Hello, world!
```

You kept `../old-builds`, so I left it alone.
"""
STEPS = [
    together(say("I look at the file first."), call("read_file", path="greet.py")),
    call(
        "patch",
        path="greet.py",
        old='    print("hello " + name)',
        new='    text = f"Hello, {name}!"\n    print(text)',
    ),
    call("terminal", command="python3 -c 'import greet; print(greet.greet(1) == 1)'"),
    call("terminal", command="rm -rf ../old-builds"),
    say(ANSWER, usage=USAGE),
]
AFTER_STEP = ["✓ read_file", "✓ patch", "✓ terminal", "a key, then Enter"]
"""What is on the screen when a step has been taken."""

WIDTH, HEIGHT, MARGIN = 8.4, 19, 14


@dataclass(frozen=True)
class Run:
    """Cells of a row with the same look."""

    column: int
    text: str
    style: Style


Row = tuple[Run, ...]


@dataclass
class Frame:
    """What was on the screen, and for how long the recording shows it."""

    rows: list[Row]
    seconds: float


class Gate:
    """Makes the model wait before each step."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps = iter(steps)
        self._open = threading.Semaphore(0)

    def step(self, _request: Recorded) -> Step:
        self._open.acquire(timeout=screenshots.PATIENCE_S)
        return next(self._steps)

    def release(self) -> None:
        self._open.release()


async def frames(tour: Tour, gate: Gate) -> list[Frame]:
    """Play the scene and take its frames."""
    taken: list[Frame] = []

    async def take(seconds: float) -> None:
        await tour.settle()
        taken.append(Frame(list(_rows(tour)), seconds))

    await tour.sees(f"{MODEL} answers")
    composer = tour.app.chat.composer
    await take(1.2)
    for start in range(0, len(PROMPT), 3):
        composer.insert(PROMPT[start : start + 3])
        await take(0.12)
    await take(0.6)
    await tour.pilot.press("enter")
    await tour.sees(PROMPT)
    await take(0.8)
    for seen in AFTER_STEP:
        gate.release()
        await tour.sees(seen)
        await take(1.6)
    await take(1.6)
    for letter in "keep it":
        await tour.pilot.press("space" if letter == " " else letter)
        await take(0.12)
    await take(0.8)
    await tour.pilot.press("enter")
    await tour.sees("denied")
    await take(0.8)
    gate.release()
    await tour.sees("left it alone", "● ready")
    await take(6.0)
    return taken


def _rows(tour: Tour) -> Iterator[Row]:
    for strip in tour.app.screen._compositor.render_strips():
        column, runs = 0, list[Run]()
        for segment in Segment.simplify(strip):
            style = segment.style or Style()
            if segment.text.strip() or style.bgcolor is not None:
                runs.append(Run(column, segment.text, style))
            column += segment.cell_length
        yield tuple(runs)


# -- the picture -------------------------------------------------------------------------------------


def svg(taken: list[Frame]) -> str:
    """Draw frames as one animated SVG: each row once, shown while it is on the screen."""
    ends: list[float] = []
    for frame in taken:
        ends.append((ends[-1] if ends else 0) + frame.seconds)
    numbers: dict[Row, int] = {}
    spans: dict[tuple[float, float], str] = {}
    uses: list[str] = []
    for y in range(SIZE[1]):
        begin = 0
        for at in range(1, len(taken) + 1):
            row = taken[begin].rows[y]
            if at < len(taken) and taken[at].rows[y] == row:
                continue
            if row:
                number = numbers.setdefault(row, len(numbers))
                span = (ends[begin - 1] if begin else 0, ends[at - 1])
                name = "" if span == (0, ends[-1]) else spans.setdefault(span, f"s{len(spans)}")
                shown = f' class="{name}"' if name else ""
                uses.append(f'<use href="#r{number}" y="{y * HEIGHT}"{shown}/>')
            begin = at
    return _document(numbers, spans, uses, ends[-1])


def _document(
    numbers: dict[Row, int],
    spans: dict[tuple[float, float], str],
    uses: list[str],
    total: float,
) -> str:
    width, height = SIZE[0] * WIDTH + 2 * MARGIN, SIZE[1] * HEIGHT + 2 * MARGIN
    rules = [
        f"@keyframes {name}{{0%{{visibility:{'hidden' if begin else 'visible'}}}"
        f"{begin / total:.3%}{{visibility:visible}}{end / total:.3%}{{visibility:hidden}}}}"
        f".{name}{{animation:{name} {total:.2f}s step-end infinite;"
        f"visibility:{'visible' if end == total else 'hidden'}}}"
        for (begin, end), name in spans.items()
    ]
    rules.append("@media (prefers-reduced-motion:reduce){use{animation:none!important}}")
    rows = [f'<g id="r{number}">{"".join(map(_drawn, row))}</g>' for row, number in numbers.items()]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
            "<title>Hermes changes a file, runs its test and asks before it deletes</title>",
            "<style>text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
            f"white-space:pre}}{''.join(rules)}</style>",
            f'<rect width="100%" height="100%" rx="10" fill="{_background(numbers)}"/>',
            f"<defs>{''.join(rows)}</defs>",
            f'<g transform="translate({MARGIN} {MARGIN})">',
            *uses,
            "</g></svg>\n",
        ]
    )


def _background(rows: dict[Row, int]) -> str:
    """Return the color behind most cells."""
    cells: dict[str, int] = {}
    for run in (run for row in rows for run in row):
        color = _hex(run.style.bgcolor, "#000000")
        cells[color] = cells.get(color, 0) + len(run.text)
    return max(cells, key=lambda color: cells[color])


def _drawn(run: Run) -> str:
    front, back = _hex(run.style.color, "#e0e0e0"), _hex(run.style.bgcolor, "")
    if run.style.reverse:
        front, back = back or "#000000", front
    x, length = run.column * WIDTH, Segment(run.text).cell_length * WIDTH
    drawn = ""
    if back:
        drawn = (
            f'<rect x="{x:.1f}" width="{length + 0.2:.1f}" height="{HEIGHT + 0.2}" fill="{back}"/>'
        )
    if not run.text.strip():
        return drawn
    look = ' font-weight="bold"' if run.style.bold else ""
    look += ' font-style="italic"' if run.style.italic else ""
    look += ' text-decoration="underline"' if run.style.underline else ""
    look += ' opacity=".6"' if run.style.dim else ""
    text = html.escape(run.text)
    return (
        f'{drawn}<text x="{x:.1f}" y="{HEIGHT - 5}" fill="{front}" textLength="{length:.1f}"'
        f' lengthAdjust="spacingAndGlyphs" xml:space="preserve"{look}>{text}</text>'
    )


def _hex(color: Color | None, otherwise: str) -> str:
    if color is None or color.is_default:
        return otherwise
    return color.get_truecolor(DIMMED_MONOKAI).hex


def main() -> None:
    """Write docs/images/tour.svg."""
    gate = Gate(STEPS)
    with screenshots.world() as folder:
        server = ScriptedServer(gate.step, models={MODEL: {"context_length": 32_000}})
        with server as model:
            key = {"OPENAI_BASE_URL": model.openai_url, "OPENAI_API_KEY": "sk-of-the-recording"}

            async def play() -> list[Frame]:
                async with screenshots.running(folder, SIZE, key) as tour:
                    taken = await frames(tour, gate)
                    await tour.app.action_leave()
                    return taken

            taken = asyncio.run(play())
    (ROOT / "docs" / "images" / "tour.svg").write_text(svg(taken), "utf-8")
    print("docs/images/tour.svg: written")


if __name__ == "__main__":
    main()
