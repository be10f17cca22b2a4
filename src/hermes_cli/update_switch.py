"""Put a new version in the place of the old one, check it there, and undo that if the check fails.

This file runs by itself: `hermes update` copies it beside the environments and starts the copy with the
base interpreter, so that nothing is imported from an environment that is being replaced. It uses only
the standard library. The journal names the step, and a file in the new environment tells the two apart;
so the next start of a killed switch knows what to finish or to undo. Decisions: docs/adr/0023.
"""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

MARK = ".hermes-update"
"""A file in the new environment."""
LOCK_VARIABLE = "HERMES_STORE_LOCK"
READY, STOPPING, SWITCHING, CHECKING, STARTING, ROLLBACK, DONE = (
    "ready", "stopping", "switching", "checking", "starting", "rollback", "done",
)  # fmt: skip
_EXIT_FAILURE = 1
_EXIT_INTERRUPTED = 130
_DEGRADED = 4
_COMMAND_TIMEOUT_S = 600.0
_LOCK_TIMEOUT_S = 20.0
_HEALTH_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.1
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_COPY = """
import sys, apsw
source, target = (apsw.Connection(path) for path in sys.argv[1:])
with target.backup("main", source, "main") as copy:
    while not copy.done:
        copy.step(-1)
"""
_FACTS = """
import json, sys, apsw
store = apsw.Connection(sys.argv[1])
tables = [name for (name,) in store.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
rows = {name: store.execute(f"SELECT count(*) FROM {name}").get
        for name in ("messages", "inbox") if name in tables}
print(json.dumps({"schema": store.pragma("user_version"), "rows": rows}))
"""


held: list[int] = []
"""The lock of the update, which outlives us while a program that we started runs."""


class SwitchError(Exception):
    """The new version cannot be used; the text says why."""


@dataclass
class Journal:
    """Store what an update did so far, and what it needs to go on."""

    prefix: str
    home: str
    database: str
    """The store; empty when there is no home yet."""
    old: str
    new: str
    backup: str = ""
    state: str = READY
    gateway: bool = False
    """Whether a gateway ran, and must run again at the end."""
    degraded: bool = False
    """Whether one of its platforms was not connected."""
    baseline: list[str] = field(default_factory=list[str])
    """The problems that the old version reported as well."""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    """Schema and number of accepted messages when the store was last baseline to be at rest."""


