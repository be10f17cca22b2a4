"""The gate: every run of a tool passes it, and what is dangerous needs a yes.

Order: the policy file, then the dangers that the tool sees in its arguments, then earlier yeses that
last, then a person. Paths and dangers are worked out once, here, and what was allowed is in the permit:
nothing looks again later, when a link or a script may be another one. A yes adds the access that the
question names to the one call that it shows, whole. A yes that lasts is for exactly this call, for a
host or for changes of the workspace, and never for a call that leaves the sandbox.

The question is a row of the store, so it can be answered from any surface and survives a restart. Only
the gate makes permits, and nothing starts a process without one.
"""

import hashlib
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

import msgspec

from hermes_agent.approval import display, edits, policy, taint
from hermes_agent.approval.danger import Access, Danger, access_of, places
from hermes_agent.approval.danger.kinds import EDITS_KEY, NO_ACCESS, REGISTRIES_KEY
from hermes_agent.approval.policy import Entry, Policy
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
from hermes_state.transitions import QuestionState
from hermes_state.values import UNSHOWN, Grant, Question, Row, TaintSource

CHOICES = ("once", "session", "always", "deny")
NOT_ALWAYS = ("once", "session", "deny")
"""For what is asked because of what this conversation has read."""
ONLY_ONCE = ("once", "deny")
"""For a call that leaves the sandbox."""
CALL_KEY = "call:"
"""Begins the key of a grant for exactly one call."""
_EDITS = "changes of files in the workspace"


class Permit(msgspec.Struct, frozen=True):
    """Proof that the gate let a call through, and what it may reach; made here and nowhere else."""

    tool_name: str
    subject: str
    access: Access = Access()
    """What it may reach beyond the workspace."""
    path: str = ""
    """Of a tool for files: where its path led when the gate looked, every link followed."""
    basis: str = ""
    """A digest of the file that a person was shown the change of; empty: nobody was asked."""
    reads: tuple[TaintSource, ...] = ()
    """The taint that its result brings."""

    @property
    def is_confined(self) -> bool:
        """Return whether the call stays in the sandbox."""
        return not self.access.unconfined

    @classmethod
    def _for_tests(cls, access: Access = NO_ACCESS, path: str = "") -> "Permit":
        return cls("test", "test", access, path)


def permit_to_read(workspace: str) -> Permit:
    """Return the permit of git for checkpoints: besides its repository, it reads the workspace."""
    return Permit("checkpoint", workspace, Access(reads=(workspace,)))


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
    grants: Sequence[Grant] = ()
    """What a lasting yes is stored as; empty when none is needed."""
    keeps_workspace: bool = False
    """Whether commands only read the workspace."""
    reads: Sequence[TaintSource] = ()
    """The taint that its result brings."""

    @property
    def access(self) -> Access:
        return access_of(self.dangers)._replace(keeps_workspace=self.keeps_workspace)

    @property
    def choices(self) -> Sequence[str]:
        """The answers that a person may give."""
        return _choices(self.dangers)


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
    resolved = {**args, tool.subject: path} if path else args
    found = tool.dangers_of(resolved, bench)
    dangers = [d for d in found if settings.edits == "ask" or not _is_covered(d, bench)]
    if not (dangers and path):  # a yes to this one change says nothing of others
        dangers += edits.dangers(settings, tool, args, bench, path)
    reads = _reads(tool, resolved, bench, dangers)
    tainted = taint.dangers(tool, resolved, bench, who.session_id, dangers)
    is_granting = dangers or tainted or settings.edits == "ask"
    granted: Collection[str] = _granted(bench, who) if is_granting else ()
    keeps = edits.keeps_workspace(settings, dangers, granted, bench)
    dangers += [danger for danger in tainted if danger.grant not in granted]
    verdict = Verdict("allow", subject, path, entries, dangers, (), keeps, reads)
    if not dangers or decided == "allow" or settings.mode == "allow":
        return verdict
    grants = _grants(tool, args, bench, subject, dangers)
    verdict = verdict._replace(grants=grants)
    if not verdict.access.unconfined and all(grant.key in granted for grant in grants):
        return verdict
    return verdict._replace(decision="deny" if settings.mode == "deny" else "ask")


def _is_covered(danger: Danger, bench: ToolContext) -> bool:
    """Return whether all that a danger destroys can be restored after the turn."""
    checkpoints = bench.checkpoints
    return danger.loss is not None and checkpoints is not None and checkpoints.covers(danger.loss)


def _grants(
    tool: Tool, args: Args, bench: ToolContext, subject: str, dangers: Sequence[Danger]
) -> list[Grant]:
    """Return what a lasting yes is stored as: for this call, and for dangers with a key of their own."""
    keys = dict.fromkeys(danger.grant for danger in dangers if danger.grant)
    grants = [_named_grant(key, bench) for key in keys]
    if own := [danger for danger in dangers if not danger.grant]:
        grants.append(Grant(_key(tool, args, bench, own), tool.name, subject, str(bench.cwd)))
    return grants


