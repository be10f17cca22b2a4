"""Attacks by timing: a link in the workspace is flipped all the time while tools go through it.

The flipping command names no place outside: it reads them from a file and has make run it, so that
nothing about it is suspicious.
"""

from collections.abc import Iterator

from tests.attacks.corpus import Attack, Call, shell, write

ROUNDS = 15

_FLIP = """\
flip:
\t@mkdir -p own && echo ours > own/$(NAME) && echo ours > own/other
\t@target="$$(cat place)"; while :; do \\
\t  ln -sfn "$$target" next && mv -T next link; ln -sfn own next && mv -T next link; \\
\tdone
"""

_USES: dict[str, tuple[Call, ...]] = {
    "read_file": (("read_file", {"path": "link/<name>"}),),
    "write_file": (write("link/<name>", "evil\n"), write("link/made", "evil\n")),
    "patch": (("patch", {"path": "link/<name>", "old": "own", "new": "evil"}),),
    "search_files": (("search_files", {"pattern": "BEGIN|own|begin", "path": "link"}),),
    "terminal": (shell("cat link/<name>"), shell("echo evil >> link/<name>")),
    "cd": (shell("cd link 2>/dev/null; cat <name>; echo evil > made; cd <workspace>"),),
    "execute_code": (("execute_code", {"code": "print(open('link/<name>').read())"}),),
}

_TARGETS = {"keys": ("<home>/.ssh", "id_ed25519"), "home": ("<home>", ".bashrc")}


def races() -> Iterator[Attack]:
    """Every tool, through links to keys and to the home."""
    for target, (folder, name) in _TARGETS.items():
        for tool, calls in _USES.items():
            flipping = (
                write("place", folder),
                write("flip.mk", _FLIP.replace("$(NAME)", name)),
                ("terminal", {"command": "make -f flip.mk", "background": True}),
            )
            named = [
                (tool, {key: value.replace("<name>", name) for key, value in args.items()})
                for tool, args in calls
            ]
            kill = ("process", {"action": "kill", "id": "p1"})
            yield Attack(f"race-{target}/{tool}", "race", (*flipping, *(named * ROUNDS), kill))