class Files:
    """The folder of an update, beside the environment."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.journal = work / "journal.json"
        self.environment = work / "environment"
        """The environment that is not in its place: first the new one, then the old one."""
        self.store = work / "state.db"

    def load(self) -> Journal | None:
        """Return the journal, or None when nothing was begun that matters."""
        try:
            return Journal(**json.loads(self.journal.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def save(self, journal: Journal) -> None:
        """Replace the journal; it is on disk when this returns."""
        draft = self.journal.with_suffix(".new")
        with draft.open("w", encoding="utf-8") as file:
            json.dump(asdict(journal), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.journal)
        _sync(self.work)

    def remove(self) -> None:
        """Remove the folder; the journal first, so that the rest means nothing."""
        self.journal.unlink(missing_ok=True)
        shutil.rmtree(self.work, ignore_errors=True)


def hold(lock: int) -> None:
    """Pass a lock on to the programs that are started."""
    held.append(lock)


def exchange(place: Path, other: Path) -> None:
    """Exchange two folders in one step of the file system; raises OSError where that is impossible."""
    libc = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(place), os.fsencode(other)
    if sys.platform == "darwin":
        failed = libc.renamex_np(first, second, _RENAME_EXCHANGE)
    elif hasattr(libc, "renameat2"):
        failed = libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
    else:
        raise OSError("this system has no renameat2")
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(place))
    _sync(place.parent)
    _sync(other.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def run(
    environment: Path,
    *words: str,
    variables: dict[str, str] | None = None,
    keep: tuple[int, ...] = (),
) -> "subprocess.CompletedProcess[str]":
    """Run the interpreter of an environment; the descriptors in `keep` stay open in it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        return subprocess.run(
            [str(environment / "bin" / "python"), *words],
            env=inherited | (variables or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
            pass_fds=(*keep, *held),
            start_new_session=True,  # Ctrl+C is for us
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SwitchError(f"{' '.join(words[:4])} failed: {error}") from error


def hermes(
    environment: Path,
    home: Path | str,
    *words: str,
    lock: int = -1,
    more: dict[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run the program of an environment with a home, whose store lock may be ours."""
    variables = {**(more or {}), "HERMES_HOME": str(home)}
    if lock >= 0:
        variables[LOCK_VARIABLE] = str(lock)
    keep = (lock,) if lock >= 0 else ()
    return run(environment, "-m", "hermes_cli.main", *words, variables=variables, keep=keep)


def problems(environment: Path, home: Path | str, lock: int = -1) -> dict[str, str]:
    """Return what `hermes doctor` reports as a problem, by its check; raises SwitchError."""
    done = hermes(environment, home, "doctor", "--json", lock=lock)
    try:
        findings = json.loads(done.stdout)
        return {each["what"]: each["detail"] for each in findings if each["state"] == "problem"}
    except (ValueError, TypeError, KeyError) as error:
        raise SwitchError(f"hermes doctor failed: {reason_of(done)}") from error


def check(environment: Path, home: Path | str, baseline: list[str], lock: int = -1) -> None:
    """Raise SwitchError unless a version works with a home: health, and reading a conversation."""
    found = problems(environment, home, lock)
    if fresh := [f"{what}: {detail}" for what, detail in found.items() if what not in baseline]:
        raise SwitchError(f"hermes doctor reports {'; '.join(fresh)}")
    if not Path(home, "state.db").exists():
        return
    listed = _read(environment, home, lock, "list", "--limit", "1")
    for row in listed:
        _read(environment, home, lock, "show", row["id"])


def _read(environment: Path, home: Path | str, lock: int, *words: str) -> Any:  # noqa: ANN401 -- JSON
    done = hermes(environment, home, "sessions", *words, "--json", lock=lock)
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise SwitchError(f"A conversation cannot be read: {reason_of(done)}") from error


def reason_of(done: "subprocess.CompletedProcess[str]") -> str:
    """Return why a program failed: the error of Hermes, or else its last line."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    for line in lines:
        if line.startswith("hermes: "):
            return line.removeprefix("hermes: ")
        with suppress(ValueError, TypeError, KeyError):
            return json.loads(line)["error"]["message"]
    return lines[-1] if lines else f"exit status {done.returncode}"


def others(prefix: Path, gateway: int | None = None) -> list[str]:
    """Return the processes that run from an environment, but us and the gateway with its children.

    Empty where there is no /proc.
    """
    own = {os.getpid(), *_ancestors(os.getpid())}
    starts = tuple(f"{place}/bin/" for place in {prefix, prefix.resolve()})
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            if not words[0].startswith(starts) or pid in own:
                continue
            if gateway is None or gateway not in (pid, *_ancestors(pid)):
                found.append(f"{' '.join(words).strip()} (process {pid})")
    return found


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
            pid = int(stat.rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
        yield pid


class Switch:
    """One update, from a checked environment beside the old one to its end."""

    def __init__(self, work: Path, journal: Journal) -> None:
        self.files = Files(work)
        self.journal = journal
        self.prefix = Path(journal.prefix)
        self._variables: dict[str, str] = {}

    @property
    def is_switched(self) -> bool:
        """Return whether the new environment is in its place."""
        return (self.prefix / MARK).exists()

    def note(self, state: str, **changes: Any) -> None:  # noqa: ANN401 -- any field
        """Store the step that begins now."""
        self.journal = replace(self.journal, state=state, **changes)
        self.files.save(self.journal)

    # -- forward -----------------------------------------------------------------------------

    def go(self) -> None:
        """Switch; raises SwitchError and KeyboardInterrupt, after which `undo` is due."""
        self._stop_gateway()
        with self._alone() as lock:
            if busy := others(self.prefix):
                raise SwitchError(f"Close this first: {busy[0]}.")
            baseline = problems(self.prefix, self.journal.home, lock)
            self._keep_store()
            self.note(SWITCHING, baseline=list(baseline), facts=self._facts(self.prefix))
            say(f"Switching to version {self.journal.new}.")
            exchange(self.prefix, self.files.environment)
            self._check(lock)
        self.finish()

    def _check(self, lock: int) -> None:
        self.note(CHECKING)
        say("Checking it with your home.")
        check(self.prefix, self.journal.home, self.journal.baseline, lock)
        facts = self._facts(self.files.environment)
        self.note(STARTING, facts=self.journal.facts | {"rows": facts.get("rows")})

    def check_again(self) -> None:
        """Check the new version, which is in its place already; raises SwitchError."""
        with self._alone() as lock:
            self._check(lock)

    def finish(self) -> None:
        """Start the gateway, if one ran, and remove the old version; raises SwitchError."""
        if self.journal.gateway:
            say("Starting the gateway.")
            self._start_gateway()
        self.end()
        say(f"Hermes is version {self.journal.new} now.")
        if self.journal.backup:
            say(f"The backup is {self.journal.backup}. Delete it when you no longer need it.")

    def end(self) -> None:
        """Remove the version that is not needed any more."""
        _ignore_signals()  # from here on there is no way back
        self.note(DONE)
        (self.prefix / MARK).unlink(missing_ok=True)
        self.files.remove()

    # -- back --------------------------------------------------------------------------------

    def undo(self, reason: str) -> None:
        """Put the old version back; the store too, if the new one has changed its schema."""
        _ignore_signals()
        if self.is_switched:
            if self.journal.gateway:
                hermes(self.prefix, self.journal.home, "gateway", "stop")
            with self._alone():
                if can_return := self._restore_store():
                    self.note(ROLLBACK)
                    exchange(self.prefix, self.files.environment)
            if not can_return:
                self._stay(reason)
                return
        elif self.journal.backup and self.journal.state != ROLLBACK:
            Path(self.journal.backup).unlink(missing_ok=True)  # nothing was changed
        self.note(ROLLBACK)
        failure = self._start_again()
        self.files.remove()
        say(
            f"The update failed, and version {self.journal.old} stays: {reason}{failure}",
            error=True,
        )

    def _restore_store(self) -> bool:
        """Restore the store if the new version migrated it; return False if it was used since."""
        before = self.journal.facts
        now = self._facts(self.files.environment)
        if now.get("schema") == before.get("schema"):
            return True
        if now.get("rows") != before.get("rows"):
            return False
        self.note(ROLLBACK)
        self._copy(self.files.store, Path(self.journal.database))
        store = Path(self.journal.database)
        for index in store.parent.glob(f"{store.stem}-search{store.suffix}*"):
            index.unlink(missing_ok=True)  # of the new version; the old one makes its own
        return True

    def _stay(self, reason: str) -> None:
        """Keep the new version, whose store holds messages that the old one could not read."""
        failure = self._start_again()
        self.end()
        say(
            f"Version {self.journal.new} stays, as it has already accepted messages, but it has a"
            f" problem: {reason}{failure}\nRun: hermes doctor",
            error=True,
        )

    def _start_again(self) -> str:
        """Start the gateway that ran before; return what went wrong."""
        if not self.journal.gateway:
            return ""
        try:
            self._start_gateway()
        except SwitchError as error:
            return f"\n{error}"
        return ""

    # -- gateway -----------------------------------------------------------------------------

    def _stop_gateway(self) -> None:
        state = self._gateway()
        pid = state.get("pid")
        if not pid:
            return
        with suppress(OSError):
            self._variables = _environment_of(pid)
        is_degraded = state.get("state") == "degraded"
        self.note(STOPPING, gateway=True, degraded=is_degraded)
        say("Stopping the gateway; running turns finish first.")
        done = hermes(self.prefix, self.journal.home, "gateway", "stop")
        if done.returncode:
            raise SwitchError(f"The gateway does not stop: {reason_of(done)}")

    def _start_gateway(self) -> None:
        """Start the gateway and wait until it is as healthy as before; raises SwitchError."""
        done = hermes(self.prefix, self.journal.home, "gateway", "start", more=self._variables)
        if done.returncode not in (0, _DEGRADED):
            raise SwitchError(f"The gateway does not start: {reason_of(done)}")
        deadline = time.monotonic() + _HEALTH_TIMEOUT_S
        good = ("running", "degraded") if self.journal.degraded else ("running",)
        while (state := self._gateway().get("state")) not in good:
            if time.monotonic() > deadline:
                reason = reason_of(done) if done.returncode else f"it is {state}"
                raise SwitchError(f"The gateway is not healthy: {reason}")
            time.sleep(_POLL_INTERVAL_S)

    def _gateway(self) -> dict[str, Any]:
        """Return the status of the gateway; the state counts only while it runs."""
        if not Path(self.journal.home).is_dir():
            return {}
        done = hermes(self.prefix, self.journal.home, "gateway", "status", "--json")
        try:
            status = cast("dict[str, Any]", json.loads(done.stdout))
        except ValueError as error:
            raise SwitchError(f"hermes gateway status failed: {reason_of(done)}") from error
        return status if status.get("pid") else {}

    # -- store -------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Generator[int]:
        """Keep every other process out of the store; yields the lock, or -1 without a home."""
        if not self.journal.database:
            yield -1
            return
        path = f"{self.journal.database}-open"
        lock = os.open(path, os.O_RDONLY | os.O_CREAT, 0o600)
        try:
            deadline = time.monotonic() + _LOCK_TIMEOUT_S
            while not _is_locked(lock):
                if time.monotonic() > deadline:
                    raise SwitchError("The store is in use. Close every other Hermes.")
                time.sleep(_POLL_INTERVAL_S)
            yield lock
        finally:
            os.close(lock)

    def _keep_store(self) -> None:
        """Copy the store, as nobody can add to it now."""
        if self.journal.database and Path(self.journal.database).exists():
            self.files.store.unlink(missing_ok=True)
            self._copy(Path(self.journal.database), self.files.store)

    def _copy(self, source: Path, target: Path) -> None:
        """Copy a store into another in one transaction, with the libraries of the old version."""
        done = run(self._old, "-c", _COPY, str(source), str(target))
        if done.returncode:
            raise SwitchError(f"The store cannot be copied: {reason_of(done)}")

    def _facts(self, environment: Path) -> dict[str, Any]:
        """Return the schema of the store and how many messages it has accepted."""
        if not self.journal.database or not Path(self.journal.database).exists():
            return {}
        done = run(environment, "-c", _FACTS, self.journal.database)
        if done.returncode:
            raise SwitchError(f"The store cannot be read: {reason_of(done)}")
        return json.loads(done.stdout)

    @property
    def _old(self) -> Path:
        return self.files.environment if self.is_switched else self.prefix


def _ignore_signals() -> None:
    """Ignore what asks us to stop; SIG_IGN would pass on to the gateway that we start."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ignore)


def _ignore(_number: int, _frame: object) -> None:
    """Ignore a signal."""


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _environment_of(pid: int) -> dict[str, str]:
    """Return the variables that a process was started with."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "surrogateescape")
    pairs = (entry.partition("=") for entry in entries.split("\0") if "=" in entry)
    left_out = ("INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET")
    return {name: value for name, _, value in pairs if name not in left_out}


def say(text: str, *, error: bool = False) -> None:
    """Tell the person; a closed terminal does not stop us halfway."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr if error else sys.stdout, flush=True)


def resume(switch: Switch) -> None:
    """Finish what a killed update began, or undo it."""
    state = switch.journal.state
    if state == DONE:
        switch.end()
        say(f"Hermes is version {switch.journal.new} now.")
    elif state == ROLLBACK or not switch.is_switched:
        switch.undo("it was interrupted.")
    else:
        say(f"Finishing the interrupted update to version {switch.journal.new}.")
        if state != STARTING:  # otherwise it was checked, and may have been used since
            switch.check_again()
        switch.finish()


def main(arguments: list[str]) -> int:
    """Switch or resume; return the exit status."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    work = Path(arguments[0])
    hold(int(arguments[1]))
    journal = Files(work).load()
    if journal is None:
        Files(work).remove()
        return 0
    switch = Switch(work, journal)
    try:
        resume(switch) if "--resume" in arguments else switch.go()
    except KeyboardInterrupt:
        return _undone(switch, "it was interrupted.", _EXIT_INTERRUPTED)
    except (SwitchError, OSError) as error:
        return _undone(switch, str(error), _EXIT_FAILURE)
    return 0


def _undone(switch: Switch, reason: str, status: int) -> int:
    try:
        switch.undo(reason)
    except (SwitchError, OSError) as error:
        say(f"{reason} {error}\nThe update is not undone yet. Run: hermes update", error=True)
        return _EXIT_FAILURE
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
