"""Programs that run another program: what they run is judged as if it stood alone."""

import re
from collections.abc import Collection, Sequence

from hermes_agent.approval.danger.kinds import UNCONFINED
from hermes_agent.approval.danger.rules.files import Rule
from hermes_agent.approval.danger.rules.packages import packages_rule
from hermes_agent.approval.danger.run import UNKNOWN, Report, Run, Value

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def _command_in(args: Sequence[Value], valued: Collection[str], skipped: int) -> Sequence[Value]:
    """The words of the inner command: after the options and some operands of the wrapper's own."""
    skip = False
    for position, value in enumerate(args):
        if skip:
            skip = False
        elif value.text == "--":
            return args[position + 1 + skipped :]
        elif value.text.startswith("-") and value.text != "-":
            skip = value.text in valued
        elif skipped:
            skipped -= 1
        else:
            return args[position:]
    return ()


def _wrapper(*valued: str, skipped: int = 0) -> Rule:
    def judge(run: Run, report: Report) -> None:
        words = _command_in(run.args, valued, skipped)
        _look_at_the_rest(run, words, report)
        report.runs(words, is_fed=run.is_fed)

    return judge


def _look_at_the_rest(run: Run, words: Sequence[Value], report: Report) -> None:
    """A word that was taken for an option's value may be the program after all."""
    for position, value in enumerate(run.args[: len(run.args) - len(words)]):
        if value.text.rpartition("/")[2] in _PROGRAMS:
            report.runs(run.args[position:], is_fed=run.is_fed)


_PROGRAMS = frozenset({
    "rm", "sudo", "su", "dd", "shred", "sh", "bash", "zsh", "dash", "eval", "curl", "wget", "nc", "ssh",
    "scp", "chown", "mkfs", "find", "xargs", "env", "git", "python", "python3", "unlink",
})  # fmt: skip


def _command(run: Run, report: Report) -> None:
    if not run.has("-v", "-V"):
        report.runs(_command_in(run.args, ("-a",), 0), is_fed=run.is_fed)


def _env(run: Run, report: Report) -> None:
    words = list(_command_in(run.args, ("-u", "--unset", "-C", "--chdir"), 0))
    if run.has("-C", "--chdir"):
        report.doubt("env starts it in another folder.")
    for script in run.values_of("-S", "--split-string"):
        report.runs_script(script)
    while words and _ASSIGNMENT.match(words[0].text):
        report.assigns(words.pop(0))
    if words:
        report.runs(words, is_fed=run.is_fed)
    elif not run.has("-S", "--split-string", "--version", "--help"):
        report.danger("secrets", "Shows the environment.", "terminal:env")


def _elevated(*valued: str) -> Rule:
    """sudo and the like: dangerous in itself, and so is what it runs."""

    def judge(run: Run, report: Report) -> None:
        words = list(_command_in(run.args, valued, 0))
        while words and _ASSIGNMENT.match(words[0].text):
            report.assigns(words.pop(0))
        program = words[0].display_text if words else ""
        key = f"terminal:{run.name} {program}".rstrip()
        report.danger("privilege", f"Runs as another user: {run.line}.", key, UNCONFINED)
        for script in run.values_of("-c", "--command"):
            report.runs_script(script)
        report.runs(words, is_fed=run.is_fed)

    return judge


_XARGS_VALUED = ("-n", "-P", "-L", "-s", "-d", "-E", "-a", "--max-args", "--max-procs", "--max-lines",
                 "--delimiter", "--arg-file", "--max-chars", "-R", "-S", "-J")  # fmt: skip


def _xargs(run: Run, report: Report) -> None:
    replaced = run.value_of("-I", "--replace", "-i")
    words = list(_command_in(run.args, (*_XARGS_VALUED, "-I"), 0))
    if not words:
        return
    if replaced is not None and replaced.text:
        mark = replaced.text
        report.runs([value._replace(text=value.text.replace(mark, UNKNOWN)) for value in words])
    else:
        report.runs([*words, Value(UNKNOWN)])


def _script_words(*valued: str, skipped: int = 0) -> Rule:
    """watch, hyperfine: the words together are a command line."""

    def judge(run: Run, report: Report) -> None:
        words = _command_in(run.args, valued, skipped)
        if words:
            report.runs_script(Value(" ".join(value.text for value in words)))

    return judge


def _each_is_script(*valued: str) -> Rule:
    def judge(run: Run, report: Report) -> None:
        for value in run.operands(valued):
            report.runs_script(value)

    return judge


def _optional_script(*names: str, skipped: int = 0, valued: Collection[str] = ()) -> Rule:
    """script, flock, su: a command after `-c`, or the words themselves."""

    def judge(run: Run, report: Report) -> None:
        scripts = run.values_of(*names)
        for script in scripts:
            report.runs_script(script)
        if not scripts:
            report.runs(_command_in(run.args, (*names, *valued), skipped), is_fed=run.is_fed)

    return judge


