"""Programs that run a script they are given: shells, Python, and languages that are not read here."""

import re
from collections.abc import Callable

from hermes_agent.approval.danger.rules import hermes
from hermes_agent.approval.danger.rules.files import Rule
from hermes_agent.approval.danger.run import Report, Run, Value

_LOOPBACK = re.compile(r"localhost|127\.0\.0\.1|::1")
_STREAMS = ("-", "/dev/stdin", "/proc/self/fd/0", "/dev/fd/0")


def names_script(run: Run, position: int) -> bool:
    """Return whether the word after this option looks like a command line rather than a name."""
    return position + 1 < len(run.args) and bool(re.search(r"\s", run.args[position + 1].text))


def _shell(run: Run, report: Report) -> None:
    position, reads_text, reads_input = _shell_options(run)
    rest = run.args[position:]
    if reads_text and rest:
        report.runs_script(rest[0])
    elif rest and not reads_input and rest[0].text not in _STREAMS:
        report.runs_file(rest[0])
    else:
        _stream(run, report, report.runs_script)


def _shell_options(run: Run) -> tuple[int, bool, bool]:
    """Return where the shell's own options end, and whether they say -c or -s."""
    position, letters = 0, ""
    while position < len(run.args):
        text = run.args[position].text
        if text == "--" or not text.startswith(("-", "+")) or text == "-":
            return position + (text == "--"), "c" in letters, "s" in letters
        if not text.startswith("--"):
            letters += text[1:]
        takes_value = text in ("--rcfile", "--init-file") or re.fullmatch(
            r"[-+][A-Za-z]*[oO]", text
        )
        position += 2 if takes_value else 1
    return position, "c" in letters, "s" in letters


def _stream(run: Run, report: Report, runs: Callable[[Value], None]) -> None:
    """Return what it reads from its input is the script."""
    if run.document is not None:
        runs(run.document)
    elif run.is_fed:
        report.doubt(f"{run.name} runs whatever another command prints.", certain=True)


def _eval(run: Run, report: Report) -> None:
    if run.args:
        joined = " ".join(value.text for value in run.args)
        report.runs_script(Value(joined))


def _source(run: Run, report: Report) -> None:
    for value in run.args[:1]:
        if value.text in _STREAMS:
            _stream(run, report, report.runs_script)
        else:
            report.runs_file(value)


def _trap(run: Run, report: Report) -> None:
    for value in run.operands()[:1]:
        report.runs_script(value)


def _alias(run: Run, report: Report) -> None:
    for value in run.args:
        if "=" in value.text:
            report.runs_script(value._replace(text=value.text.partition("=")[2]))


def _python(run: Run, report: Report) -> None:
    skip = False
    for position, value in enumerate(run.args):
        rest = run.args[position + 1 :]
        if skip:
            skip = False
            continue
        if not value.text.startswith("-") or value.text == "-":
            if value.text in _STREAMS:
                break
            report.runs_python_file(value)
            return
        letter, attached = _python_option(value.text)
        words = ((value._replace(text=attached),) if attached else ()) + rest
        if letter == "c" and words:
            report.runs_python(words[0])
            return
        if letter == "m" and words:
            _python_module(words, report)
            return
        skip = letter in ("W", "X") and not attached
    _stream(run, report, report.runs_python)


def _python_option(text: str) -> tuple[str, str]:
    """The option of a word that takes a value, and what of the value stands in the same word."""
    found = (
        None
        if text.startswith("--")
        else re.match(r"-[bBdEhiIOPqRsSuvVx]*([cmWX])(.*)", text, re.DOTALL)
    )
    return (found[1], found[2]) if found else ("", "")


def _python_module(words: tuple[Value, ...], report: Report) -> None:
    module, rest = words[0].text, words[1:]
    hermes.judge_module(module, report)
    if module in ("pip", "pytest", "twine", "poetry", "pdm", "hatch", "uv"):
        report.runs(words)
    elif module in ("venv", "virtualenv"):
        for value in rest:
            if not value.text.startswith("-"):
                report.writes(value)
    elif module in ("timeit", "cProfile", "pdb", "trace", "code"):
        for value in rest:
            if re.search(r"[()=;]", value.text):
                report.runs_python(value)
    elif module == "http.server" and not any(_LOOPBACK.search(value.text) for value in rest):
        reason = "Shows this folder to everybody in the network."
        report.danger("exfiltration", reason, "terminal:http.server")
    elif words[0].is_open:
        report.doubt("Which module runs is only known when it runs.")


