"""The gate: every run of a tool passes it, and what is dangerous needs a yes.

Order: the policy file, then the dangers that the tool sees in its arguments, then earlier yeses that
last, then a person. Paths and dangers are worked out once, here, and what was allowed is in the permit:
nothing looks again later, when a link or a script may be another one. A yes adds the access that the
question names to the one call that it shows. A yes that lasts is for exactly this call, and never for
one that leaves the sandbox.

The question is a row of the store, so it can be answered from any surface and survives a restart. Only
the gate makes permits, and nothing starts a process without one.
"""

import hashlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from hermes_agent.approval import policy
from hermes_agent.approval.danger import Access, Danger, access_of, places
from hermes_agent.approval.danger.kinds import NO_ACCESS
from hermes_agent.approval.policy import Entry, Policy
from hermes_agent.approval.questions import Asker
from hermes_agent.hooks import Hooks
from hermes_agent.permissions import is_owner
from hermes_agent.tools.base import Args, Tool, ToolContext
from hermes_agent.turn.events import Sink
from hermes_agent.turn.stop import Stop
from hermes_core.errors import Interrupted, ToolDeniedError
from hermes_core.settings import ApprovalSettings
from hermes_core.text import one_line
from hermes_state.ledger import questions
from hermes_state.ledger.questions import EVERYWHERE
from hermes_state.transitions import QuestionState
from hermes_state.values import Grant, Question, Row

CHOICES = ("once", "session", "always", "deny")
HOST_KEY = "host:"
"""Begins the key of a grant for a host."""
ONLY_ONCE = ("once", "deny")
"""For a call that leaves the sandbox."""


class Permit(msgspec.Struct, frozen=True):
    """Proof that the gate let a call through, and what it may reach; made here and nowhere else."""

    tool_name: str
    subject: str
    access: Access = Access()
    """What it may reach beyond the workspace."""
    path: str = ""
    """Of a tool for files: where its path led when the gate looked, every link followed."""

    @property
    def is_confined(self) -> bool:
        """Return whether the call stays in the sandbox."""
        return not self.access.unconfined

    @classmethod
    def _for_tests(cls, access: Access = NO_ACCESS, path: str = "") -> "Permit":
        return cls("test", "test", access, path)


class CallRef(NamedTuple):
    """The call that asks to be let through."""

    conversation_id: str
    session_id: str
    turn_id: str
    call_id: str


class Verdict(NamedTuple):
    """The decision about a call, before anybody is asked."""

    decision: Literal["allow", "deny", "ask"]
    subject: str
    path: str = ""
    """Of a tool for files: where its path leads."""
    rules: Sequence[Entry] = ()
    """The entries of the policy file that decided."""
    dangers: Sequence[Danger] = ()
    key: str = ""
    """What a lasting yes for this call is remembered under; empty when none is needed."""

    @property
    def access(self) -> Access:
        return access_of(self.dangers)

    @property
    def choices(self) -> Sequence[str]:
        """The answers that a person may give."""
        return ONLY_ONCE if self.access.unconfined else CHOICES


def judge(
    rules: Policy,
    settings: ApprovalSettings,
    tool: Tool,
    args: Args,
    bench: ToolContext,
    who: CallRef,
) -> Verdict:
    """Decide about a call by the policy, its dangers and earlier yeses, without asking anybody."""
    path = ""
    if tool.is_path:
        path = places.resolve(args.get(tool.subject, "."), str(bench.cwd))
    subject = policy.subject(tool, args, path)
    decided = policy.decide(rules, tool, subject)
    entries = policy.entries(rules, tool, subject) if decided else ()
    if decided == "deny":
        return Verdict("deny", subject, path, entries)
    dangers = tool.dangers_of({**args, tool.subject: path} if path else args, bench)
    verdict = Verdict("allow", subject, path, entries, dangers)
    if not dangers or decided == "allow" or settings.mode == "allow":
        return verdict
    verdict = verdict._replace(key=_key(tool, args, bench, dangers))
    if not verdict.access.unconfined and _is_granted(verdict.key, bench, who):
        return verdict
    return verdict._replace(decision="deny" if settings.mode == "deny" else "ask")


