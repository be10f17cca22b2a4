"""The whole gateway on email, as a process that is killed at the worst moments."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.gateway.harness import Process, World
from tests.gateway.servers.mail import DOMAIN, MailServer, letter, mail_server, needs_dovecot

pytestmark = [pytest.mark.servers, needs_dovecot]

HERMES = f"hermes@{DOMAIN}"
PEOPLE = [f"{name}@people.test" for name in ("ann", "bob", "eve")]
ROUNDS = 4

_CONFIG = """
[model]
name = "scripted"
base_url = "{model}"
api_key = "scripted-key"

[agent]
titles = false

[gateway.owners]
email = {people}

[gateway.platforms.email]
address = "{address}"
imap_host = "127.0.0.1"
imap_port = {imap}
smtp_port = {smtp}
imap_security = "plain"
smtp_security = "plain"
find_sent_s = 3.0
trusted_authserv = "{domain}"
"""


@pytest.fixture
def server(world: World) -> Iterator[MailServer]:
    with mail_server() as mail:
        text = _CONFIG.format(
            model=world.model.openai_url,
            people=PEOPLE,
            address=HERMES,
            imap=mail.imap_port,
            smtp=mail.smtp_port,
            domain=DOMAIN,
        )
        mail.verdict = "dmarc=pass header.from=people.test"
        world.home.config.write_text(text)
        yield mail


def gateway(world: World, server: MailServer) -> Process:
    return Process(world, EMAIL_PASSWORD=server.password).wait_until_up()


def write(server: MailServer, person: str, number: int) -> None:
    """A mail in the one thread that each person has."""
    root = f"<{person.partition('@')[0]}-0@people.test>"
    name = root.replace("-0@", f"-{number}@")
    mail = letter(
        person, HERMES, f"mail {number} of {person}", message_id=name,
        references=root if number else "",
    )  # fmt: skip
    server.deliver(mail, HERMES)


def test_every_mail_is_answered_once_while_the_gateway_is_killed(
    world: World, server: MailServer
) -> None:
    with gateway(world, server):
        pass  # from here on the mailbox is known
    for number in range(ROUNDS):
        with gateway(world, server) as running:
            for person in PEOPLE:
                write(server, person, number)
            # The SMTP server has it, and the gateway may not know that yet.
            server.wait_for_mail(PEOPLE[number % len(PEOPLE)], number + 1)
            running.kill()
    with gateway(world, server):
        for person in PEOPLE:
            server.wait_for_mail(person, ROUNDS)
    for person in PEOPLE:
        name = person.partition("@")[0]
        replies = server.mails_to(person)
        answered = Counter(mail["In-Reply-To"] for mail in replies)
        assert answered == {f"<{name}-{number}@people.test>": 1 for number in range(ROUNDS)}
        assert {mail["References"].split()[0] for mail in replies} == {f"<{name}-0@people.test>"}
        assert all(person in mail.as_string() for mail in replies)


def test_strangers_hear_nothing(world: World, server: MailServer) -> None:
    with gateway(world, server):
        server.deliver(letter("spam@people.test", HERMES, "Buy"), HERMES)
        write(server, PEOPLE[0], 0)
        server.wait_for_mail(PEOPLE[0])
    assert server.mails_to("spam@people.test") == []
