"""Programs through which data leaves this machine."""

import re

from hermes_agent.approval.danger import places
from hermes_agent.approval.danger.rules.files import Rule
from hermes_agent.approval.danger.run import Report, Run, Value

_HOST = re.compile(r"^(?:[a-zA-Z][a-zA-Z0-9+.-]*://)?(?:[^/@]*@)?(\[[^\]]*\]|[^/:?#]+)(:\d+\b)?")
_BY_SSH = ("ssh", "scp", "sftp", "rsync", "mosh", "ssh-copy-id", "autossh", "sshpass")
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0")
_CURL_VALUED = (
    "-X", "--request", "-H", "--header", "-o", "--output", "-u", "--user", "-A", "--user-agent", "-e",
    "--referer", "-b", "--cookie", "-c", "--cookie-jar", "-x", "--proxy", "-m", "--max-time", "-w",
    "--write-out", "--connect-timeout", "--retry", "-d", "--data", "--data-raw", "--data-binary",
    "--data-ascii", "--data-urlencode", "--json", "-F", "--form", "--form-string", "-T",
    "--upload-file", "-K", "--config", "-E", "--cert", "--key", "--cacert", "--resolve", "--url",
    "-D", "--dump-header", "--output-dir", "-r", "--range", "-C", "--continue-at", "-y", "-Y", "-z",
    "--interface", "--limit-rate", "--unix-socket", "--retry-delay", "--retry-max-time",
)  # fmt: skip
_CURL_SENDS = (
    "-d", "--data", "--data-raw", "--data-binary", "--data-ascii", "--data-urlencode", "--json", "-F",
    "--form", "--form-string", "-T", "--upload-file",
)  # fmt: skip
_HARMLESS_METHODS = ("GET", "HEAD", "OPTIONS")


def host_of(address: Value) -> str:
    """The host that an address names; unknown ones are shown as they stand."""
    found = _HOST.match(address.text)
    return found[1] if found and not address.is_open else address.display_text


def _is_here(addresses: list[Value]) -> bool:
    return bool(addresses) and all(_LOOPBACK.fullmatch(host_of(address)) for address in addresses)


def _tell(run: Run, report: Report, addresses: list[Value], what: str) -> None:
    hosts = ", ".join(dict.fromkeys(host_of(address) for address in addresses)) or "another machine"
    key = f"terminal:{run.name} to {hosts}"
    named = run.value_of("-p" if run.name == "ssh" else "-P")
    port = f":{named.text if named else 22}" if run.name in _BY_SSH else ""
    known = [(found[1] + (found[2] or port)) for a in addresses if (found := _HOST.match(a.text))]
    access = places.access_to_account(run.name, known)
    report.danger("exfiltration", f"{what} {hosts}: {run.line}.", key, access)


def _curl(run: Run, report: Report) -> None:
    addresses = [*run.operands(_CURL_VALUED), *run.values_of("--url")]
    method = run.value_of("-X", "--request")
    sends = [value for name in _CURL_SENDS for value in run.values_of(name)]
    changes = method is not None and method.text.upper() not in _HARMLESS_METHODS
    if (sends or changes) and not _is_here(addresses):
        _tell(run, report, addresses, "Sends data to")
    if any(value.runs for value in run.args):
        _tell(run, report, addresses, "Sends what another command prints to")
    for value in sends:
        report.reads(value._replace(text=re.sub(r"^(?:[^=@]*=)?@", "", value.text)))
    if run.has("-K", "--config"):
        report.doubt("curl takes its instructions from a file.")
    for target in run.values_of("-o", "--output", "--output-dir", "-c", "--cookie-jar", "-D"):
        if target.text != "-":
            report.writes(target)


