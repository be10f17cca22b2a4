"""The rule of each program; a program without one may run, unless it seems to run another."""

import re

from hermes_agent.approval.danger.rules import (
    files,
    hermes,
    interpreters,
    network,
    packages,
    repository,
    services,
    system,
    wrappers,
)
from hermes_agent.approval.danger.rules.interpreters import names_script
from hermes_agent.approval.danger.run import Report, Run, Value

RULES = {
    **files.RULES,
    **hermes.RULES,
    **system.RULES,
    **network.RULES,
    **services.RULES,
    **packages.RULES,
    **repository.RULES,
    **interpreters.RULES,
    **wrappers.RULES,
}

_VERSION = re.compile(r"[-.]?\d[\d.]*$")
_SHOWS_NO_CONTENT = frozenset({
    "ls", "test", "[", "[[", "stat", "file", "touch", "mkdir", "rmdir", "rm", "chmod", "cd", "pushd",
    "du", "wc", "echo", "printf", "which", "type", "command", "basename", "dirname", "realpath",
    "readlink", "pwd", "true", "false", ":", "exit", "return", "export", "set", "unset", "shift",
})  # fmt: skip
_ONLY_NAMES = frozenset(
    {"add", "commit", "rm", "mv", "check-ignore", "status", "log", "ls-files", "tag"}
)
"""Of git: these show no file's content."""
_WORTH_A_LOOK = frozenset({
    "rm", "sudo", "su", "doas", "dd", "shred", "sh", "bash", "zsh", "dash", "ksh", "eval", "curl",
    "wget", "nc", "ncat", "ssh", "scp", "chmod", "chown", "kill", "systemctl", "mount", "find",
    "xargs", "env", "git", "python", "python3", "perl", "ruby", "node", "mkfs", "unlink", "truncate",
})  # fmt: skip
_TAKES_WORDS = frozenset({
    "grep", "egrep", "fgrep", "rg", "ag", "ack", "echo", "printf", "which", "whereis", "type", "man",
    "whatis", "apropos", "info", "help", "cat", "ls", "head", "tail", "less", "more", "wc", "test",
    "[", "[[", "basename", "dirname", "pytest", "make", "cd", "pushd", "mkdir", "touch", "cp", "mv",
    "read", "export", "declare", "local", "readonly", "typeset", "unset", "return", "exit", "shift",
    "hash", "alias", "unalias", "complete", "compgen", "getent", "id", "groups", "pgrep", "ps",
})  # fmt: skip
"""Programs for which such a name is only a word."""


def judge(run: Run, program: Value, report: Report) -> None:
    """Tell what is dangerous about a run."""
    name = base_name(run.name)
    hermes.judge_words(run, report)
    rule = RULES.get(name)
    if rule is not None:
        rule(run, report)
    elif name not in _TAKES_WORDS:
        _judge_unknown(run, report)
    if "/" in program.text:
        report.runs_file(program)


def base_name(name: str) -> str:
    """The name a rule goes by: `python3.12` is python, `mkfs.ext4` is mkfs."""
    name = name.lower()
    if name in RULES or name in _TAKES_WORDS:
        return name
    if name.startswith("mkfs."):
        return "mkfs"
    return _VERSION.sub("", name)


def _judge_unknown(run: Run, report: Report) -> None:
    """A program nobody knows may run what its words say."""
    for position, value in enumerate(run.args):
        if base_name(value.text.rpartition("/")[2]) in _WORTH_A_LOOK:
            report.runs(run.args[position:])
            return
        if value.text in ("-c", "--command", "-e", "--eval", "--exec") and names_script(
            run, position
        ):
            report.runs_script(run.args[position + 1])


def judge_assignment(name: str, value: Value, report: Report) -> None:
    """Tell what is dangerous about setting a variable for what follows."""
    hermes.judge_variable(name, report)
    if name in _LOADERS:
        report.doubt(f"{name} makes other programs load code.")
    elif name in _COMMANDS and value.text:
        report.runs_script(value)


_LOADERS = frozenset({
    "LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "PYTHONSTARTUP",
    "PERL5OPT", "RUBYOPT", "NODE_OPTIONS", "SHELLOPTS", "BASHOPTS", "PERL5DB", "BASH_FUNC",
})  # fmt: skip
_COMMANDS = frozenset({
    "PROMPT_COMMAND", "PS4", "PAGER", "GIT_PAGER", "MANPAGER", "LESSOPEN", "EDITOR", "VISUAL",
    "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_SSH_COMMAND", "GIT_SSH", "GIT_EXTERNAL_DIFF",
    "GIT_ASKPASS", "SSH_ASKPASS", "GIT_PROXY_COMMAND", "BROWSER", "RSYNC_RSH",
})  # fmt: skip


def reveals_content(run: Run) -> bool:
    """Return whether a file that is named to this program may be shown or copied by it."""
    if run.name == "git":
        operands = run.operands(("-C", "-c"))
        return not operands or operands[0].text not in _ONLY_NAMES
    return run.name not in _SHOWS_NO_CONTENT
