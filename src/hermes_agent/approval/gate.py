"""The gate: every run of a tool passes it, and what is dangerous needs a yes.

Order: the policy file, then the dangers that the tool sees in its arguments, then earlier yeses that
last, then a person. The dangers are computed once, here: a tool reads from its permit what was allowed.
The question is a row of the store, so it can be answered from any surface and survives a restart. Only
the gate makes permits, and nothing starts a process without one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hermes_agent.approval import policy
from hermes_agent.approval.danger import Danger, Kind
from hermes_agent.approval.policy import Policy
from hermes_agent.approval.questions import Asker
from hermes_agent.hooks import Hooks
from hermes_agent.permissions import is_owner
from hermes_agent.tools.base import Args, Tool, ToolContext
from hermes_agent.turn.events import Sink
from hermes_agent.turn.stop import Stop
from hermes_core.errors import Interrupted, ToolDeniedError
from hermes_core.settings import ApprovalSettings
from hermes_state.ledger import questions
from hermes_state.ledger.questions import EVERYWHERE
from hermes_state.values import Question, Row

CHOICES = ("once", "session", "always", "deny")

_NEEDS_HOST: frozenset[Kind] = frozenset({"outside", "secrets", "privilege", "exfiltration"})
"""What a sandbox would not let through: an allowed call of these kinds runs outside of it."""


class Permit(msgspec.Struct, frozen=True):
    """Proof that the gate let a call through; made here and nowhere else."""

    tool_name: str
    subject: str
    lifted: frozenset[Kind] = frozenset()
    """The kinds of danger that were allowed."""

    @property
    def is_confined(self) -> bool:
        """Return whether the call stays in the sandbox."""
        return not self.lifted & _NEEDS_HOST

    @classmethod
    def _for_tests(cls, *lifted: Kind) -> "Permit":
        return cls("test", "test", frozenset(lifted))


class CallRef(NamedTuple):
    """The call that asks to be let through."""

    conversation_id: str
    session_id: str
    turn_id: str
    call_id: str


class Gate:
    """Decides about calls of tools; one for each conversation that is open."""

    def __init__(
        self, asker: Asker, hooks: Hooks, settings: ApprovalSettings, rules: Policy, platform: str
    ) -> None:
        self._asker = asker
        self._hooks = hooks
        self._settings = settings
        self._rules = rules
        self._platform = platform

    def admit(
        self, tool: Tool, args: Args, bench: ToolContext, who: CallRef, stop: Stop, report: Sink
    ) -> Permit:
        """Let a call through, after asking if need be; raises ToolDeniedError."""
        subject = policy.subject(tool, args, bench.cwd)
        verdict = policy.decide(self._rules, tool, subject)
        if verdict == "deny":
            why = policy.denial(self._rules, tool, subject)
            raise ToolDeniedError(f"The policy of this machine does not allow this call. {why}")
        dangers = tool.dangers_of(args, bench)
        is_allowed = verdict == "allow" or self._settings.mode == "allow"
        if dangers and not is_allowed and not self._is_granted(dangers, bench, who):
            self._ask(tool, subject, dangers, bench, who, stop, report)
        return Permit(tool.name, subject, frozenset(danger.kind for danger in dangers))

    def _is_granted(self, dangers: Sequence[Danger], bench: ToolContext, who: CallRef) -> bool:
        # What an owner has allowed for all times is not allowed to everybody they let in.
        everywhere = is_owner(bench.permissions)
        granted = bench.store.read(questions.granted, who.conversation_id, everywhere=everywhere)
        return {d.key for d in dangers} <= granted

    def _ask(
        self,
        tool: Tool,
        subject: str,
        dangers: Sequence[Danger],
        bench: ToolContext,
        who: CallRef,
        stop: Stop,
        report: Sink,
    ) -> None:
        why = "; ".join(dict.fromkeys(d.reason for d in dangers))
        if self._settings.mode == "deny":
            raise ToolDeniedError(f"Not allowed here: {why}.")
        question = Question(who.turn_id, who.call_id, "approval", tool.name, why, subject, CHOICES)
        row = self._asker.put(question)
        if row["state"] == "pending":
            self._hooks.invoke_hook(
                "on_approval_asked",
                approval_id=row["id"],
                session_id=who.session_id,
                tool_name=tool.name,
                description=f"{why}: {row['detail']}",
                platform=self._platform,
            )
        try:
            answer, by = self._asker.wait(row, stop, report)
        except Interrupted:
            if not stop.is_suspended:  # else the question stays, and is answered later
                self._tell_answer(row, tool, who, "expired", "")
            raise
        choice, _, remark = (answer or "expired").partition(":")
        if choice not in (*CHOICES, "expired"):
            choice, remark = "deny", answer or ""  # words instead of a choice are told to the model
        if choice in ("session", "always"):
            scope = who.conversation_id if choice == "session" else EVERYWHERE
            bench.store.write(questions.grant, [d.key for d in dangers], scope)
        self._tell_answer(row, tool, who, choice, by)
        if choice == "expired":
            raise ToolDeniedError(
                "The approval request was not answered in time, so this did not run."
            )
        if choice == "deny":
            comment = f" They said: {remark.strip()}" if remark.strip() else ""
            raise ToolDeniedError(f"The user did not allow this call.{comment}")

    def _tell_answer(self, row: Row, tool: Tool, who: CallRef, choice: str, by: str) -> None:
        self._hooks.invoke_hook(
            "on_approval_answered",
            approval_id=row["id"],
            session_id=who.session_id,
            tool_name=tool.name,
            choice=choice,
            answered_by=by,
            platform=self._platform,
        )
