"""Programs that change, copy and delete files."""

import itertools
import re
from collections.abc import Callable

from hermes_agent.approval.danger.run import UNKNOWN, Report, Run, Value

Rule = Callable[[Run, Report], None]


def _rm(run: Run, report: Report) -> None:
    recursively = run.has("-r", "-R", "--recursive") or any(value.is_open for value in run.args)
    for target in run.operands():
        report.deletes(target, recursively=recursively)
    if run.has("--no-preserve-root"):
        report.danger("destructive", "Deletes the whole system.", "terminal:rm /")


def _shred(run: Run, report: Report) -> None:
    report.danger("destructive", f"Overwrites beyond recovery: {run.line}.", "terminal:shred")


def _dd(run: Run, report: Report) -> None:
    for value in run.args:
        if value.text.startswith("of="):
            target = value._replace(text=value.text[3:])
            reason, key = f"Overwrites {target.display_text}.", f"terminal:dd {value.display_text}"
            report.danger("destructive", reason, key, loss=report.loss_of(target))
            report.writes(target)


def _truncate(run: Run, report: Report) -> None:
    for target in run.operands(("-s", "--size", "-r", "--reference")):
        reason, loss = f"Cuts off {target.display_text}.", report.loss_of(target)
        report.danger("destructive", reason, "terminal:truncate", loss=loss)
        report.writes(target)


def _disk(run: Run, report: Report) -> None:
    report.danger("destructive", f"Changes a disk: {run.line}.", f"terminal:{run.name}")


def _find(run: Run, report: Report) -> None:
    if any(value.text == "-delete" for value in run.args):
        losses = [report.loss_of(folder) for folder in _start_folders(run)]
        reason, key = f"Deletes what it finds: {run.line}.", "terminal:find -delete"
        for loss in losses if not (all(losses) and _finds_made_anew(run)) else ():
            report.danger("destructive", reason, key, loss=loss)
    for position, value in enumerate(run.args):
        if value.text in ("-exec", "-execdir", "-ok", "-okdir"):
            report.runs(_until_end(run.args[position + 1 :]))
        elif value.text in ("-fprint", "-fprintf", "-fls", "-fprint0"):
            report.writes(run.args[position + 1]) if position + 1 < len(run.args) else None


_MADE_ANEW = frozenset({"*.pyc", "*.pyo", "*.o", "*.class", "*~", "*.swp", ".DS_Store"})
"""Names of files that tools make again."""


def _start_folders(run: Run) -> list[Value]:
    """The folders in which `find` looks: the words before its expression."""
    if run.has("-L", "-H", "-D", "-files0-from") or any(v.text.startswith("-O") for v in run.args):
        return [Value(UNKNOWN)]
    words = itertools.takewhile(lambda value: not value.text.startswith(("-", "(", "!")), run.args)
    return list(words) or [Value(".")]


def _finds_made_anew(run: Run) -> bool:
    """Return whether `find` finds files by a name that stands for what is made again, and no others."""
    words = [value.text for value in run.args[len(_start_folders(run)) :]]
    if words[:2] == ["-type", "f"]:
        words = words[2:]
    return words[:1] == ["-name"] and words[1] in _MADE_ANEW and words[2:] == ["-delete"]


def _until_end(words: tuple[Value, ...]) -> list[Value]:
    """The command of `-exec`; what was found is only known when it runs."""
    command: list[Value] = []
    for value in words:
        if value.text in (";", "+"):
            break
        command.append(Value(value.text.replace("{}", "\0"), value.is_pattern, value.runs))
    return command


def _copy(run: Run, report: Report) -> None:
    """cp, mv, install, ln: the last word, or `-t`, is where it goes; what is moved goes away."""
    operands = run.operands(("-t", "--target-directory", "-S", "--suffix", "-m", "-o", "-g"))
    target = run.value_of("-t", "--target-directory")
    sources = operands
    if target is None and len(operands) > 1:
        target, sources = operands[-1], operands[:-1]
    if target is not None:
        report.writes(target)
    if run.name == "mv":
        for source in sources:
            report.writes(source, removes=True)
        if target is not None and target.text.startswith("/dev/"):
            report.danger("destructive", f"Replaces a device: {run.line}.", "terminal:mv /dev")


def _all_operands(*valued: str) -> Rule:
    def judge(run: Run, report: Report) -> None:
        for target in run.operands(valued):
            report.writes(target)

    return judge