def _is_granted(key: str, bench: ToolContext, who: CallRef) -> bool:
    # What an owner has allowed for all times is not allowed to everybody they let in.
    everywhere = is_owner(bench.permissions)
    return key in bench.store.read(questions.granted, who.conversation_id, everywhere=everywhere)


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
        verdict = judge(self._rules, self._settings, tool, args, bench, who)
        subject, dangers = verdict.subject, verdict.dangers
        if verdict.decision == "deny":
            raise ToolDeniedError(denial(verdict))
        if verdict.decision == "ask":
            lasting = Grant(verdict.key, tool.name, subject, str(bench.cwd))
            self._ask(tool, subject, dangers, lasting, bench, who, stop, report)
        return Permit(tool.name, subject, verdict.access, verdict.path)

    def admit_host(
        self,
        host: str,
        tool: Tool,
        permit: Permit,
        bench: ToolContext,
        who: CallRef,
        stop: Stop,
        report: Sink,
    ) -> None:
        """Let a running command reach a host, after asking; raises ToolDeniedError.

        A yes that lasts is for the host, whichever command wants to reach it.
        """
        if self._settings.mode == "allow":
            return
        danger = Danger("exfiltration", f"Connects to {host}", f"{HOST_KEY}{host}")
        lasting = Grant(danger.key, subject=host)
        if self._settings.mode == "deny":
            raise ToolDeniedError(f"Not allowed here: {danger.reason}.")
        self._ask(tool, permit.subject, [danger], lasting, bench, who, stop, report)

    def _ask(
        self,
        tool: Tool,
        subject: str,
        dangers: Sequence[Danger],
        lasting: Grant,
        bench: ToolContext,
        who: CallRef,
        stop: Stop,
        report: Sink,
    ) -> None:
        why = "; ".join(dict.fromkeys(d.reason for d in dangers))
        access = access_of(dangers)
        choices = ONLY_ONCE if access.unconfined else CHOICES
        text = question_text(dangers)
        question = Question(who.turn_id, who.call_id, "approval", tool.name, text, subject, choices)
        row = self._asker.put(question)
        if row["state"] == QuestionState.PENDING:
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
        if choice in ("session", "always") and choice not in choices:
            choice = "once"
        if choice in ("session", "always"):
            scope = who.conversation_id if choice == "session" else EVERYWHERE
            grant = lasting._replace(reasons=why, granted_by=by)
            bench.store.write(questions.grant, grant, scope)
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


def denial(verdict: Verdict) -> str:
    """Say why a call is denied without asking."""
    if verdict.dangers:
        return f"Not allowed here: {'; '.join(dict.fromkeys(d.reason for d in verdict.dangers))}."
    reason = next((entry.reason for entry in verdict.rules), "")
    return f"The policy of this machine does not allow this call. {reason}"


def question_text(dangers: Sequence[Danger]) -> str:
    """Return the text of a question: the reasons, and what a yes gives."""
    reasons = [one_line(reason) for reason in dict.fromkeys(d.reason for d in dangers)]
    lines = reasons if len(reasons) == 1 else [f"• {reason}" for reason in reasons]
    return "\n".join(filter(None, [*lines, one_line(access_of(dangers).describe())]))


def _key(tool: Tool, args: Args, bench: ToolContext, dangers: Sequence[Danger]) -> str:
    """Return what a lasting yes is remembered for: this call, in this folder, for these reasons."""
    call = [tool.name, args, str(bench.cwd), sorted((d.reason, *d.access) for d in dangers)]
    digest = hashlib.sha256(msgspec.json.encode(call, order="sorted")).hexdigest()
    return f"call:{tool.name}:{digest}"
