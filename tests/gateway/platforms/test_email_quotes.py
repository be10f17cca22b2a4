"""What is new in a mail: the shapes that mail programs really write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.platforms.email.markup import text_of_html
from gateway.platforms.email.quotes import Writer, is_forward, new_text

US = Writer("hermes@mail.test", "Hermes")

GMAIL = """\
Yes, please.

On Sun, Nov 15, 2026 at 9:12 AM Hermes <hermes@mail.test> wrote:

> Shall I book it?
>
> Hermes
"""
GMAIL_WRAPPED = """\
Yes, please.

On Sun, Nov 15, 2026 at 9:12 AM A Program With A Very Long Name In Her Contacts
<Hermes@mail.test> wrote:

> Shall I book it?
"""
GMAIL_GERMAN = """\
Ja, bitte.

Am So., 15. Nov. 2026 um 09:12 Uhr schrieb Hermes <hermes@mail.test>:

> Soll ich buchen?
"""
THUNDERBIRD_GERMAN = """\
Am 15.11.26 um 09:12 schrieb Hermes:
> Soll ich buchen?

Ja, bitte.
"""
FRENCH = """\
Oui, merci.

Le dim. 15 nov. 2026 à 09:12, Hermes <hermes@mail.test> a écrit :

> Dois-je réserver ?
"""
APPLE = """\
Yes, please.

> On 15 Nov 2026, at 09:12, Hermes <hermes@mail.test> wrote:
>
> Shall I book it?
"""
APPLE_FRENCH = """\
Oui, merci.
Envoyé de mon iPhone

> Le 15 nov. 2026 à 09:12, Hermes <hermes@mail.test> a écrit :
>
> Dois-je réserver ?
"""
OUTLOOK = """\
Yes, please.

________________________________
From: Hermes <hermes@mail.test>
Sent: Sunday, November 15, 2026 9:12 AM
To: Ann <ann@people.test>
Subject: Re: Journey

Shall I book it?
"""
OUTLOOK_GERMAN = """\
Ja, bitte.

Von: Hermes <hermes@mail.test>
Gesendet: Sonntag, 15. November 2026 09:12
An: Ann <ann@people.test>
Betreff: AW: Reise

Soll ich buchen?
"""
OUTLOOK_FRENCH = """\
Oui, merci.

De : Hermes <hermes@mail.test>
Envoyé : dimanche 15 novembre 2026 09:12
À : Ann <ann@people.test>
Objet : RE: Voyage

Dois-je réserver ?
"""
OUTLOOK_OLD = """\
Yes, please.

-----Original Message-----
From: Hermes [mailto:hermes@mail.test]
Sent: Sunday, November 15, 2026 9:12 AM

Shall I book it?
"""
OUTLOOK_BOLD = """\
Yes, please.

*From:* Hermes <hermes@mail.test>
*Sent:* Sunday, November 15, 2026 9:12 AM
*To:* Ann
*Subject:* Journey

Shall I book it?
"""
MOBILE = """\
Yes, please.

Get Outlook for Android
________________________________
From: Hermes <hermes@mail.test>
Sent: Sunday, November 15, 2026 9:12:00 AM
To: Ann <ann@people.test>
Subject: Re: Journey

Shall I book it?
"""
BOTTOM = """\
On 2026-11-15 09:12, Hermes wrote:
> Shall I book it?
>
> > An older line
>
> Hermes

Yes, please.

--\x20
Ann
https://people.test
"""
UNMARKED = """\
Yes, please.

On Sun, Nov 15, 2026 at 9:12 AM, Hermes <hermes@mail.test> wrote:

Shall I book it?

Hermes
"""
PROTON = """\
Yes, please.

Sent with Proton Mail secure email.

------- Original Message -------
On Sunday, November 15th, 2026 at 09:12, Hermes <hermes@mail.test> wrote:

