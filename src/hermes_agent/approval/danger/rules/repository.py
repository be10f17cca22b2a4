"""git: what it throws away, what it sends, and what it runs."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from hermes_agent.approval.danger import git_settings, places, remotes
from hermes_agent.approval.danger.kinds import UNCONFINED, Access
from hermes_agent.approval.danger.rules.files import Rule
from hermes_agent.approval.danger.run import Report, Run, Value, run_of

_GLOBAL_VALUED = (
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--exec-path",
    "--config-env",
)
_PUSH_VALUED = ("-o", "--push-option", "--receive-pack", "--exec", "--repo")
_CLONE_VALUED = (
    "-b", "--branch", "-o", "--origin", "--depth", "-c", "--config", "-j", "--filter", "-u",
    "--upload-pack", "--reference", "--template",
)  # fmt: skip
_READING = (
    "get", "list", "unset", "edit", "rename-section", "remove-section", "--get", "--get-all",
    "--get-regexp", "--get-urlmatch", "--get-color", "--get-colorbool", "--list", "-l", "--unset",
    "--unset-all", "--rename-section", "--remove-section",
)  # fmt: skip
"""Words of `git config` that set nothing."""
_FETCH_VALUED = ("--depth", "-j", "--upload-pack", "-s", "-X", "-o", "--filter")


def _git(run: Run, report: Report) -> None:
    position = _verb_position(run)
    for setting in run.values_of("-c", "--config-env") if position != 0 else []:
        _setting(setting.text, report)
    if run.value_of("--exec-path") is not None:
        report.doubt("git takes its programs from another folder.")
    if position is None:
        return
    verb = run.args[position].text
    rest = run_of((Value(f"git {verb}"), *run.args[position + 1 :]))
    rest = rest._replace(name=f"git {verb}")
    if (loss := _loss(verb, rest)) is not None:
        _loses(rest, report, "Throws away changes", loss, _folder(run, position))
        return
    rule = _VERBS.get(verb)
    if rule is not None:
        rule(rest, report)
    reach = _REACHING.get(verb)
    if reach is not None:
        reach(rest, report, _folders(run._replace(args=run.args[:position]), report))


def _folders(options: Run, report: Report) -> Sequence[str]:
    """Return the folders that git may work in; none where its repository is named otherwise."""
    if options.has("--git-dir", "--bare"):
        return ()
    steps = [value.text for value in options.values_of("-C")]
    return [os.path.normpath(Path(folder, *steps)) for folder in report.folders]


def _verb_position(run: Run) -> int | None:
    skip = False
    for position, value in enumerate(run.args):
        if skip:
            skip = False
        elif value.text.startswith("-"):
            skip = value.text in _GLOBAL_VALUED
        else:
            return position
    return None


def _loss(verb: str, run: Run) -> str | None:
    """The key of a danger that loses changes of tracked files and nothing else; None for others."""
    words = [value.text for value in run.args]
    if verb == "restore" and not run.has("--staged", "-S", "--source", "-s", "-p", "--patch"):
        return "git restore"
    operands = [text for text in words if not text.startswith("-") or text == "--"]
    is_checkout = verb == "checkout" and (operands[:1] == ["--"] or operands == ["."])
    return "git checkout --" if is_checkout and not run.has("-f", "--force", "-p") else None


def _folder(run: Run, position: int) -> Value | None:
    """The folder that git works in; None when it is told where repository or files are."""
    before = run._replace(args=run.args[:position])
    folders = before.values_of("-C")
    if len(folders) > 1 or before.has("--git-dir", "--work-tree", "--namespace"):
        return None
    return folders[0] if folders else Value(".")


def _setting(text: str, report: Report) -> None:
    name, _, value = text.partition("=")
    if git_settings.runs_program(name, value):
        report.doubt(f"git is told to run a program: {name}={value}.")


def _loses(run: Run, report: Report, what: str, key: str, folder: Value | None = None) -> None:
    """Say what is lost; with a folder, changes of tracked files in it and nothing else."""
    loss = report.loss_of(folder, is_tracked=True) if folder is not None else None
    report.danger("destructive", f"{what}: {run.line}.", f"terminal:{key}", loss=loss)


def _reset(run: Run, report: Report) -> None:
    if run.has("--hard", "--merge", "--keep"):
        _loses(run, report, "Throws away changes", "git reset --hard")


def _clean(run: Run, report: Report) -> None:
    if not run.has("-n", "--dry-run"):
        _loses(run, report, "Deletes files that git does not know", "git clean")


def _checkout(run: Run, report: Report) -> None:
    words = [value.text for value in run.args]
    creates = run.has("-b", "-B", "--orphan", "-t", "--track")
    if "--" in words or run.has("-f", "--force") or ("." in words and not creates):
        _loses(run, report, "Throws away changes", "git checkout --")


def _switch(run: Run, report: Report) -> None:
    if run.has("-f", "--force", "--discard-changes"):
        _loses(run, report, "Throws away changes", "git switch -f")


def _restore(run: Run, report: Report) -> None:
    if not run.has("--staged", "-S") or run.has("--worktree", "-W"):
        _loses(run, report, "Throws away changes", "git restore")


def _push(run: Run, report: Report) -> None:
    operands = run.operands(_PUSH_VALUED)
    forced = any(option.startswith("--force") for option in run.options())
    removes = run.has("-f", "--delete", "-d", "--mirror", "--prune")
    if forced or removes or any(v.text.startswith(("+", ":")) for v in operands[1:]):
        _loses(run, report, "Overwrites or deletes what others have", "git push --force")
    if run.has("--receive-pack", "--exec"):
        report.doubt("git is told which program to run.")


def _sends(run: Run, report: Report, folders: Sequence[str]) -> None:
    operands = run.operands(_PUSH_VALUED)
    remote = run.value_of("--repo") or (operands[0] if operands else None)
    found = remotes.endpoints(folders, remote.text if remote else "", push=True)
    hosts = [endpoint.host for endpoint in found]
    target = ", ".join(hosts) or (remote.display_text if remote else "its remote")
    reason, key = f"Sends commits to {target}: {run.line}.", f"terminal:git push {target}"
    report.danger("exfiltration", reason, key, places.access_to_account("git", hosts))


def _branch(run: Run, report: Report) -> None:
    if run.has("-D") or (run.has("-d", "--delete") and run.has("-f", "--force")):
        _loses(run, report, "Deletes a branch that may not be merged", "git branch -D")


def _stash(run: Run, report: Report) -> None:
    operands = run.operands()
    if operands and operands[0].text in ("drop", "clear"):
        _loses(run, report, "Throws away stashed changes", "git stash drop")


def _history(run: Run, report: Report) -> None:
    words = [value.text for value in run.args]
    harmless = run.name == "git reflog" and (not words or words[0] not in ("expire", "delete"))
    if not harmless and (run.name != "git gc" or run.has("--prune")):
        _loses(run, report, "Rewrites or deletes history", run.name)


def _worktree(run: Run, report: Report) -> None:
    words = [value.text for value in run.operands()]
    if words[:1] == ["remove"] and run.has("-f", "--force"):
        _loses(run, report, "Deletes a working tree", "git worktree remove --force")
    if words[:1] == ["add"] and len(words) > 1:
        report.writes(run.operands()[1])


def _set(name: str, value: str, run: Run, report: Report, folders: Sequence[str]) -> None:
    """Ask for settings by which git may run a program, and give the folder of the repository.

    git makes a new configuration beside the old one, so it needs the folder.
    """
    if git_settings.runs_program(name, value):
        reason = f"Has git run a program from now on: {run.line}."
    elif not git_settings.is_everyday(name, value) and not run.has("--global", "--system"):
        reason = f"Changes a setting by which git may run a program: {run.line}."
    else:
        return
    paths = filter(None, map(remotes.configuration_of, folders))
    access = Access(writes=tuple(dict.fromkeys(str(path.parent) for path in paths)))
    report.danger("outside", reason, "terminal:git config", access)


def _config(run: Run, report: Report, folders: Sequence[str]) -> None:
    operands = run.operands(("-f", "--file", "--type", "--default"))
    operands = operands[1:] if operands and operands[0].text == "set" else operands
    if len(operands) > 1 and operands[0].text not in _READING and not run.has(*_READING):
        _set(operands[0].text, operands[1].text, run, report, folders)
    if run.has("--global", "--system") and (len(operands) > 1 or run.has("--unset", "--add")):
        report.danger(
            "outside",
            f"Changes settings for all repositories: {run.line}.",
            "terminal:git config --global",
            UNCONFINED,
        )


def _clone(run: Run, report: Report) -> None:
    operands = run.operands(_CLONE_VALUED)
    if len(operands) > 1:
        report.writes(operands[1])
    if run.has("-u", "--upload-pack") or any(v.text.startswith("ext::") for v in operands):
        report.doubt("git is told which program to run.")
    for setting in run.values_of("-c", "--config"):
        _setting(setting.text, report)


def _gets(run: Run, report: Report, folders: Sequence[str]) -> None:
    """Ask for the keys that reading over ssh takes; without them it cannot work in a sandbox."""
    operands = run.operands(_CLONE_VALUED if run.name == "git clone" else _FETCH_VALUED)
    found = remotes.endpoints(folders, operands[0].text if operands else "")
    hosts = [endpoint.host for endpoint in found if endpoint.is_ssh]
    if hosts:
        reason = f"Uses your SSH keys to reach {', '.join(hosts)}: {run.line}."
        access = places.access_to_account("ssh", hosts)
        report.danger("secrets", reason, f"{remotes.KEYS_KEY}{hosts}", access)


def _fetch(run: Run, report: Report) -> None:
    if run.has("--upload-pack") or any(value.text.startswith("ext::") for value in run.operands()):
        report.doubt("git is told which program to run.")


def _bisect(run: Run, report: Report) -> None:
    words = [value.text for value in run.args]
    if words[:1] == ["run"]:
        report.runs(run.args[1:])


def _rebase(run: Run, report: Report) -> None:
    for script in run.values_of("-x", "--exec"):
        report.runs_script(script)


def _submodule(run: Run, report: Report) -> None:
    words = [value.text for value in run.operands()]
    if words[:1] == ["foreach"]:
        for script in run.operands()[1:2]:
            report.runs_script(script)
    if words[:1] == ["deinit"] and run.has("-f", "--force", "--all"):
        _loses(run, report, "Deletes submodules", "git submodule deinit")


def _credential(run: Run, report: Report) -> None:
    reason, access = f"Reads stored passwords: {run.line}.", places.access_to_account("git")
    report.danger("secrets", reason, "terminal:git credential", access)


def _grep(run: Run, report: Report) -> None:
    if run.has("-O", "--open-files-in-pager"):
        report.doubt("git opens what it finds in another program.")


def _send_mail(run: Run, report: Report) -> None:
    access = places.access_to_account("git")
    report.danger("exfiltration", f"Sends data away: {run.line}.", f"terminal:{run.name}", access)


def _diff(run: Run, report: Report) -> None:
    target = run.value_of("--output", "-o")
    if target is not None:
        report.writes(target)


_VERBS: dict[str, Rule] = {
    "reset": _reset, "clean": _clean, "checkout": _checkout, "switch": _switch, "restore": _restore,
    "push": _push, "branch": _branch, "stash": _stash, "reflog": _history, "gc": _history,
    "prune": _history, "filter-branch": _history, "filter-repo": _history, "update-ref": _history,
    "replace": _history, "worktree": _worktree, "clone": _clone, "fetch": _fetch,
    "pull": _fetch, "ls-remote": _fetch, "bisect": _bisect, "rebase": _rebase,
    "submodule": _submodule, "credential": _credential, "grep": _grep, "send-email": _send_mail,
    "imap-send": _send_mail, "request-pull": _send_mail, "diff": _diff, "log": _diff, "show": _diff,
    "format-patch": _diff, "archive": _diff,
}  # fmt: skip

_REACHING: dict[str, Callable[[Run, Report, Sequence[str]], None]] = {
    "push": _sends, "config": _config, **dict.fromkeys(("clone", "fetch", "pull", "ls-remote"), _gets),
}  # fmt: skip

RULES: dict[str, Rule] = {"git": _git}