def _named_grant(key: str, bench: ToolContext) -> Grant:
    """Return the grant of a danger with a key of its own, with what it is for."""
    if key.startswith(EDITS_KEY):
        return Grant(key, subject=_EDITS, folder=str(bench.workspace))
    return Grant(key, subject=taint.receiver_of(key))


def _reads(
    tool: Tool, args: Args, bench: ToolContext, dangers: Sequence[Danger]
) -> Sequence[TaintSource]:
    """Return the taint that a call brings; keys that it needs to act elsewhere are not printed."""
    reads = access_of(danger for danger in dangers if danger.kind != "exfiltration").reads
    return tool.reads_of(args, bench, access_of(dangers)._replace(reads=reads))


def _choices(dangers: Sequence[Danger]) -> Sequence[str]:
    """Return the answers that a person may give."""
    if access_of(dangers).unconfined:
        return ONLY_ONCE
    is_tainted = any(d.kind == "taint" and d.grant != REGISTRIES_KEY for d in dangers)
    return NOT_ALWAYS if is_tainted else CHOICES


def _granted(bench: ToolContext, who: CallRef) -> set[str]:
    # What an owner has allowed for all times is not allowed to everybody they let in.
    everywhere = is_owner(bench.permissions)
    return bench.store.read(questions.granted, who.conversation_id, everywhere=everywhere)


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
        basis = ""
        if verdict.decision == "ask":
            preview = display.of_call(tool, args, bench, verdict.path)
            basis = preview.basis
            self._ask(tool, preview.text, dangers, verdict.grants, bench, who, stop, report)
        reads = tuple(verdict.reads)
        return Permit(tool.name, subject, verdict.access, verdict.path, basis, reads)

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
        dangers = taint.of_host(bench.store, who.session_id, host)
        grants = [Grant(dangers[0].grant, subject=host)]
        if self._settings.mode == "deny":
            raise ToolDeniedError(f"Not allowed here: {dangers[0].reason}.")
        detail = display.whole(permit.subject)
        self._ask(tool, detail, dangers, grants, bench, who, stop, report)

    def _ask(
        self,
        tool: Tool,
        detail: str,
        dangers: Sequence[Danger],
        grants: Sequence[Grant],
        bench: ToolContext,
        who: CallRef,
        stop: Stop,
        report: Sink,
    ) -> None:
        why = display.reasons(dangers)
        choices = _choices(dangers)
        covers = display.covered(tool, grants) if "session" in choices else ""
        text = display.question(dangers, covers, may_last="always" in choices)
        question = Question(who.turn_id, who.call_id, "approval", tool.name, text, detail, choices)
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
        if choice not in (*CHOICES, "expired", UNSHOWN):
            choice, remark = "deny", answer or ""  # words instead of a choice are told to the model
        if choice in ("session", "always") and choice not in choices:
            choice = choices[-2]  # the most that may be given
        if choice in ("session", "always"):
            scope = who.conversation_id if choice == "session" else EVERYWHERE
            for grant in grants:
                full = grant._replace(reasons=why, granted_by=by)
                bench.store.write(questions.grant, full, scope)
        self._tell_answer(row, tool, who, choice, by)
        if choice not in CHOICES or choice == "deny":
            raise _refusal(choice, remark.strip())

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
        return f"Not allowed here: {display.reasons(verdict.dangers)}."
    reason = next((entry.reason for entry in verdict.rules), "")
    return f"The policy of this machine does not allow this call. {reason}"


def _refusal(choice: str, remark: str) -> ToolDeniedError:
    """Return the error for a call that nobody allowed."""
    if choice == "expired":
        return ToolDeniedError(
            "The approval request was not answered in time, so this did not run."
        )
    if choice == UNSHOWN:
        return ToolDeniedError(
            "This needs an approval, and could not be shown to the person who may allow it"
            f" ({remark}), so it did not run.",
            fix="Do it in smaller steps.",
        )
    comment = f" They said: {remark}" if remark else ""
    return ToolDeniedError(f"The user did not allow this call.{comment}")


def _key(tool: Tool, args: Args, bench: ToolContext, dangers: Sequence[Danger]) -> str:
    """Return what a lasting yes is remembered for: this call, in this folder, for these reasons."""
    call = [tool.name, args, str(bench.cwd), sorted((d.reason, *d.access) for d in dangers)]
    digest = hashlib.sha256(msgspec.json.encode(call, order="sorted")).hexdigest()
    return f"{CALL_KEY}{tool.name}:{digest}"