> Shall I book it?
"""
CHINESE = "好的。\n\nHermes <hermes@mail.test> 于2026年11月15日周日 09:12写道：\n\n> 要预订吗？\n"
SPANISH = (
    "Sí.\n\nEl dom, 15 nov 2026 a las 9:12, Hermes (<hermes@mail.test>) escribió:\n\n> ¿Reservo?\n"
)
ITALIAN = (
    "Sì.\n\nIl giorno dom 15 nov 2026 alle ore 09:12 Hermes <hermes@mail.test> ha scritto:\n\n> ?\n"
)
DUTCH = "Ja.\n\nOp zo 15 nov 2026 om 09:12 schreef Hermes <hermes@mail.test>:\n\n> Boeken?\n"
OTHER_LANGUAGE = "はい。\n\n2026年11月15日(日) 9:12 Hermes <hermes@mail.test>:\n\n> 予約しますか?\n"


@pytest.mark.parametrize(
    ("mail", "new"),
    [
        (GMAIL, "Yes, please."),
        (GMAIL_WRAPPED, "Yes, please."),
        (GMAIL_GERMAN, "Ja, bitte."),
        (THUNDERBIRD_GERMAN, "Ja, bitte."),
        (FRENCH, "Oui, merci."),
        (APPLE, "Yes, please."),
        (APPLE_FRENCH, "Oui, merci."),
        (OUTLOOK, "Yes, please."),
        (OUTLOOK_GERMAN, "Ja, bitte."),
        (OUTLOOK_FRENCH, "Oui, merci."),
        (OUTLOOK_OLD, "Yes, please."),
        (OUTLOOK_BOLD, "Yes, please."),
        (MOBILE, "Yes, please."),
        (BOTTOM, "Yes, please."),
        (UNMARKED, "Yes, please."),
        (PROTON, "Yes, please."),
        (CHINESE, "好的。"),
        (SPANISH, "Sí."),
        (ITALIAN, "Sì."),
        (DUTCH, "Ja."),
        (OTHER_LANGUAGE, "はい。"),
    ],
)
def test_the_history_is_left_out(mail: str, new: str) -> None:
    assert new_text(mail, US) == new


@pytest.mark.parametrize(
    "mail",
    [
        # Answers between the lines have their meaning from what is above them.
        "On 2026-11-15, Hermes wrote:\n> Red or blue?\n\nBlue.\n\n> Large or small?\n\nSmall.",
        # Somebody chose this line.
        "> the last paragraph\n\nMake it shorter.",
        # Words that only look like an attribution or like headers.
        "On Monday I read what Ann wrote:\nnothing of interest.",
        "From: Berlin\nI want to leave at nine.",
        "A list:\n--- first\n--- second",
        # A forward below a word.
        "What do you think?\n\n---------- Forwarded message ---------\nFrom: Bob <b@people.test>\n"
        "Date: Sun, Nov 15\nSubject: Offer\nTo: Ann\n\nThe offer.",
        "Look.\n\nBegin forwarded message:\n\n> From: Bob\n> Subject: Offer\n>\n> The offer.",
        # What nobody says to be ours may be what it is about.
        "Please translate this:\n\n> Guten Tag, wie geht es Ihnen?\n> Bis morgen.",
        "What of this mail that I got?\n\nFrom: Bob <bob@shop.test>\nSent: Monday\nTo: Ann\n"
        "Subject: Your order\n\nIt is late.",
        "What of this?\n\n-----Original Message-----\nFrom: Bob\nSent: Monday\n\nIt is late.",
        "Is it true?\n\nOn 3 May 2024 Carl <carl@people.test> wrote:\n\nThe moon is made of cheese.",
        "Is it true?\n\nOn 3 May 2024 Carl <carl@people.test> wrote:\n> It is made of cheese.",
        "Is it true?\n\n> On 3 May 2024 Carl wrote to Hermes@people.test:\n> It is made of cheese.",
        "Explain this file:\n\nname: x\n--\nrest: the second half",
        # Nothing new at all: then the old is what is meant.
        "> Shall I book it?",
        "From: Hermes <hermes@mail.test>\nSent: Sunday\nTo: Ann\nSubject: x\n\nText",
    ],
)
def test_what_somebody_means_stays(mail: str) -> None:
    assert new_text(mail, US) == mail


@pytest.mark.parametrize(
    ("mail", "new"),
    [
        ("Yes.\n\n-- \nAnn\n+49 30 1234", "Yes."),
        ("Yes.\n\nSent from my iPhone", "Yes."),
        ("Ja.\n\nVon meinem iPhone gesendet\n", "Ja."),
        ("Ja.\n\nGesendet mit der GMX Mail App", "Ja."),
        ("-- \nAnn", "-- \nAnn"),
        ("Yes.\n-- \n" + "line\n" * 40, "Yes.\n-- \n" + "line\n" * 39 + "line"),
    ],
)
def test_a_signature_is_left_out(mail: str, new: str) -> None:
    assert new_text(mail, US) == new


@pytest.mark.parametrize("subject", ["Fwd: Offer", "FW: Offer", "WG: Angebot", "TR : Offre"])
def test_a_forward_is_known_by_its_subject(subject: str) -> None:
    assert is_forward(subject)
    assert not is_forward(f"Re: {subject}")


GMAIL_HTML = (
    '<div dir="ltr">Yes, <b>please</b>.</div><br><div class="gmail_quote"><div dir="ltr" '
    'class="gmail_attr">On Sun, Hermes wrote:<br></div><blockquote class="gmail_quote">'
    "<div>Shall I <div>book</div> it?</div></blockquote></div>"
)
APPLE_HTML = (
    "<html><head><style>p{}</style></head><body>Yes, please.<br><blockquote type='cite'>On 15 Nov,"
    " Hermes wrote:<br>Shall I?</blockquote></body></html>"
)
THUNDERBIRD_HTML = (
    '<div class="moz-cite-prefix">On 15.11.26, Hermes wrote:<br></div><blockquote type="cite">'
    '<p>Shall I?</p></blockquote><p>Yes, please.</p><div class="moz-signature">-- <br>Ann</div>'
)


PASTED_HTML = (
    "<p>Please translate this:</p><blockquote type='cite'><p>Guten Tag</p><p>Bis morgen</p></blockquote>"
    '<div class="gmail_signature">Ann</div>'
)


@pytest.mark.parametrize(
    ("html", "new"),
    [
        (GMAIL_HTML, "Yes, please."),
        (APPLE_HTML, "Yes, please."),
        (THUNDERBIRD_HTML, "Yes, please."),
        (PASTED_HTML, "Please translate this:\n\n> Guten Tag\n>\n> Bis morgen"),
        ("<p>1 &lt; 2</p>", "1 < 2"),
        ("<blockquote type=cite>All of it</blockquote>", "All of it"),
    ],
)
def test_of_html_too_only_what_we_wrote_is_left_out(html: str, new: str) -> None:
    assert new_text(text_of_html(html), US) == new


def test_html_is_read_whole_when_the_history_is_wanted() -> None:
    assert "> Shall I" in text_of_html(GMAIL_HTML)


@given(st.text(alphabet="<>/![]-abdiv blockquote=\"'&;\n"))
def test_no_html_is_too_broken(html: str) -> None:
    text_of_html(html)


_LINES = st.sampled_from(
    ["", "text", "> quoted", "-- ", "--", "On 1.1.2026 Ann <a@b.c> wrote:", "From: x", "To: y",
     "Sent: z", "-----Original Message-----", "Begin forwarded message:", "Sent from my iPhone", "_____"]
)  # fmt: skip


@given(st.lists(_LINES))
def test_something_always_remains_and_nothing_is_invented(lines: list[str]) -> None:
    text = "\n".join(lines)
    new = new_text(text, US)
    assert bool(new) == bool(text.strip())
    assert set(new.split("\n")) <= {
        line for original in lines for line in (original, original.strip())
    } | {""}
