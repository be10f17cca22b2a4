"""The composer with its completions and attachments; sends what is typed."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence

from msgspec import structs
from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import TextArea

from hermes_core.errors import HermesError
from hermes_core.text import one_line, truncate
from hermes_protocol import results
from hermes_tui import commands, mentions
from hermes_tui.catalog import Catalog
from hermes_tui.entries import Note, UserMessage
from hermes_tui.history import InputHistory
from hermes_tui.tabs import Draft, Tab, Tabs
from hermes_tui.widgets.completion import CompletionList
from hermes_tui.widgets.composer import Composer
from hermes_tui.widgets.turn_view import TurnView

RunLocal = Callable[[str, str], Awaitable[None]]


class ComposerArea(Vertical):
    """The composer, its completions and its attachments."""

    def __init__(
        self, tabs: Tabs, history: InputHistory, turn_view: TurnView, run_local: RunLocal
    ) -> None:
        """`run_local` carries out a command of the interface."""
        super().__init__(id="composer-area")
        self._tabs = tabs
        self._turn_view = turn_view
        self._run_local = run_local
        self.completions = CompletionList()
        self.composer = Composer(history, self.completions)
        self.images: list[str] = []
        """Pictures that go with the next message."""
        self._names: list[str] = []
        """The files that the text names."""
        self._files: list[results.Mention] = []
        """Those of them that exist."""
        self._notes: dict[str, str] = {}
        """What is known of any file that was named."""

    def compose(self) -> ComposeResult:
        yield self.completions
        yield self.composer

    def switch(self, before: Tab, tab: Tab) -> None:
        """Keep what is typed with its conversation, and continue the draft of another one."""
        text, pastes = self.composer.take_draft()
        before.draft = Draft(text, pastes, self.take_images())
        draft, tab.draft = tab.draft, Draft()
        self.composer.put_draft(draft.text, draft.pastes)
        self._attach_images(draft.images)
        self.give_back(tab, draft.returned)

    def keep_drafts(self) -> None:
        """Put everything unsent into the history, where a later start finds it."""
        for tab in self._tabs.all:
            if tab is not self._tabs.current:
                self.composer.keep_draft(tab.draft.text, tab.draft.pastes)
        self.composer.keep()

    def give_back(self, tab: Tab, messages: Sequence[UserMessage]) -> None:
        """Put messages that were not taken before what is typed in their conversation."""
        if tab is not self._tabs.current:
            tab.draft.returned += messages
            return
        for message in reversed(messages):
            text = message.text if message.pastes else message.whole
            self.composer.give_back(text, message.pastes)
        self._attach_images([image for message in messages for image in message.images])

    def take_images(self) -> list[str]:
        """The pictures of the message that is being sent."""
        images, self.images = self.images, []
        self._tell_images()
        return images

    def _attach_images(self, images: Sequence[str]) -> None:
        self.images = list(dict.fromkeys([*self.images, *images]))
        self._tell_images()

    @on(Composer.BackspaceAtStart)
    def _detach_image(self, event: Composer.BackspaceAtStart) -> None:
        """Backspace before the first letter takes the last picture off."""
        event.stop()
        del self.images[-1:]
        self._tell_images()

    def _tell_images(self) -> None:
        names = ", ".join(image.rsplit("/", 1)[-1] for image in self.images)
        parts = [f"📎 {truncate(file.name, 30)} {file.note}" for file in self._files]
        if names:
            parts.append(f"🖼  {truncate(names, 40)} · Backspace removes it")
        title = " · ".join(parts)
        self.composer.border_title = Content(title)  # type: ignore[assignment]
        self.composer.may_be_empty = bool(names)

    @on(TextArea.Changed, "#composer")
    def _typed_on(self) -> None:
        names = mentions.names_in(self.composer.text)
        if names != self._names:
            self._names = names
            self._describe_files(names)

    @work(exclusive=True, group="files")
    async def _describe_files(self, names: list[str]) -> None:
        """Show which files go with the message, and how large they are."""
        files: list[results.Mention] = []
        with contextlib.suppress(HermesError):  # the message says it in any case
            if names:
                session = self._tabs.current.session
                files = (await session.ask(results.Mentions, "file.describe", names=names)).files
        self._files = files
        self._notes |= {file.name: file.note for file in files}
        self._tell_images()

    # -- sending -----------------------------------------------------------------------------

    @on(Composer.Submitted)
    def _sent(self, event: Composer.Submitted) -> None:
        event.stop()
        tab = self._tabs.current
        parsed = commands.parse(event.whole)
        if parsed is None:
            self._say(tab, UserMessage(event.visible, whole=event.whole, pastes=event.pastes))
        elif (name := commands.local(parsed)) in commands.MESSAGE_COMMANDS:
            visible = commands.parse(event.visible) or parsed
            message = UserMessage(
                visible.argument, whole=parsed.argument, pastes=event.pastes, busy=name
            )
            self._say(tab, message)
        elif name is not None:
            self._carry_out(name, parsed.argument)
        else:
            self._command(tab, parsed)

    def _say(self, tab: Tab, message: UserMessage) -> None:
        message.images = self.take_images() if tab is self._tabs.current else []
        message.mentions = mentions.names_in(message.text)
        message.files = [
            f"{name} ({self._notes[name]})" for name in message.mentions if name in self._notes
        ]
        message.is_sent = False
        self._send(tab, message)

    @work(group="prompts")
    async def _send(self, tab: Tab, message: UserMessage) -> None:
        if tab is self._tabs.current:
            await self._turn_view.transcript.to_end()
        try:
            if not await tab.prompts.send(message):
                self.give_back(tab, [message])
        except HermesError as error:
            self.give_back(tab, [message])
            await tab.add_error(error)

    @work(group="commands")
    async def _carry_out(self, name: str, argument: str) -> None:
        await self._run_local(name, argument)

    @work(group="commands")
    async def _command(self, tab: Tab, parsed: commands.Parsed) -> None:
        """Run a command on the server, and do what comes of it."""
        echo = Note(f"/{parsed.name} {parsed.argument}".rstrip(), "command")
        await tab.transcript.add(echo)
        tab.commands += 1
        try:
            outcome = await tab.session.command(parsed.name, parsed.argument)
            is_anew = outcome.session is not None
            if parsed.name in commands.REWRITING and not tab.conversation.is_running:
                await tab.session.again(self.size.width)
                is_anew = True
        except HermesError as error:
            await tab.add_error(error)
            return
        finally:
            tab.commands -= 1
        if is_anew:  # the conversation is about to be shown without it
            self._turn_view.post_message(TurnView.NoteRequested(tab, echo))
        if outcome.output:
            text = commands.format_output(parsed.name, outcome.output)
            self._turn_view.post_message(TurnView.NoteRequested(tab, Note(text)))
        if outcome.message:
            self._say(tab, UserMessage.of(outcome.message, outcome.busy or ""))
        if outcome.leave:
            await self._run_local("exit", "")

    async def run_in_background(self, text: str) -> None:
        """Start a prompt in a conversation of its own."""
        tab = self._tabs.current
        try:
            await tab.session.call("prompt.background", text=text)
            await tab.add_note("Working on it in the background.")
        except HermesError as error:
            self.composer.recall(text)
            await tab.add_error(error)

    async def choose_model(self, name: str) -> None:
        """Switch to another model."""
        tab = self._tabs.current
        try:
            await tab.add_note(await Catalog(self._tabs).choose_model(name))
        except HermesError as error:
            await tab.add_error(error)

    # -- completion --------------------------------------------------------------------------

    @on(Composer.CompletionRequested)
    def _completing(self, event: Composer.CompletionRequested) -> None:
        event.stop()
        self._complete(event)

    @work(exclusive=True, group="completion")
    async def _complete(self, event: Composer.CompletionRequested) -> None:
        try:
            found = await self._candidates(event)
        except HermesError:
            found = results.Items()
        if event.text == self._typed(event):
            start = event.start + (found.replace_from if event.kind == "slash" else 0)
            self.completions.show(found.items, start)
            self.composer.listed()

    async def _candidates(self, event: Composer.CompletionRequested) -> results.Items:
        session = self._tabs.current.session
        if event.kind == "path":
            cwd = session.conversation.info.cwd
            word = event.text.replace('"', "")
            found = await session.ask(results.Items, "complete.path", word=word, cwd=cwd)
            items = [structs.replace(i, text=mentions.completed(i.text)) for i in found.items]
            return structs.replace(found, items=items)
        answer = await session.ask(results.Items, "complete.slash", text=event.text)
        return results.Items(commands.completed(event.text, answer.items), answer.replace_from)

    def _typed(self, event: Composer.CompletionRequested) -> str:
        """Return the present text, which may be longer than when the server was asked."""
        composer = self.composer
        return composer.get_text_range((0, 0), composer.cursor_location)[event.start :]

    @on(CompletionList.Chosen)
    def _chosen(self, event: CompletionList.Chosen) -> None:
        event.stop()
        self.composer.complete()

    # -- attachments -------------------------------------------------------------------------

    @on(Composer.PastedPath)
    def _pasted_path(self, event: Composer.PastedPath) -> None:
        event.stop()
        self._attach_path(event.text)

    @work(group="paste")
    async def _attach_path(self, text: str) -> None:
        """Attach a picture that was dropped; any other path is text, and so is one that was sent."""
        try:
            dropped = await self._tabs.current.session.call(
                "input.detect_drop", text=text, attach=False
            )
            path = str(dropped.get("path") or "")
            is_picture = dropped.get("is_image") and path and not dropped.get("remainder")
            if is_picture and self.composer.take_out(text):
                self._attach_images([path])
        except HermesError as error:
            self.notify(one_line(str(error)), severity="warning", markup=False)
