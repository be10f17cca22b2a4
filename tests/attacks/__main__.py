"""Execute the attacks, or the everyday commands, and print what worked and what was asked.

python -m tests.attacks                    every attack in a sandbox that asks for hosts
python -m tests.attacks --host --only send  some, with no sandbox and nothing asked
python -m tests.attacks --everyday          what developers do all day
"""

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from hermes_core.settings import AgentSettings, ApprovalSettings, Settings, ToolSettings
from tests.attacks.corpus import Attack, attacks, shell
from tests.attacks.everyday import everyday
from tests.attacks.world import world

AGENT = AgentSettings(titles=False, max_steps=0)
GUARDED = Settings(agent=AGENT, tools=ToolSettings(network="ask"))
UNGUARDED = Settings(
    agent=AGENT, tools=ToolSettings(sandbox="host"), approvals=ApprovalSettings(mode="allow")
)
"""Nothing is asked and nothing is confined: what an attack does to a person without protection."""


def _chosen(options: argparse.Namespace) -> Iterator[Attack]:
    if options.everyday:
        commands = [line.command for line in everyday() if shutil.which(line.program)]
        yield Attack("everyday", "everyday", tuple(map(shell, commands)))
        return
    yield from (attack for attack in attacks() if options.only in attack.name)


def main() -> int:
    """Run what was chosen; the status says whether anything worked unasked."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--host", action="store_true", help="no sandbox, nothing asked")
    parser.add_argument("--everyday", action="store_true", help="everyday commands instead")
    parser.add_argument("--only", default="", metavar="TEXT", help="attacks with this in the name")
    options = parser.parse_args()
    verdicts = Counter[tuple[str, str]]()
    settings = UNGUARDED if options.host else GUARDED
    with pytest.MonkeyPatch.context() as patch, world(patch, settings) as place:
        for attack in _chosen(options):
            outcome = place.run(attack.calls)
            verdicts[attack.tier, outcome.verdict] += 1
            for text in (*outcome.damage, *(outcome.asked if options.everyday else ())):
                _print(f"{attack.name}: {text}")
    for (tier, verdict), count in sorted(verdicts.items()):
        _print(f"{tier:10} {verdict:7} {count}")
    return int(any(verdict == "worked" for _, verdict in verdicts))


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
