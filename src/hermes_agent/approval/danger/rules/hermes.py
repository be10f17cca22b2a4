"""Hermes itself: it may be asked about itself; all else changes it or runs another agent."""

from hermes_agent.approval.danger.run import Report, Run
from hermes_core.own_commands import MARKER

_HARMLESS = frozenset({
    "approvals check", "completion", "config path", "config show", "doctor", "gateway check",
    "gateway status", "model", "model list", "model show", "plugins list", "security",
    "sessions list", "sessions stats", "sessions tree", "skills list", "skills show",
})  # fmt: skip
_WITH_MORE = frozenset({"model", "security"})
"""Harmless alone; what follows may change something."""
MODULES = frozenset(
    {"hermes_core", "hermes_state", "hermes_engine", "hermes_agent", "hermes_cli", "tui_gateway"}
)


def _hermes(run: Run, report: Report) -> None:
    words = [value.text for value in run.operands()]
    is_asking = " ".join(words[:2]) in _HARMLESS or " ".join(words[:1]) in _HARMLESS - _WITH_MORE
    changes = run.has("--set", "--fix", "--reveal") or any(value.is_open for value in run.args)
    if changes or not (is_asking or run.has("--help") or (not words and run.has("--version"))):
        what = " ".join(words[:2])
        reason = f"Changes Hermes's own settings, or runs another agent: {run.line}."
        report.danger("privilege", reason, f"terminal:hermes {what}".rstrip())


def judge_variable(name: str, report: Report) -> None:
    """Tell that setting a variable changes how Hermes runs."""
    if name.startswith("HERMES_"):
        reason = f"Changes Hermes's own settings by {name}."
        report.danger("privilege", reason, f"terminal:{name}")


def judge_module(module: str, report: Report) -> None:
    """Tell that code which uses our modules can change our settings."""
    if module.partition(".")[0] in MODULES:
        reason = f"Changes Hermes's own settings, by its module {module}."
        report.danger("privilege", reason, f"terminal:module {module}")


def judge_words(run: Run, report: Report) -> None:
    """Tell that a command hides from Hermes that it is one."""
    if any(MARKER in value.text for value in run.args):
        reason = f"Hides that it is a command of the agent: {run.line}."
        report.danger("privilege", reason, f"terminal:{MARKER}")


RULES = {"hermes": _hermes}