_RISKY = re.compile(
    r"system|\bexec|spawn|popen|child_process|unlink|rmtree|rm_rf|rm_r\b|rmSync|\brmdir|\bremove|delete"
    r"|socket|Net::|https?:|fetch\s*\(|XMLHttp|writeFile|appendFile|createWriteStream|File\.|FileUtils|IO\."
    r"|\bopen\b|`|%x|\bqx\b|\beval\b|process\.env|\bENV\b|getenv|\bfork\b|\bkill\b|chmod|chown|rename"
    r"|file_put_contents|passthru|proc_open|Deno\.|Bun\.|os\.execute|io\.popen|\brequire\s*\(?\s*['\"](?:node:)?"
    r"(?:fs|net|http|https|dgram|tls|vm|worker_threads|cluster|os)\b|import\s*\(|\bimport\s",
    re.IGNORECASE,
)  # fmt: skip
_CODE_OPTIONS = (
    "-e",
    "-E",
    "-r",
    "-p",
    "--eval",
    "--print",
    "-pe",
    "-ne",
    "-ie",
    "-pie",
    "-le",
    "-lne",
    "-ane",
    "-nle",
)


def _foreign(run: Run, report: Report) -> None:
    """perl, ruby, node, php, lua: their code is not read, only searched for risky words."""
    scripts = run.values_of(*_CODE_OPTIONS)
    scripts += [
        following
        for value, following in zip(run.args, run.args[1:], strict=False)
        if re.fullmatch(r"-[a-zA-Z0-9]*[eE]", value.text)
    ]
    if run.document is not None:
        scripts.append(run.document)
    for code in scripts:
        if code.is_open or _RISKY.search(code.text):
            report.doubt(f"{run.name} runs code that may change or send things.")
    if run.is_fed and not scripts and not run.operands():
        report.doubt(f"{run.name} runs whatever another command prints.", certain=True)
    if any(re.fullmatch(r"-[a-zA-Z0-9]*i[a-zA-Z0-9.]*", value.text) for value in run.args):
        for target in run.operands(("-e", "-E"))[1:]:
            report.writes(target)


_AWK_RUNS = re.compile(r"system\s*\(|\|\s*[\"&]|\"\s*\||>\s*[\"(\w$]|getline|@load|/inet/")


def _awk(run: Run, report: Report) -> None:
    operands = run.operands(("-F", "-v", "-f", "--field-separator", "--assign", "--file"))
    for program in operands[:1] if not run.has("-f", "--file") else []:
        risky = re.sub(r"[\w)$\s]>=?\s*[\d$]", "", program.text)
        if program.is_open or _AWK_RUNS.search(risky):
            report.doubt("awk runs programs or writes files here.")


def _editor(run: Run, report: Report) -> None:
    if run.has("-c", "--cmd", "-S", "--eval", "-e", "-es", "-s", "-l", "--load", "-ex", "-x"):
        report.doubt(f"{run.name} is given commands of its own.")
    if any(value.text.startswith("+") for value in run.args):
        report.doubt(f"{run.name} is given commands of its own.")


def _pager(run: Run, report: Report) -> None:
    for script in run.values_of("-P", "--pager", "-H", "--html"):
        report.runs_script(script)
    if any(value.text.startswith("+") for value in run.args):
        report.doubt(f"{run.name} is given commands of its own.")


def _make(run: Run, report: Report) -> None:
    file = run.value_of("-f", "--file", "--makefile")
    if run.has("--eval") or (file is not None and (file.is_open or file.text in _STREAMS)):
        report.doubt("make is given rules on the command line.")
    for value in run.operands(("-C", "-f", "-j", "-I", "-o", "-W")):
        name, equals, text = value.text.partition("=")
        if equals and name in ("SHELL", ".SHELLFLAGS", "MAKEFLAGS"):
            report.doubt(f"make is told to run {text}.")


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "csh", "tcsh"), _shell
    ),
    "eval": _eval, "source": _source, ".": _source, "trap": _trap, "alias": _alias,
    **dict.fromkeys(("python", "pypy", "ipython"), _python),
    **dict.fromkeys(
        ("perl", "ruby", "irb", "node", "nodejs", "php", "lua", "luajit", "tclsh", "expect", "rscript",
         "r", "julia", "groovy", "scala", "elixir", "erl", "ghci", "guile", "osascript", "pwsh",
         "powershell", "jshell", "swift", "ts-node", "tsx"), _foreign
    ),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("vim", "vi", "nvim", "ex", "view", "emacs", "ed", "gdb", "lldb"), _editor),
    **dict.fromkeys(("less", "more", "most", "man"), _pager),
    **dict.fromkeys(("make", "gmake"), _make),
}  # fmt: skip
