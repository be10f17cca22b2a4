"""Telegram as a surface: direct chats and the topics of a forum, on the Bot API double."""

from gateway.platforms.testing.network import Proxy
from tests.gateway.chaos.surface import Link, Seen, Surface
from tests.gateway.servers.telegram import NAME, BotApi, Person

_FORUM = -100_500
_FIRST_PERSON = 2001
_FIRST_TOPIC = 50
_TOPICS = 3


class TelegramSurface(Surface):
    """The bot and those who write to it; the last conversations are topics of one group."""

    name = "telegram"
    resend = "marked"

    def __init__(self) -> None:
        self._api = BotApi()
        self._people: dict[str, Person] = {}
        self._topics: dict[str, int] = {}

    def open(self) -> None:
        self._api.__enter__()
        self._proxy = Proxy("127.0.0.1", int(self._api.url.rpartition(":")[2]))
        self._proxy.__enter__()
        self.links = [Link(self._proxy, b"/sendMessage")]

    def close(self) -> None:
        self._proxy.__exit__(None, None, None)
        self._api.__exit__()

    def begin(self, count: int) -> list[str]:
        topics = _TOPICS if count > _TOPICS else 0
        for number in range(count):
            talk = f"chat{number}"
            self._people[talk] = Person(_FIRST_PERSON + number, f"Person{number}")
            if number >= count - topics:
                self._topics[talk] = _FIRST_TOPIC + number
        names = {topic: f"Topic {topic}" for topic in self._topics.values()}
        self._api.world.add_chat(_FORUM, "supergroup", "Forum", names)
        return list(self._people)

    def settings(self) -> str:
        return (
            f'[gateway.platforms.telegram]\ntoken = "{self._api.token}"\n'
            f'api_url = "http://{self._proxy.address}"\npoll_s = 5\n'
        )

    def owners(self) -> list[str]:
        return [str(person.id) for person in self._people.values()]

    def say(self, talk: str, text: str) -> str:
        person, topic, world = self._people[talk], self._topics.get(talk), self._api.world
        if topic is None:
            return str(world.write(text, person=person))
        command, space, rest = text.partition(" ")
        meant = f"{command}@{NAME}{space}{rest}" if text.startswith("/") else f"@{NAME} {text}"
        return str(world.write(meant, person=person, chat=_FORUM, thread=topic))

    def seen(self, talk: str) -> list[Seen]:
        topic = self._topics.get(talk)
        chat = self._people[talk].id if topic is None else _FORUM
        messages = self._api.world.shown(chat, thread=topic)
        return [
            Seen(message.text, str(message.reply_to or ""))
            for message in messages
            if message.is_bot
        ]

    def sends(self) -> int:
        return self._api.count("sendMessage")
