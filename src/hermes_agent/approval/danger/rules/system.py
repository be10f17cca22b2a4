"""Programs that change the system, gain privileges, end processes or show secrets."""

import re

from hermes_agent.approval.danger.kinds import UNCONFINED
from hermes_agent.approval.danger.rules.files import Rule
from hermes_agent.approval.danger.run import Report, Run
from hermes_core.secrets import is_secret_name


def _privilege(run: Run, report: Report) -> None:
    report.danger(
        "privilege", f"Changes the system: {run.line}.", f"terminal:{run.name}", UNCONFINED
    )


def _asking_is_fine(*harmless: str) -> Rule:
    """A program that may be asked these things; everything else it does changes the system."""

    def judge(run: Run, report: Report) -> None:
        operands = run.operands()
        verb = operands[0].text if operands else ""
        if verb not in harmless and not (run.has("--version", "--help") and not operands):
            report.danger(
                "privilege",
                f"Changes the system: {run.line}.",
                f"terminal:{run.name} {verb}",
                UNCONFINED,
            )

    return judge


def _mount(run: Run, report: Report) -> None:
    if run.args:
        _privilege(run, report)


def _crontab(run: Run, report: Report) -> None:
    if not run.has("-l"):
        report.danger(
            "privilege",
            f"Changes what runs on a schedule: {run.line}.",
            "terminal:crontab",
            UNCONFINED,
        )


def _sysctl(run: Run, report: Report) -> None:
    if run.has("-w", "--write", "-p", "--load") or any("=" in value.text for value in run.args):
        _privilege(run, report)


def _kill(run: Run, report: Report) -> None:
    targets = [value.text for value in run.args if not re.match(r"-[A-Za-z]|-\d+$|--", value.text)]
    everything = "-1" in [value.text for value in run.args[1:]] or "1" in targets
    if everything:
        report.danger("destructive", f"Ends every process: {run.line}.", "terminal:kill -1")


def _kill_by_name(run: Run, report: Report) -> None:
    report.danger("destructive", f"Ends processes by name: {run.line}.", f"terminal:{run.name}")


def _dump(run: Run, report: Report) -> None:
    """printenv, set, export, declare: alone they show every variable; others they set."""
    for value in run.operands() if run.name not in ("printenv", "set") else ():
        if "=" in value.text:
            report.assigns(value)
    if run.name == "printenv" and run.operands():
        if any(is_secret_name(value.text) or value.is_open for value in run.operands()):
            report.danger("secrets", f"Shows secrets: {run.line}.", "terminal:printenv")
    elif not run.operands():
        plain = run.name == "printenv" or not run.args or run.has("-p", "-x")
        if plain:
            report.danger("secrets", "Shows the environment.", f"terminal:{run.name}")


def _secrets(run: Run, report: Report) -> None:
    report.danger(
        "secrets", f"Reads stored secrets: {run.line}.", f"terminal:{run.name}", UNCONFINED
    )


def _gpg(run: Run, report: Report) -> None:
    if any("secret" in option for option in run.options()):
        _secrets(run, report)


def _openssl(run: Run, report: Report) -> None:
    if any(value.text in ("s_client", "s_server") for value in run.args):
        report.danger(
            "exfiltration", f"Opens a connection: {run.line}.", "terminal:openssl s_client"
        )


def _macos(run: Run, report: Report) -> None:
    report.doubt(f"Steers other programs: {run.line}.")


def _history(run: Run, report: Report) -> None:
    if run.has("-c", "-w"):
        report.danger("destructive", "Deletes the history of commands.", "terminal:history -c")


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("chroot", "unshare", "nsenter", "setcap", "umount", "modprobe", "insmod", "rmmod", "useradd",
         "userdel", "usermod", "adduser", "deluser", "groupadd", "groupdel", "gpasswd", "passwd",
         "chpasswd", "chsh", "visudo", "vipw", "iptables", "ip6tables", "nft", "ufw", "firewall-cmd",
         "shutdown", "reboot", "halt", "poweroff", "init", "telinit", "swapon", "swapoff", "at",
         "batch", "launchctl", "systemd-run", "update-rc.d", "chkconfig", "update-alternatives",
         "ldconfig", "csrutil", "spctl", "dscl", "kextload", "setenforce", "auditctl", "pw",
         "systemd-tmpfiles", "efibootmgr", "grub-install", "update-grub"), _privilege
    ),
    "systemctl": _asking_is_fine(
        "status", "show", "list-units", "list-unit-files", "list-timers", "is-active", "is-enabled",
        "is-failed", "cat", "", "list-dependencies",
    ),
    "service": lambda run, report: (
        None if [v.text for v in run.args][1:] == ["status"] else _privilege(run, report)
    ),
    "loginctl": _asking_is_fine("", "list-sessions", "show-session", "session-status"),
    "hostnamectl": _asking_is_fine("", "status"),
    "timedatectl": _asking_is_fine("", "status", "show", "list-timezones"),
    "rc-service": _privilege,
    "mount": _mount, "crontab": _crontab, "sysctl": _sysctl, "kill": _kill,
    "pkill": _kill_by_name, "killall": _kill_by_name, "skill": _kill_by_name,
    **dict.fromkeys(("printenv", "set", "export", "declare", "typeset", "local", "readonly"), _dump),
    "gpg": _gpg, "gpg2": _gpg, "openssl": _openssl, "history": _history,
    **dict.fromkeys(("security", "secret-tool", "pass", "gopass", "op", "bw", "vault", "ssh-add",
                     "keyctl", "kwallet-query"), _secrets),
    **dict.fromkeys(("osascript", "xdotool", "dbus-send", "gdbus", "busctl", "qdbus"), _macos),
}  # fmt: skip
