"""Programs that install packages: code from elsewhere, which runs when it is installed or used."""

from hermes_agent.approval.danger import places
from hermes_agent.approval.danger.kinds import UNCONFINED
from hermes_agent.approval.danger.rules.files import Rule
from hermes_agent.approval.danger.run import Report, Run

_INSTALLS = frozenset({
    "install", "i", "add", "ci", "upgrade", "update", "uninstall", "remove", "rm", "sync", "tap",
    "reinstall", "get", "dist-upgrade", "full-upgrade", "purge", "autoremove", "erase", "localinstall",
    "build-dep", "link", "global", "require", "bundle",
})  # fmt: skip
_RUNS_FROM_ELSEWHERE = frozenset({"dlx", "exec", "x", "create", "init"})
_PUBLISHES = frozenset({"publish", "push", "upload", "yank", "unpublish", "deprecate", "owner"})


def _packages(*, is_system: bool = False) -> Rule:
    def judge(run: Run, report: Report) -> None:
        words = [
            value.text for value in run.operands(("-C", "--prefix", "--cwd", "--project", "-p"))
        ]
        verb = words[0] if words else "install" if run.name == "yarn" else ""
        verbs = [verb, *(words[1:2] if verb in ("pip", "tool", "global", "workspace") else [])]
        _tell(run, report, verbs, is_system=is_system, more=len(words) > 1)

    return judge


packages_rule = _packages()
"""The rule of a program that installs for its user."""


def _tell(run: Run, report: Report, verbs: list[str], *, is_system: bool, more: bool) -> None:
    name = run.name
    for verb in verbs:
        key = f"terminal:{name} {verb}"
        if verb in _INSTALLS and is_system:
            report.danger("privilege", f"Changes what is installed: {run.line}.", key, UNCONFINED)
        elif verb in _INSTALLS:
            report.danger("remote_code", f"Installs code from elsewhere: {run.line}.", key)
        elif verb in _PUBLISHES:
            report.danger(
                "exfiltration", f"Publishes: {run.line}.", key, places.access_to_account(name)
            )
        elif verb in _RUNS_FROM_ELSEWHERE and name in ("npm", "pnpm", "yarn", "bun") and more:
            report.danger("remote_code", f"Runs code from elsewhere: {run.line}.", key)


def _pacman(run: Run, report: Report) -> None:
    if any(value.text.startswith(("-S", "-R", "-U")) for value in run.args):
        report.danger(
            "privilege", f"Changes what is installed: {run.line}.", "terminal:pacman", UNCONFINED
        )


def _fetches_and_runs(run: Run, report: Report) -> None:
    operands = run.operands(("-p", "--package", "--python", "--from", "--with"))
    if operands:
        key = f"terminal:{run.name} {operands[0].display_text}"
        report.danger("remote_code", f"Runs code from elsewhere: {run.line}.", key)


def _pipx(run: Run, report: Report) -> None:
    words = run.operands(("--spec", "--python"))
    if words and words[0].text == "run":
        report.danger("remote_code", f"Runs code from elsewhere: {run.line}.", "terminal:pipx run")
    else:
        packages_rule(run, report)


def _uploads(run: Run, report: Report) -> None:
    if run.operands() and run.operands()[0].text != "check":
        report.danger(
            "exfiltration",
            f"Publishes: {run.line}.",
            f"terminal:{run.name}",
            places.access_to_account(run.name),
        )


def _manual(run: Run, report: Report) -> None:
    if run.has("-i", "--install", "-U", "--upgrade", "-e", "--erase", "-r", "-P", "--purge"):
        report.danger(
            "privilege",
            f"Changes what is installed: {run.line}.",
            f"terminal:{run.name}",
            UNCONFINED,
        )


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("pip", "npm", "pnpm", "yarn", "bun", "gem", "cargo", "go", "micromamba",
         "composer", "luarocks", "cpan", "cpanm", "deno", "mix", "stack",
         "cabal", "opam", "nimble", "dotnet", "nuget", "easy_install", "rustup", "sdk", "asdf", "nvm"),
        _packages(),
    ),
    **dict.fromkeys(
        ("apt", "apt-get", "aptitude", "dnf", "yum", "zypper", "apk", "snap", "flatpak", "brew", "port",
         "emerge", "nix-env", "xbps-install", "pkg", "choco", "scoop", "winget"),
        _packages(is_system=True),
    ),
    "pacman": _pacman, "yay": _pacman, "paru": _pacman, "dpkg": _manual, "rpm": _manual,
    **dict.fromkeys(("npx", "uvx", "bunx", "pnpx"), _fetches_and_runs),
    "twine": _uploads, "pipx": _pipx,
}  # fmt: skip
