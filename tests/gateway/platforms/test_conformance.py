"""The loopback platform passes the kit, and the kit finds adapters that break their promises."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from gateway.config import PlatformConfig
from gateway.platforms.base import (
    Attachment,
    BasePlatformAdapter,
    PlatformError,
    Resend,
    SendMetadata,
    SendResult,
)
from gateway.platforms.testing.conformance import PlatformConformance
from hermes_core.errors import StoreError
from tests.support.loopback import translate, wire
from tests.support.loopback.adapter import (
    CheckedLoopbackAdapter,
    LoopbackAdapter,
    MarkedLoopbackAdapter,
)
from tests.support.loopback.manifest import LoopbackSettings
from tests.support.loopback.server import LoopbackServer
from tests.support.loopback.world import LoopbackWorld


class LoopbackFixture:
    resend: Resend = "same"

    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[LoopbackWorld]:
        with LoopbackServer(folds_keys=self.resend == "same") as server:
            yield LoopbackWorld(server, tmp_path, self.resend)


class TestLoopback(LoopbackFixture, PlatformConformance):
    """A server that folds messages with the same key."""


class TestCheckedLoopback(LoopbackFixture, PlatformConformance):
    """A server that can be asked."""

    resend = "checked"


class TestMarkedLoopback(LoopbackFixture, PlatformConformance):
    """A server that knows nothing of keys."""

    resend = "marked"


# Adapters with one fault each, and the scenario that must find it.


class AcknowledgesFirst(LoopbackAdapter):
    async def _take(self, arrived: asyncio.Queue[wire.Delivery]) -> None:
        seen: asyncio.Queue[wire.Delivery] = asyncio.Queue()

        async def acknowledge() -> None:
            while True:
                delivery = await arrived.get()
                self._write(wire.Ack(delivery.number))
                await self.find_sent(
                    "nowhere", "nothing"
                )  # the answer comes after the note was read
                seen.put_nowait(delivery)

        self._tasks.append(asyncio.create_task(acknowledge()))
        await super()._take(seen)


class DropsWhatIsRefused(LoopbackAdapter):
    async def _hand_in(self, came: wire.Incoming) -> None:
        with contextlib.suppress(StoreError):
            await self.ingress.accept(translate.event(came, self.platform))


class InventsNames(LoopbackAdapter):
    async def _hand_in(self, came: wire.Incoming) -> None:
        await super()._hand_in(msgspec.structs.replace(came, message_id=uuid4().hex))


class TakesSilenceForSuccess(LoopbackAdapter):
    async def _result(self, make: Any) -> SendResult:
        return replace(await super()._result(make), success=True, message_id="x", error_kind="")


class IsTooSure(MarkedLoopbackAdapter):
    async def _result(self, make: Any) -> SendResult:
        result = await super()._result(make)
        return replace(result, error_kind="network") if result.error_kind == "unsure" else result


class LosesKeys(LoopbackAdapter):
    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        return await super().send(chat_id, content, reply_to, {"key": uuid4().hex})


class LeavesTasks(LoopbackAdapter):
    async def disconnect(self) -> None:
        self._leak = asyncio.create_task(asyncio.sleep(60))
        await super().disconnect()


class CannotEdit(LoopbackAdapter):
    edit_message = BasePlatformAdapter.edit_message


class TakesEditsForDone(LoopbackAdapter):
    async def edit_message(
        self, chat_id: str, message_id: str, content: str, metadata: SendMetadata | None = None
    ) -> SendResult:
        await super().edit_message(chat_id, message_id, content, metadata)
        return SendResult(success=True, message_id=message_id)


class FindsNothingWithoutANetwork(CheckedLoopbackAdapter):
    async def find_sent(self, chat_id: str, key: str) -> str | None:
        with contextlib.suppress(PlatformError):
            return await super().find_sent(chat_id, key)
        return None


class GivesUpTooSoon(LoopbackAdapter):
    def lost(self, error: PlatformError) -> None:
        super().lost(PlatformError(error.message, is_fatal=True))


class SendsFilesAlone(LoopbackAdapter):
    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        text = "" if (metadata or {}).get("files") else content
        return await super().send(chat_id, text, reply_to, metadata)


class ForgetsFiles(LoopbackAdapter):
    async def _hand_in(self, came: wire.Incoming) -> None:
        await super()._hand_in(msgspec.structs.replace(came, files=[]))


class KeepsFilesItself(LoopbackAdapter):
    async def _hand_in(self, came: wire.Incoming) -> None:
        event = translate.event(came, self.platform)
        event.attachments = [Attachment(Path(file.name), "?", file.name) for file in event.files]
        await self.ingress.accept(event)


class FaultyWorld(LoopbackWorld):
    """A world whose adapter has a fault; what does not come within a moment does not come."""

    patience_s = 1.0

    def __init__(self, server: LoopbackServer, folder: Path, kind: type[LoopbackAdapter]) -> None:
        super().__init__(server, folder)
        self._kind = kind

    def make(self) -> BasePlatformAdapter:
        settings = LoopbackSettings(self.server.address, retry_s=0.01)
        return self._kind(PlatformConfig(enabled=True), settings)


@pytest.mark.parametrize(
    ("kind", "scenario"),
    [
        (AcknowledgesFirst, "a_crash_before_the_acknowledgement_brings_the_message_again"),
        (AcknowledgesFirst, "a_crash_while_the_store_refuses_loses_nothing"),
        (DropsWhatIsRefused, "a_message_that_could_not_be_stored_comes_again_under_the_same_name"),
        (DropsWhatIsRefused, "the_order_holds_when_a_message_could_not_be_stored"),
        (InventsNames, "a_second_delivery_has_the_name_of_the_first"),
        (InventsNames, "a_crash_before_the_acknowledgement_brings_the_message_again"),
        (TakesSilenceForSuccess, "a_send_without_a_network_is_no_success"),
        (TakesSilenceForSuccess, "a_limited_send_says_when_to_try_again"),
        (TakesSilenceForSuccess, "a_closed_chat_refuses_for_good"),
        (IsTooSure, "a_send_whose_answer_is_lost_is_unsure_and_can_be_settled"),
        (LosesKeys, "a_send_whose_answer_is_lost_is_unsure_and_can_be_settled"),
        (LosesKeys, "a_reply_that_is_sent_again_after_a_restart_is_not_doubled"),
        (LeavesTasks, "disconnecting_ends_everything_and_may_be_repeated"),
        (CannotEdit, "an_edit_replaces_the_text_where_that_is_possible"),
        (TakesEditsForDone, "an_edit_without_a_network_is_no_success"),
        (
            FindsNothingWithoutANetwork,
            "a_platform_that_cannot_be_asked_is_not_taken_for_one_that_has_nothing",
        ),
        (GivesUpTooSoon, "a_network_that_comes_back_brings_what_was_written"),
        (GivesUpTooSoon, "a_server_that_restarts_is_found_again"),
        (SendsFilesAlone, "a_file_is_sent_where_that_is_possible"),
        (ForgetsFiles, "a_file_comes_as_an_attachment"),
        (ForgetsFiles, "a_strangers_file_is_neither_fetched_nor_kept"),
        (KeepsFilesItself, "a_strangers_file_is_neither_fetched_nor_kept"),
    ],
)
def test_the_kit_finds_an_adapter_with_a_fault(
    tmp_path: Path, kind: type[LoopbackAdapter], scenario: str
):
    with LoopbackServer() as server:
        world = FaultyWorld(server, tmp_path, kind)
        with pytest.raises((AssertionError, TimeoutError, ValueError)):
            getattr(PlatformConformance(), f"test_{scenario}")(world)
