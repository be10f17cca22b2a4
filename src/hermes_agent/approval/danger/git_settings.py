"""Tell settings of git by which it would run a program from those of everyday commands."""

import re

_RUNS = re.compile(
    r"^(?:core\.(?:sshcommand|pager|editor|fsmonitor|hookspath|askpass|gitproxy)|pager\..*|alias\..*"
    r"|diff\.external|.*\.(?:textconv|command|driver|smudge|clean|process|cmd|program|helper)"
    r"|include(?:if\..*)?\.path|remote\..*\.(?:uploadpack|receivepack|vcs)"
    r"|sequence\.editor|credential\.helper|gpg\.program|protocol\.ext\.allow|init\.templatedir)$",
    re.IGNORECASE,
)
_HARMLESS_VALUES = frozenset({"", "cat", "less", "true", "false", ":", "cache", "store", "never"})

_EVERYDAY = re.compile(
    r"^(?:core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode"
    r"|symlinks|autocrlf|eol|safecrlf|sharedrepository|quotepath|abbrev|compression|longpaths"
    r"|whitespace|sparsecheckout|sparsecheckoutcone|untrackedcache|commitgraph|multipackindex)"
    r"|extensions\.[^.]*"
    r"|remote\.(?:pushdefault|.*\.(?:url|pushurl|fetch|push|mirror|tagopt|prune|prunetags|promisor"
    r"|skipfetchall|skipdefaultupdate|partialclonefilter|followremotehead|gh-resolved))"
    r"|branch\.(?:autosetupmerge|autosetuprebase|sort|.*\.(?:remote|merge|pushremote|rebase"
    r"|description|[a-z-]*merge-base|github-[a-z-]*))"
    r"|submodule\.(?:active|recurse|.*\.(?:url|active|branch|ignore|shallow|fetchrecursesubmodules))"
    r"|(?:user|author|committer)\.(?:name|email|signingkey|useconfigonly)"
    r"|(?:commit|tag)\.(?:gpgsign|verbose|sort)|push\.(?:default|followtags|autosetupremote)"
    r"|pull\.(?:rebase|ff)|fetch\.(?:prune|prunetags|parallel|recursesubmodules)"
    r"|merge\.(?:ff|conflictstyle|renames)|rebase\.(?:autosquash|autostash|updaterefs)"
    r"|diff\.(?:algorithm|renames|colormoved|mnemonicprefix|noprefix|context|submodule)"
    r"|log\.(?:date|decorate|follow)|(?:status|column|color|advice|rerere|index|feature|gc)\..*"
    r"|maintenance\.(?:auto|strategy)|init\.defaultbranch|format\.pretty|i18n\..*"
    r"|lfs\.(?:repositoryformatversion|.*\.(?:access|locksverify))|gitflow\..*|git-town\..*)$",
    re.IGNORECASE | re.DOTALL,
)
"""What git and tools around it write by themselves, and people set; none of it runs anything."""
_UPDATES = ("checkout", "rebase", "merge", "none")


def runs_program(name: str, value: str) -> bool:
    """Return whether a setting is known to let git run a program."""
    return bool(_RUNS.match(name)) and value not in _HARMLESS_VALUES


def is_everyday(name: str, value: str) -> bool:
    """Return whether a setting is known to run nothing."""
    if re.fullmatch(r"submodule\..*\.update", name, re.IGNORECASE):
        return value in _UPDATES
    if _RUNS.match(name):
        return value in _HARMLESS_VALUES
    return bool(_EVERYDAY.match(name))