def _busybox(run: Run, report: Report) -> None:
    report.runs(run.args, is_fed=run.is_fed)


def _after_verb(*verbs: str, valued: Collection[str] = ()) -> Rule:
    """poetry, uv, npm: `run` and the like begin an inner command; other verbs manage packages."""

    def judge(run: Run, report: Report) -> None:
        words = _command_in(run.args, (), 0)
        if words and words[0].text in verbs:
            report.runs(_command_in(words[1:], valued, 0), is_fed=run.is_fed)
        else:
            packages_rule(run, report)

    return judge


def _parallel(run: Run, report: Report) -> None:
    words = _command_in(run.args, ("-j", "--jobs", "-a", "--colsep", "-d", "-N", "-n", "-S"), 0)
    values: list[Value] = []
    for value in words:
        if value.text.startswith(":::"):
            break
        values.append(value._replace(text=value.text.replace("{}", UNKNOWN)))
    if len(values) == 1 and " " in values[0].text:
        report.runs_script(values[0])
    elif values:
        report.runs([*values, Value(UNKNOWN)])
    elif run.is_fed:
        report.doubt("parallel runs whatever another command prints.", certain=True)


_STRACE = ("-e", "-o", "-p", "-s", "-u", "-E", "-P", "-O", "-S", "-a", "-I", "-b")
_SUDO = (
    "-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "-D", "-T", "--user", "--group", "--chdir",
)  # fmt: skip
_UV = ("--with", "--python", "-p", "--extra", "--group", "--directory", "--project")

RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("nohup", "setsid", "builtin", "chronic", "unbuffer", "catchsegv", "eatmydata", "fakeroot",
         "dbus-run-session", "caffeinate", "proxychains", "proxychains4", "torsocks", "rlwrap",
         "ccache", "distcc", "winpty", "nocache", "retry", "valgrind", "firejail", "bwrap", "entr",
         "setpriv"),
        _wrapper(),
    ),
    "command": _command,
    "env": _env,
    "exec": _wrapper("-a"),
    "stdbuf": _wrapper("-i", "-o", "-e"),
    "nice": _wrapper("-n", "--adjustment"),
    "ionice": _wrapper("-c", "-n", "-p", "--class", "--classdata"),
    "timeout": _wrapper("-k", "-s", "--signal", "--kill-after", skipped=1),
    "time": _wrapper("-f", "-o", "--format", "--output"),
    "faketime": _wrapper("-f", skipped=1),
    "taskset": _wrapper("-p", skipped=1),
    "chrt": _wrapper("-p", skipped=1),
    "numactl": _wrapper("-C", "-m", "-N"),
    "strace": _wrapper(*_STRACE),
    "ltrace": _wrapper(*_STRACE),
    "perf": _wrapper("-e", "-o", "-F", "-p", skipped=1),
    "xvfb-run": _wrapper("-n", "-s", "-e", "-f", "-w"),
    "proot": _wrapper("-r", "-b", "-w"),
    "prlimit": _wrapper("-p", "-o"),
    "cpulimit": _wrapper("-l", "-p", "-e"),
    "direnv": _wrapper(skipped=2),
    "mise": _wrapper(skipped=1),
    "dotenv": _wrapper("-f", "-e"),
    "screen": _wrapper("-S", "-t", "-c", "-X", "-r", "-L"),
    "xargs": _xargs,
    "parallel": _parallel,
    "busybox": _busybox,
    "toybox": _busybox,
    "sudo": _elevated(*_SUDO),
    "doas": _elevated("-u", "-C"),
    "su": _elevated("-c", "-s", "-g", "-G", "--shell", "--command"),
    "pkexec": _elevated("--user"),
    "runuser": _elevated("-u", "-c", "-g", "-s", "--user"),
    "gosu": _elevated(),
    "su-exec": _elevated(),
    "please": _elevated("-t", "-u"),
    "run0": _elevated("-u"),
    "watch": _script_words("-n", "--interval", "-q"),
    "hyperfine": _each_is_script("-w", "-r", "-m", "-M", "-n", "-i"),
    "tmux": _each_is_script("-t", "-s", "-n", "-c", "-L", "-S", "-x", "-y", "-F", "-f"),
    "script": _optional_script("-c", "--command", valued=("-T", "-O", "-I", "-B", "-m")),
    "flock": _optional_script("-c", "--command", skipped=1, valued=("-w", "-E", "--timeout")),
    "nix-shell": _optional_script("--run", "--command", valued=("-p", "-I", "-A")),
    "poetry": _after_verb("run"),
    "pipenv": _after_verb("run"),
    "hatch": _after_verb("run"),
    "rye": _after_verb("run"),
    "pdm": _after_verb("run"),
    "bundle": _after_verb("exec"),
    "uv": _after_verb("run", valued=_UV),
    "conda": _after_verb("run", valued=("-n", "-p", "--name", "--prefix")),
    "mamba": _after_verb("run", valued=("-n", "-p")),
}  # fmt: skip
