"""The telling of a reply while it is written: what was sent cannot be taken back, so it is put right."""

from gateway import questions
from hermes_agent.events import Event, FellBack, QuestionAsked, Retrying, StepStored, TextDelta

_NEXT = "\n\n"
_AGAIN = "\n\n[The model broke off and starts again.]\n\n"


class Telling:
    """What a turn reports, as the text to send; it ends with the reply as it is stored."""

    def __init__(self) -> None:
        self._sent: list[str] = []
        self._step: list[str] = []
        """What was sent of the model's last step."""
        self._is_over = True
        """Whether that step has ended, so that the next words begin another one."""

    @property
    def whole(self) -> str:
        """All that was sent."""
        return "".join(self._sent)

    def hear(self, event: Event) -> str:
        """The text that an event adds."""
        match event:
            case TextDelta(text=text):
                return self._say(text)
            case Retrying() | FellBack():
                return self._begin_again()
            case QuestionAsked():
                asked = [*questions.words(event), *questions.how_to_answer(event)]
                return self._aside("\n".join(asked))
            case StepStored():
                self._is_over = True
            case _:
                pass
        return ""

    def end(self, reply: str) -> str:
        """What is still missing of the reply."""
        told, wanted = "".join(self._step).strip(), reply.strip()
        if wanted == told:
            return ""
        if told and wanted.startswith(told) and not self._is_over:
            return self._send(wanted[len(told) :])
        return self._aside(wanted)

    def _say(self, text: str) -> str:
        if self._is_over and text:
            self._step.clear()
            self._is_over = False
            text = _NEXT + text if self._sent else text
        self._step.append(text)
        return self._send(text)

    def _begin_again(self) -> str:
        if self._is_over or not self._step:
            return ""
        self._step.clear()
        return self._send(_AGAIN)

    def _aside(self, text: str) -> str:
        """Words that stand by themselves."""
        self._step.clear()
        self._is_over = True
        return self._send(_NEXT + text if self._sent else text)

    def _send(self, text: str) -> str:
        if text:
            self._sent.append(text)
        return text
