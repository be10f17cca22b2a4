"""Test that a store keeps its promises, whichever engine runs it.

Subclass `StoreConformance` in a test module and give the tests a fresh, empty `store`, for instance
with a fixture of that name. Nothing here needs a test framework. Tests that bypass the ledger, to check
that the database itself refuses, use the SQL of the SQLite schema.
"""

from hermes_state.testing.rules.budgets import BudgetRules
from hermes_state.testing.rules.checkpoints import CheckpointRules
from hermes_state.testing.rules.effects import EffectRules
from hermes_state.testing.rules.inbox import InboxRules
from hermes_state.testing.rules.leases import LeaseRules
from hermes_state.testing.rules.lineage import LineageRules
from hermes_state.testing.rules.messages import MessageRules
from hermes_state.testing.rules.outbox import OutboxRules
from hermes_state.testing.rules.partials import PartialRules
from hermes_state.testing.rules.people import PeopleRules
from hermes_state.testing.rules.questions import QuestionRules
from hermes_state.testing.rules.routes import RouteRules
from hermes_state.testing.rules.scope import ScopeRules
from hermes_state.testing.rules.search import SearchRules
from hermes_state.testing.rules.sessions import SessionRules
from hermes_state.testing.rules.taint import TaintRules
from hermes_state.testing.rules.titles import TitleRules
from hermes_state.testing.rules.transfer import TransferRules
from hermes_state.testing.rules.turns import TurnRules
from hermes_state.testing.rules.upkeep import UpkeepRules
from hermes_state.testing.rules.usage import UsageRules


class StoreConformance(
    SessionRules,
    MessageRules,
    TitleRules,
    LineageRules,
    SearchRules,
    TransferRules,
    UpkeepRules,
    TurnRules,
    EffectRules,
    InboxRules,
    PartialRules,
    CheckpointRules,
    OutboxRules,
    RouteRules,
    LeaseRules,
    UsageRules,
    BudgetRules,
    QuestionRules,
    ScopeRules,
    PeopleRules,
    TaintRules,
):
    """Combines all rules."""
