"""The greeting of a chat: model, sandbox, the last exchange, and unanswered messages."""

from hermes_agent import recovery
from hermes_agent.agent import Agent
from hermes_agent.models.providers import OURS
from hermes_agent.sandbox import detect
from hermes_cli.chat.resources import ChatResources
from hermes_cli.chat.view import View
from hermes_core import clock
from hermes_core.text import one_line, truncate
from hermes_state.ledger import messages, sessions
from hermes_state.values import Row

_MAX_MESSAGE_LENGTH = 400
_STEP_UP = (
    "It is small and can be wrong. For real work set ANTHROPIC_API_KEY or OPENAI_API_KEY,"
    " or start a local server such as Ollama."
)


def greet(view: View, resources: ChatResources, agent: Agent) -> None:
    """Show the model in use and why, where commands run, and what is unfinished elsewhere."""
    found = resources.finding
    view.note(f"Model: {found.label} ({found.reason}). Type /help for commands.")
    if OURS.get(found.provider).is_in_process:
        view.note(_STEP_UP)
    if advice := agent.model.facts.window_advice:
        view.note(advice)
    view.note(detect.summary(resources.app.settings))
    if unfinished := _elsewhere(agent):
        view.note(unfinished)


def _elsewhere(agent: Agent) -> str:
    """Return a line about unanswered messages of other conversations, with what to do."""
    rows = [
        row
        for row in recovery.unfinished(agent.store)
        if row["conversation_id"] != agent.conversation_id and not _is_delegate(agent, row)
    ]
    if not rows:
        return ""
    number = f"{len(rows)} messages have" if len(rows) > 1 else "A message has"
    return f"{number} no answer yet. Continue with: hermes chat --resume {rows[-1]['session_id']}"


def _is_delegate(agent: Agent, row: Row) -> bool:
    session = agent.store.read(sessions.find, row["session_id"])
    return session is None or session["relation"] == "delegate"


def show_last_exchange(view: View, resources: ChatResources, agent: Agent) -> None:
    """Show the title, the age and the last exchange of a resumed conversation."""
    row = agent.store.read(sessions.find, agent.session_id)
    if row is None:
        return
    title = row["title"] or row["preview"] or agent.session_id
    view.note(
        f"{truncate(one_line(title), 70)}: {row['message_count']} messages,"
        f" the last {clock.ago(row['last_active_at'])}."
    )
    while resources.folders_lost:
        lost = resources.folders_lost.pop()
        view.note(f"Folder {lost} no longer exists. Using {resources.workspace} instead.")
    for who, text in _last_exchange(agent):
        view.note(f"{who}: {truncate(one_line(text), _MAX_MESSAGE_LENGTH)}")


def _last_exchange(agent: Agent) -> list[tuple[str, str]]:
    spoken = [
        (message["role"], message["content"])
        for message in agent.store.read(messages.as_conversation, agent.session_id)
        if message["role"] in ("user", "assistant")
        and isinstance(message["content"], str)
        and message["content"].strip()
        and message.get("kind") != "summary"
    ]
    requests = [position for position, (role, _) in enumerate(spoken) if role == "user"]
    if not requests:
        return []
    question, *answers = spoken[requests[-1] :]
    recalled = [("you", question[1])]
    if answers:
        recalled.append(("hermes", answers[-1][1]))
    return recalled
