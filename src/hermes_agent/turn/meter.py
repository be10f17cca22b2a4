"""Meter a turn's spending: reserve before a model call, settle with its real cost."""

import time

from hermes_agent.models.base import Facts, Model, Reply, Request
from hermes_agent.permissions import Permissions
from hermes_agent.turn.events import ignore
from hermes_agent.turn.stop import Stop
from hermes_core import text
from hermes_core.errors import BudgetSpent, UsageError
from hermes_core.settings import AgentSettings
from hermes_state.ledger import budgets
from hermes_state.ledger import budgets as budget_ledger
from hermes_state.store import Store
from hermes_state.values import Estimate, Limit, Limits, Receipt, Reservation, Spent

_MIN_REPLY_TOKENS = 256
"""A reply shorter than this is not worth asking for."""


def is_unpriced(facts: Facts) -> bool:
    """Tell whether a model has no known price, so that no limit on money can hold for it."""
    return not (facts.output_price or facts.is_free)


def check_choice(facts: Facts, permissions: Permissions | None) -> None:
    """Raises UsageError when somebody whose money is limited chose a model without a price."""
    if permissions is not None and permissions.usd_per_day and is_unpriced(facts):
        raise UsageError(
            f"{facts.name} has no known price, so your limit of {text.usd(permissions.usd_per_day)}"
            " per day cannot be enforced.",
            fix="Choose a model with a known price; /model lists them.",
        )


def limits_of(settings: AgentSettings, permissions: Permissions | None = None) -> Limits:
    """The limits of a turn as the settings have them, and those of the person it is for."""
    return Limits.of(
        Limit("steps", "turn", settings.max_steps),
        Limit("seconds", "turn", settings.max_seconds),
        Limit("tokens", "turn", settings.max_tokens),
        Limit("usd", "turn", settings.max_cost_usd),
        Limit("usd", "day", settings.max_cost_per_day_usd),
        Limit("usd", "person", permissions.usd_per_day if permissions else 0),
        person=permissions.person if permissions else "",
    )


class Meter:
    """The account of one turn; what an earlier attempt took counts."""

    def __init__(
        self,
        store: Store,
        turn_id: str,
        limits: Limits,
        account: str | None = None,
        *,
        is_resumed: bool = True,
        attempts_lost: int = 0,
    ) -> None:
        self._store = store
        self._turn_id = turn_id
        self._limits = limits
        self._account = account
        self._began = time.monotonic()
        self._under_way: tuple[Estimate, str] | None = None
        """The call that nothing is set aside for, and what for."""
        sofar = store.read(budget_ledger.of_turn, turn_id, account) if is_resumed else {}
        self._worked_before_s: float = sofar.get("seconds", 0.0)
        self.steps: int = sofar.get("steps", 0)
        if not limits.need_reservations:
            self.steps += attempts_lost  # of the call in which one was cut off there is no trace

    def reserve(
        self, facts: Facts, input_tokens: int, max_output: int, task: str = ""
    ) -> tuple[Reservation, int]:
        """Set aside the most a call can take; returns the reservation and how long a reply may be.

        A reply is cut to what the limits leave. Raises BudgetSpent.
        """
        self.note_unsettled()
        is_limited = self._limits.need_reservations
        if is_limited:
            max_output = self._affordable(facts, input_tokens, max_output)
        price = max(facts.input_price, facts.cache_write_price)
        cost = (input_tokens * price + max_output * facts.output_price) / 1_000_000
        estimate = Estimate(input_tokens + max_output, cost, self.elapsed_s)
        if is_limited:
            reservation = self._reserve(self._limits, estimate, task)
        else:
            for limit in self._limits.all:  # of the turn alone, which nobody else uses up
                limit.check(self.steps, estimate, task)
            reservation = Reservation(None, self.elapsed_s, self._account, self._limits.person)
            self._under_way = estimate, task
        self.steps += not task
        return reservation, max_output

    def _reserve(self, limits: Limits, estimate: Estimate, task: str) -> Reservation:
        return self._store.write(
            budgets.reserve, self._turn_id, limits, estimate, task, self._account
        )

    def note_unsettled(self) -> None:
        """Count a call that failed or was stopped in full: the provider may have charged for it."""
        if self._under_way is not None:
            (estimate, task), self._under_way = self._under_way, None
            self._reserve(Limits(person=self._limits.person), estimate, task)

    @property
    def elapsed_s(self) -> float:
        """Working time of the turn, over all attempts."""
        return self._worked_before_s + time.monotonic() - self._began

    def _affordable(self, facts: Facts, input_tokens: int, max_output: int) -> int:
        """Return how long a reply may be; raise BudgetSpent, which names the limit."""
        price = max(facts.input_price, facts.cache_write_price)
        room: list[tuple[float, Limit]] = []
        amounts = self._store.read(budgets.used, self._turn_id, self._limits, self._account)
        for limit, used in amounts:
            rest = limit.most - used
            if limit.unit == "tokens":
                room.append((rest - input_tokens, limit))
            elif limit.unit == "usd" and facts.output_price:
                room.append(((rest * 1_000_000 - input_tokens * price) / facts.output_price, limit))
        if not room:
            return max_output
        tokens, limit = min(room)
        if tokens < min(_MIN_REPLY_TOKENS, max_output):
            raise BudgetSpent(f"the limit of {limit} leaves too little for another model call")
        return min(int(tokens), max_output)

    def ask_separately(
        self, model: Model, request: Request, tokens: int, stop: Stop, session_id: str, task: str
    ) -> Reply:
        """A call beside the loop, for a summary or a title: reserved, made in silence, settled."""
        facts = model.facts
        most = request.max_output_tokens or facts.max_output
        reservation, most = self.reserve(facts, tokens, most, task)
        reply = model.ask(request._replace(max_output_tokens=most), stop, ignore)
        receipt = self.receipt(reservation, facts, reply, task)
        self._store.write(budget_ledger.settle, self._turn_id, session_id, receipt)
        return reply

    def receipt(
        self, reservation: Reservation, facts: Facts, reply: Reply, task: str = ""
    ) -> Receipt:
        """Return the cost of a reply, to be stored together with it."""
        self._under_way = None
        usage = reply.usage
        cost = facts.cost_usd(usage) if reply.cost_usd is None else reply.cost_usd
        spent = Spent(
            reply.model or facts.name, reply.provider or facts.provider, *usage, cost_usd=cost
        )
        return Receipt(reservation, spent, task)
