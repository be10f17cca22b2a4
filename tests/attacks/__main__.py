"""Execute attacks or everyday commands through the agent, and print what worked and what was asked.

python -m tests.attacks                     every attack, in the default configuration
python -m tests.attacks --host --only send  some, with no sandbox and nothing asked
python -m tests.attacks --sandbox landlock  in this sandbox; --part 2/8 runs an eighth
python -m tests.attacks --blind             nothing is asked about commands: what the sandbox alone holds
python -m tests.attacks --everyday          what developers do all day, beside a run without a sandbox
python -m tests.attacks --list FILE         commands of yours: lines, or `code` fields of YAML or JSON
"""

import argparse
import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from hermes_agent.tools import execute_code, process, terminal
from hermes_core.errors import ConfigError
from hermes_core.settings import AgentSettings, ApprovalSettings, Settings, ToolSettings
from tests.attacks.command_list import commands_of
from tests.attacks.corpus import ACCEPTED, Attack, attacks
from tests.attacks.everyday import everyday
from tests.attacks.races import races
from tests.attacks.world import Ran, lend_tools, path_of_tools, world

AGENT = AgentSettings(titles=False, max_steps=0)
UNGUARDED = Settings(
    agent=AGENT, tools=ToolSettings(sandbox="host"), approvals=ApprovalSettings(mode="allow")
)
"""Nothing is asked and nothing is confined: what happens to a person without protection."""
NOT_HERE = 77
"""The exit status where the sandbox does not work on this machine."""
_TIMEOUT_S = 10.0
"""For commands that nobody here wrote; many wait for input."""


def _guarded(sandbox: str) -> Settings:
    return Settings(agent=AGENT, tools=ToolSettings(sandbox=sandbox))  # pyright: ignore[reportArgumentType]


def main() -> int:
    """Run what was chosen; the status says whether anything harmful worked unasked."""
    options = _arguments()
    settings = UNGUARDED if options.host else _guarded(options.sandbox)
    try:
        if options.everyday:
            return _compare(settings)
        return _attack(options, settings)
    except ConfigError as error:
        _print(str(error))
        return NOT_HERE


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", action="store_true", help="no sandbox, nothing asked")
    parser.add_argument("--blind", action="store_true", help="see nothing dangerous in commands")
    parser.add_argument("--sandbox", default="auto", help="instead of the default, auto")
    parser.add_argument("--everyday", action="store_true", help="everyday commands instead")
    parser.add_argument("--list", type=Path, metavar="FILE", help="commands of a file instead")
    parser.add_argument("--only", default="", metavar="TEXT", help="attacks with this in the name")
    parser.add_argument("--part", default="1/1", metavar="N/M", help="every Mth, from the Nth on")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[Attack]:
    if options.list is not None:
        found = [
            Attack(command, "list", (("terminal", {"command": command, "timeout": _TIMEOUT_S}),))
            for command in commands_of(options.list)
        ]
    else:
        found = [*attacks(), *races()]
    first, _, step = options.part.partition("/")
    return [attack for attack in found if options.only in attack.name][int(first) - 1 :: int(step)]


def _attack(options: argparse.Namespace, settings: Settings) -> int:
    verdicts = Counter[tuple[str, str]]()
    is_foreign = options.list is not None
    with (
        pytest.MonkeyPatch.context() as patch,
        world(patch, settings, watches_system=is_foreign) as place,
    ):
        if options.blind:
            _blind(patch)
        for attack in _chosen(options):
            outcome = place.run(attack.calls)
            if options.blind:
                outcome = outcome._replace(damage=place.outside(outcome.damage))
            is_known = attack.name in ACCEPTED and not place.outside(outcome.damage)
            verdict = "known" if is_known and outcome.damage else outcome.verdict
            verdicts[attack.tier, verdict] += 1
            if is_foreign:
                _print(f"{verdict:7} {attack.name}")
            for text in outcome.damage:
                _print(f"{attack.name}: {text}")
    for (tier, verdict), count in sorted(verdicts.items()):
        _print(f"{tier:10} {verdict:7} {count}")
    return int(any(verdict == "worked" for _, verdict in verdicts))


def _blind(patch: pytest.MonkeyPatch) -> None:
    """Have the rules for commands and code see nothing: what is left is the sandbox."""
    for tool in (terminal, process, execute_code):
        for name in ("of_command", "of_code"):
            patch.setattr(tool, name, lambda *_: [], raising=False)


def _compare(settings: Settings) -> int:
    with pytest.MonkeyPatch.context() as patch, world(patch, settings) as place:
        patch.setenv("PATH", path_of_tools(place.home))
        place.make()
        lend_tools(place.home)
        commands = [line.command for line in everyday() if shutil.which(line.program)]
        missing = sorted({line.program for line in everyday() if not shutil.which(line.program)})
        ours = place.run_everyday(commands)
    with pytest.MonkeyPatch.context() as patch, world(patch, UNGUARDED) as place:
        patch.setenv("PATH", path_of_tools(place.home))
        bare = place.run_everyday(commands)
    prompts = differing = 0
    for command, confined, free in zip(commands, ours, bare, strict=True):
        prompts += bool(confined.prompts)
        differing += not _is_same(confined, free)
        for text in confined.prompts:
            _print(f"asked {command}: {text}")
        if not _is_same(confined, free):
            _print(f"differs {command}: {_difference(confined, free)}")
    _print(f"not installed: {', '.join(missing) or 'nothing'}")
    _print(f"commands {len(commands)}\nasked {prompts}\ndiffering {differing}")
    return 0


def _is_same(confined: Ran, free: Ran) -> bool:
    return (confined.exit_code, confined.changes) == (free.exit_code, free.changes)


def _difference(confined: Ran, free: Ran) -> str:
    if confined.exit_code != free.exit_code:
        codes = f"{confined.exit_code} and not {free.exit_code}"
        return f"ended with {codes}: {confined.result.strip()[-300:]!r}"
    return f"other files: {sorted(confined.changes ^ free.changes)}"


def _print(text: str) -> None:
    sys.stdout.write(text + os.linesep)


if __name__ == "__main__":
    sys.exit(main())
