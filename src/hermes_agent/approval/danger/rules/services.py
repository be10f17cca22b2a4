"""Programs that act on containers, clusters, clouds, hosted repositories and databases."""

import re

from hermes_agent.approval.danger import places
from hermes_agent.approval.danger.kinds import UNCONFINED
from hermes_agent.approval.danger.rules.files import Rule
from hermes_agent.approval.danger.run import Report, Run, Value

_LOSES_DATA = re.compile(
    r"\bdrop\s+(?:table|database|schema|index|view|user|role|collection|keyspace|materialized)\b"
    r"|\btruncate\s+(?:table\s+)?\w|\bdelete\s+from\s+[\w.\"`]+\s*(?:;|$)|\bupdate\s+\S+\s+set\s+[^;]*$(?<!where)"
    r"|\bflush(?:all|db)\b|dropDatabase|\.drop\(\)|deleteMany\(\s*\{\s*\}",
    re.IGNORECASE,
)


def _database(run: Run, report: Report) -> None:
    texts = [*run.args, *([run.document] if run.document else [])]
    if any(_LOSES_DATA.search(value.text) for value in texts):
        report.danger("destructive", f"Deletes data: {run.line}.", f"terminal:{run.name} drop")
    if run.is_fed and run.document is None:
        report.doubt(f"{run.name} is fed what another command prints.")
    for value in texts:
        if re.search(r"(?:^|\n|\\;|;)\s*(?:\\!|\.shell|\.system|!)", value.text):
            report.doubt(f"{run.name} runs another program.")


def _drops(run: Run, report: Report) -> None:
    report.danger("destructive", f"Deletes data: {run.line}.", f"terminal:{run.name}")


_CONTAINER_LOSES = frozenset({"rm", "rmi", "prune", "kill", "down", "stop"})
_WORTH_A_LOOK = frozenset(
    {"rm", "sh", "bash", "dd", "psql", "mysql", "redis-cli", "mongosh", "curl"}
)
_CONTAINER_SENDS = frozenset({"push", "login"})
_CONTAINER_OPENS = (
    "--privileged", "--pid", "--net", "--network", "--cap-add", "--device", "-v", "--volume", "--mount",
    "--security-opt", "--userns", "--ipc",
)  # fmt: skip


def _container(run: Run, report: Report) -> None:
    words = [
        value.text for value in run.operands(("-H", "--host", "--context", "-f", "--file", "-p"))
    ]
    verbs = set(words[:2])
    if run.has("--rm", *_CONTAINER_OPENS) and run.has(*_CONTAINER_OPENS):
        report.danger(
            "privilege",
            f"Opens this machine to a container: {run.line}.",
            "terminal:docker -v",
            UNCONFINED,
        )
    if verbs & _CONTAINER_LOSES:
        report.danger(
            "destructive",
            f"Deletes containers or images: {run.line}.",
            "terminal:docker rm",
            UNCONFINED,
        )
    for position, value in enumerate(run.args[1:] if verbs & {"run", "exec"} else (), 1):
        if value.text.rpartition("/")[2] in _WORTH_A_LOOK:
            report.runs(run.args[position:])
            break
    if verbs & _CONTAINER_SENDS:
        reason = f"Sends an image away: {run.line}."
        report.danger("exfiltration", reason, "terminal:docker push", UNCONFINED)


def _acts_outside(*harmless: str) -> Rule:
    """A program for an account elsewhere: anything but these verbs may change something there."""
    quiet = frozenset(harmless)

    def judge(run: Run, report: Report) -> None:
        words = [value.text for value in run.operands()]
        if words and not quiet.intersection(words[:3]):
            verb = " ".join(words[:2])
            report.danger(
                "exfiltration",
                f"Acts on an account elsewhere: {run.line}.",
                f"terminal:{run.name} {verb}",
                places.access_to_account(run.name),
            )
        _shows_secret(run, words, report)

    return judge


def _shows_secret(run: Run, words: list[str], report: Report) -> None:
    subcommand = " ".join(words[:3])
    if re.search(
        r"\b(secrets?|print-access-token|auth token|get-login-password|print-identity)\b",
        subcommand,
    ):
        access = places.access_to_account(run.name)
        report.danger(
            "secrets", f"Shows a secret: {run.line}.", f"terminal:{run.name} secret", access
        )


_READS = ("get", "describe", "list", "ls", "view", "status", "show", "logs", "version", "help", "diff",
          "top", "explain", "whoami", "info", "search", "checkout", "clone", "browse")  # fmt: skip


def _infrastructure(run: Run, report: Report) -> None:
    words = [value.text for value in run.operands()]
    if words and words[0] in ("apply", "destroy", "import", "taint", "state", "up", "refresh"):
        report.danger(
            "destructive",
            f"Changes infrastructure: {run.line}.",
            f"terminal:{run.name} {words[0]}",
            places.access_to_account(run.name),
        )


def _kubectl(run: Run, report: Report) -> None:
    words = [
        value.text for value in run.operands(("-n", "--namespace", "--context", "-f", "-l", "-o"))
    ]
    if words and words[0] not in (*_READS, "config", "api-resources", "cluster-info"):
        report.danger(
            "destructive",
            f"Changes a cluster: {run.line}.",
            f"terminal:{run.name} {words[0]}",
            places.access_to_account(run.name),
        )
    _shows_secret(run, words, report)


def values(*texts: str) -> list[Value]:
    """Words that stand for themselves."""
    return [Value(text) for text in texts]


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("psql", "mysql", "mariadb", "sqlite3", "sqlite", "clickhouse-client", "redis-cli", "mongo",
         "mongosh", "cqlsh", "duckdb", "sqlcmd"), _database
    ),
    **dict.fromkeys(("dropdb", "dropuser", "mysqladmin", "redis-flush"), _drops),
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose"), _container),
    **dict.fromkeys(
        ("aws", "gcloud", "az", "gsutil", "bq", "doctl", "heroku", "fly", "flyctl", "vercel", "netlify",
         "wrangler", "firebase", "linode-cli", "hcloud", "gh", "glab", "hub", "s3cmd", "railway"),
        _acts_outside(*_READS),
    ),
    **dict.fromkeys(("terraform", "tofu", "pulumi", "cdk", "ansible-playbook"), _infrastructure),
    **dict.fromkeys(("kubectl", "oc", "helm", "k9s"), _kubectl),
}  # fmt: skip
