"""The gate: every run of a tool passes it, and what is dangerous needs a yes.

Order: the policy file, then what the tool says about its arguments, then lasting yeses, then a person.
The question is a row of the store, so it can be answered from any surface and survives a restart. Only
the gate makes permits, and nothing starts a process without one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hermes_agent import policy
from hermes_agent.asking import Asker
from hermes_agent.danger import Danger
from hermes_agent.events import Sink
from hermes_agent.hooks import Hooks
from hermes_agent.policy import Policy
from hermes_agent.standing import is_owner
from hermes_agent.stop import Stop
from hermes_agent.tools.base import Args, Bench, Tool
from hermes_core.errors import Interrupted, ToolDeniedError
from hermes_core.settings import ApprovalSettings
from hermes_state.questions import EVERYWHERE, Question
from hermes_state.records import Row

CHOICES = ("once", "session", "always", "deny")


class Permit(msgspec.Struct, frozen=True):
    """Proof that the gate let a call through; made here and nowhere else."""

    tool_name: str
    subject: str

    @classmethod
    def _for_tests(cls) -> "Permit":
        return cls("test", "test")


class Applicant(NamedTuple):
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
        self, tool: Tool, args: Args, bench: Bench, who: Applicant, stop: Stop, report: Sink
    ) -> Permit:
        """Let a call through, after asking if need be; raises ToolDeniedError."""
        subject = policy.subject(tool.name, args, bench.cwd)
        permit = Permit(tool.name, subject)
        verdict = policy.decide(self._rules, tool.name, subject)
        if verdict == "deny":
            why = policy.denial(self._rules, tool.name, subject)
            raise ToolDeniedError(f"The policy of this machine does not allow this call. {why}")
        if verdict == "allow" or self._settings.mode == "allow":
            return permit
        dangers = tool.dangers(args, bench)
        if dangers and not self._is_granted(dangers, bench, who):
            self._ask(tool, subject, dangers, bench, who, stop, report)
        return permit

    def _is_granted(self, dangers: Sequence[Danger], bench: Bench, who: Applicant) -> bool:
        # What an owner has allowed for all times is not allowed to everybody they let in.
        everywhere = is_owner(bench.standing)
        granted = bench.store.questions.granted(who.conversation_id, everywhere=everywhere)
        return {d.key for d in dangers} <= granted

    def _ask(
        self,
        tool: Tool,
        subject: str,
        dangers: Sequence[Danger],
        bench: Bench,
        who: Applicant,
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
            bench.store.questions.grant([d.key for d in dangers], scope)
        self._tell_answer(row, tool, who, choice, by)
        if choice == "expired":
            raise ToolDeniedError(
                "Nobody answered the question whether this may run, so it did not run."
            )
        if choice == "deny":
            said = f" They said: {remark.strip()}" if remark.strip() else ""
            raise ToolDeniedError(f"The user did not allow this call.{said}")

    def _tell_answer(self, row: Row, tool: Tool, who: Applicant, choice: str, by: str) -> None:
        self._hooks.invoke_hook(
            "on_approval_answered",
            approval_id=row["id"],
            session_id=who.session_id,
            tool_name=tool.name,
            choice=choice,
            answered_by=by,
            platform=self._platform,
        )