def _mode(run: Run, report: Report) -> None:
    operands = run.operands()
    mode = operands[0].text if operands else ""
    if run.has("-R", "--recursive"):
        report.danger(
            "destructive", f"Changes modes of a whole tree: {run.line}.", "terminal:chmod -R"
        )
    if re.search(r"[+=][rwxXt]*s", mode) or re.fullmatch(r"0?[2467]\d{3}", mode):
        report.danger(
            "privilege", f"Lets a program run as its owner: {run.line}.", "terminal:chmod +s"
        )
    for target in operands[1:]:
        report.writes(target)


def _owner(run: Run, report: Report) -> None:
    report.danger("privilege", f"Changes who owns files: {run.line}.", f"terminal:{run.name}")


_ARCHIVE_RUNS = (
    "--checkpoint-action",
    "--to-command",
    "--use-compress-program",
    "-I",
    "--rsh-command",
)


def _tar(run: Run, report: Report) -> None:
    for option in _ARCHIVE_RUNS:
        value = run.value_of(option)
        if value is not None and value.text not in ("gzip", "zstd", "xz", "bzip2", "pigz", "lz4"):
            report.doubt(f"tar runs another program: {value.display_text}.")
    first = run.args[0].text if run.args else ""
    letters = first if not first.startswith("-") else "".join(run.options())
    folder = run.value_of("-C", "--directory")
    if "x" in letters or run.has("--extract", "--get"):
        report.writes(folder or Value("."))
    archive = run.value_of("-f", "--file") or _archive_of(run)
    if archive is not None and ("c" in letters or run.has("--create")):
        report.writes(archive)


def _archive_of(run: Run) -> Value | None:
    """The word after the letters, the last of which is f: `tar czf x.tgz`."""
    if len(run.args) > 1 and re.fullmatch(r"-?[a-zA-Z]*f", run.args[0].text):
        return run.args[1]
    return None


def _unzip(run: Run, report: Report) -> None:
    report.writes(run.value_of("-d") or Value("."))


def _zip(run: Run, report: Report) -> None:
    if run.has("-TT", "--unzip-command"):
        report.doubt("zip runs another program.")
    for target in run.operands()[:1]:
        report.writes(target)


def _tee(run: Run, report: Report) -> None:
    for target in run.operands():
        report.writes(target)


def _output_option(*names: str) -> Rule:
    def judge(run: Run, report: Report) -> None:
        target = run.value_of(*names)
        if target is not None:
            report.writes(target)

    return judge


_SED_RUNS = re.compile(r"(?:^|[;{}\n\d$/])\s*[eEwW](?:\s|$)|s([^\w\s]).*?\1.*?\1[gpiIm\d]*[ew]")


def _sed(run: Run, report: Report) -> None:
    scripts = run.values_of("-e", "--expression")
    operands = run.operands(("-e", "--expression", "-f", "--file", "-l", "--line-length"))
    if not scripts and not run.has("-f", "--file"):
        scripts, operands = operands[:1], operands[1:]
    for script in scripts:
        if _SED_RUNS.search(script.text):
            report.doubt(f"sed runs programs or writes files here: {script.display_text}.")
    if run.has("-i", "--in-place"):
        for target in operands:
            report.writes(target)


RULES: dict[str, Rule] = {
    "rm": _rm, "unlink": _rm, "trash": _rm, "shred": _shred, "srm": _shred, "wipe": _shred,
    "dd": _dd, "truncate": _truncate, "find": _find, "cp": _copy, "mv": _copy, "install": _copy,
    "ln": _copy, "touch": _all_operands("-d", "-t", "-r"), "mkdir": _all_operands("-m"),
    "mkfifo": _all_operands("-m"), "rmdir": _all_operands(), "chmod": _mode, "chown": _owner,
    "chgrp": _owner, "setfacl": _owner, "chattr": _owner, "tar": _tar, "bsdtar": _tar,
    "unzip": _unzip, "zip": _zip, "tee": _tee, "sed": _sed, "gsed": _sed,
    "sort": _output_option("-o", "--output"), "gcc": _output_option("-o"), "cc": _output_option("-o"),
    "g++": _output_option("-o"), "clang": _output_option("-o"), "patch": _output_option("-o"),
    **dict.fromkeys(
        ("mkfs", "fdisk", "sfdisk", "gdisk", "sgdisk", "parted", "wipefs", "mkswap", "blkdiscard",
         "hdparm", "badblocks", "diskutil", "cryptsetup", "lvremove", "vgremove", "pvremove", "zpool",
         "zfs", "mdadm", "losetup", "tune2fs", "resize2fs", "debugfs"), _disk
    ),
}  # fmt: skip
