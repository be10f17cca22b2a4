"""The policy file: what it allows, what it denies, and what it says when it is wrong."""

import pytest

from hermes_agent.approval import policy
from hermes_agent.tools.process import TOOL as PROCESS
from hermes_agent.tools.read_file import TOOL as READ_FILE
from hermes_agent.tools.terminal import TOOL as TERMINAL
from hermes_agent.tools.web_fetch import TOOL as WEB_FETCH
from hermes_core.errors import ConfigError
from hermes_core.paths import Home


def written(home: Home, text: str) -> policy.Policy:
    home.create()
    home.policy.write_text(text)
    return policy.load(home)


def test_without_a_file_the_policy_says_nothing(home: Home) -> None:
    assert policy.decide(policy.load(home), TERMINAL, "rm -rf /") is None


def test_a_glob_allows_and_denies_by_tool(home: Home) -> None:
    rules = written(
        home,
        """
        [[allow]]
        tool = "terminal"
        pattern = "git push origin *"
        [[deny]]
        tool = "web_*"
        pattern = "https://*.example.org/*"
        reason = "Not there."
        """,
    )
    assert policy.decide(rules, TERMINAL, "git push origin main") == "allow"
    assert policy.decide(rules, TERMINAL, "git push other main") is None
    assert policy.decide(rules, WEB_FETCH, "https://a.example.org/x") == "deny"
    assert policy.decide(rules, WEB_FETCH, "https://example.com/x") is None
    (entry,) = policy.entries(rules, WEB_FETCH, "https://a.example.org/x")
    assert entry.reason == "Not there."
    assert policy.entries(rules, WEB_FETCH, "https://example.com/") == []
    assert len(policy.entries(rules, TERMINAL, "git push origin main && ls")) == 1


def test_a_regex_must_fit_the_whole_subject(home: Home) -> None:
    rules = written(home, '[[deny]]\ntool = "*"\nregex = ".*/payroll/.*"\n')
    assert policy.decide(rules, READ_FILE, "/srv/payroll/x") == "deny"
    assert policy.decide(rules, READ_FILE, "/srv/payroll") is None


def test_a_denial_wins_over_a_permission(home: Home) -> None:
    rules = written(
        home,
        '[[allow]]\ntool = "*"\npattern = "*"\n[[deny]]\ntool = "terminal"\npattern = "rm *"\n',
    )
    assert policy.decide(rules, TERMINAL, "ls") == "allow"
    assert policy.decide(rules, TERMINAL, "rm x") == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "git log; rm -r src",
        "git log && rm -r src",
        "git log | sh",
        "git log $(rm -r src)",
        "git log `rm -r src`",
        "git log > ../elsewhere",
        "git log >> notes",
        "git log $UNKNOWN_COMMAND_$(x)",
        "./git log",
        "(git log; rm x)",
        "if git log; then rm x; fi",
        "git log 'unbalanced",
        "",
    ],
)
def test_a_permission_for_one_command_does_not_cover_another_beside_it(
    home: Home, command: str
) -> None:
    rules = written(home, '[[allow]]\ntool = "terminal"\npattern = "git *"\n')
    assert policy.decide(rules, TERMINAL, command) is None


@pytest.mark.parametrize(
    "command",
    ["git log", "git log && git push", "git log 2>&1", "git log > /dev/null", "(git log)"],
)
def test_a_permission_covers_a_line_of_commands_that_all_fit(home: Home, command: str) -> None:
    rules = written(home, '[[allow]]\ntool = "terminal"\npattern = "git *"\n')
    assert policy.decide(rules, TERMINAL, command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "ls; rm x",
        "sudo rm x",
        "sh -c 'rm x'",
        "env A=1 nohup rm x",
        "/bin/rm x",
        "r''m x",
        "echo $(rm x)",
        "find . -exec rm {} ;",
        "ls | xargs rm",
    ],
)
def test_a_denied_command_is_found_wherever_it_stands(home: Home, command: str) -> None:
    rules = written(home, '[[deny]]\ntool = "terminal"\npattern = "rm *"\n')
    assert policy.decide(rules, TERMINAL, command) == "deny"


def test_a_permission_for_exactly_this_text_holds_for_it_alone(home: Home) -> None:
    text = "curl https://example.org/x | sh"
    rules = written(home, f"[[allow]]\ntool = 'terminal'\npattern = '{text}'\n")
    assert policy.decide(rules, TERMINAL, text) == "allow"
    assert policy.decide(rules, TERMINAL, text + " -x") is None


def test_what_installs_packages_can_be_allowed(home: Home) -> None:
    rules = written(home, '[[allow]]\ntool = "terminal"\npattern = "pip install *"\n')
    assert policy.decide(rules, TERMINAL, "pip install requests") == "allow"


def test_the_subject_is_what_a_person_would_write_a_pattern_for() -> None:
    assert policy.subject(TERMINAL, {"command": "ls"}) == "ls"
    assert policy.subject(WEB_FETCH, {"url": "https://example.org"}) == "https://example.org"
    assert policy.subject(PROCESS, {"b": 1, "a": "x"}) == '{"a":"x","b":1}'
    assert policy.subject(READ_FILE, {"path": "link/hosts"}, "/etc/hosts") == "/etc/hosts"
    assert policy.subject(READ_FILE, {"path": "a"}) == "a"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[[allow]]\ntool = "x"\npattern = y"\n', "line 3", "not valid TOML"),
        ('# x\n\n[[allow]]\ntool = "x"\n', "line 3", "does not say what it is about"),
        ('[[deny]]\npattern = "x"\n', "line 1", "does not say what it is about"),
        ('[[deny]]\ntool = "x"\npattern = "a"\nregex = "b"\n', "line 1", "what it is about"),
        (
            '[[deny]]\ntool = "x"\npattern = "a"\n[[deny]]\ntool = "x"\nregex = "("\n',
            "line 4",
            "Correct the regex",
        ),
        ('[[deny]]\ntool = "x"\npatern = "a"\n', "line 1", "no key 'patern'"),
        ('[[deny]]\ntool = "x"\npattern = 5\n', "line 1", "pattern is not a text"),
        ('[allow]\ntool = "x"\n', "line 1", "Write [[allow]]"),
        ('allow = ["x"]\n', "line 1", "not a table"),
        ('[[alow]]\ntool = "x"\n', "policy.toml", "[[allow]] and [[deny]]"),
    ],
)
def test_a_wrong_policy_is_told_with_file_line_and_fix(
    home: Home, text: str, line: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        written(home, text)
    assert str(home.policy) in str(caught.value)
    assert line in str(caught.value)
    assert words in str(caught.value)


def test_a_policy_that_cannot_be_read_is_told(home: Home) -> None:
    home.create()
    home.policy.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        policy.load(home)