def _wget(run: Run, report: Report) -> None:
    addresses = run.operands(
        ("-O", "-P", "-o", "-a", "-U", "--header", "-e", "-T", "-t", "-Q", "-i")
    )
    sends = run.has("--post-data", "--post-file", "--body-data", "--body-file")
    method = run.value_of("--method")
    changes = method is not None and method.text.upper() not in _HARMLESS_METHODS
    if (sends or changes) and not _is_here(addresses):
        _tell(run, report, addresses, "Sends data to")
    if any(value.runs for value in run.args):
        _tell(run, report, addresses, "Sends what another command prints to")
    for value in run.values_of("--post-file", "--body-file"):
        report.reads(value)
    for target in run.values_of("-O", "--output-document", "-P", "--directory-prefix", "-o", "-a"):
        if target.text != "-":
            report.writes(target)
    if run.has("-e", "--execute", "--use-askpass"):
        report.doubt(f"wget is given instructions: {run.line}.")


def _httpie(run: Run, report: Report) -> None:
    words = [value.text for value in run.operands(("-a", "--auth", "-o", "--output", "-p", "-s"))]
    method = words[0] if words and words[0].isupper() else ""
    rest = run.operands(("-a", "--auth", "-o", "--output", "-p", "-s"))[1 if method else 0 :]
    items = [w for w in rest[1:] if re.search(r"[=@]", w.text) and "==" not in w.text]
    changes = bool(method) and method not in _HARMLESS_METHODS
    if (items or changes or run.is_fed) and not _is_here(rest[:1]):
        _tell(run, report, rest[:1], "Sends data to")


def _remote(run: Run, report: Report) -> None:
    """scp, sftp, ssh and the like: all of it is elsewhere."""
    operands = run.operands(("-p", "-P", "-i", "-o", "-l", "-F", "-J", "-L", "-R", "-D"))
    if not operands and run.has("-V"):
        return
    remote = [v for v in operands if ":" in v.text or "@" in v.text] or operands[:1]
    _tell(run, report, remote, "Connects to")


def _rsync(run: Run, report: Report) -> None:
    operands = run.operands(
        ("-e", "--rsh", "--exclude", "--include", "--exclude-from", "-f", "--files-from")
    )
    remote = [v for v in operands if re.match(r"(?:[^/]+@)?[^/]*:|rsync://", v.text)]
    if remote:
        _tell(run, report, remote, "Connects to")
    elif operands:
        report.writes(operands[-1])
    if any(option.startswith("--delete") for option in run.options()):
        report.danger(
            "destructive",
            f"Deletes what is not in the source: {run.line}.",
            "terminal:rsync --delete",
        )
    if run.has("-e", "--rsh"):
        report.doubt("rsync runs another program.")


def _socket(run: Run, report: Report) -> None:
    _tell(run, report, run.operands()[:1], "Opens a connection to")


def _sends(run: Run, report: Report) -> None:
    _tell(run, report, run.operands()[:1], "Sends data to")


def _looks_up(run: Run, report: Report) -> None:
    """A name that is made from a command's output carries it out of the machine."""
    if any(value.runs for value in run.args):
        _tell(run, report, run.operands()[:1], "Sends what another command prints to")


RULES: dict[str, Rule] = {
    "curl": _curl, "wget": _wget, "http": _httpie, "https": _httpie, "xh": _httpie, "rsync": _rsync,
    **dict.fromkeys(("scp", "sftp", "ssh", "mosh", "ssh-copy-id", "autossh", "sshpass", "rsh"), _remote),
    **dict.fromkeys(("nc", "ncat", "netcat", "socat", "telnet", "nmap", "tcpdump"), _socket),
    **dict.fromkeys(
        ("ftp", "lftp", "tftp", "ncftp", "rclone", "croc", "wormhole", "ngrok", "cloudflared", "mail",
         "mailx", "sendmail", "mutt", "msmtp", "swaks", "aria2c", "transfer", "bore", "localtunnel"),
        _sends,
    ),
    **dict.fromkeys(("dig", "nslookup", "host", "ping", "ping6", "drill", "whois"), _looks_up),
}  # fmt: skip
