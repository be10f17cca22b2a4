"""Find what Python code would do that needs approval, by its syntax tree.

Names are followed through imports and through constants that are set once. A call that changes files,
runs programs or sends data is told to a Report like the same thing on a command line; ways to hide such
a call (eval, getattr on a module, ctypes, a function passed on) are told as doubts.
"""

import ast
import re
import shlex

from hermes_agent.approval.danger.kinds import Access
from hermes_agent.approval.danger.names import IMPORTS, Names
from hermes_agent.approval.danger.rules.hermes import judge_module
from hermes_agent.approval.danger.run import UNKNOWN, Report, Value

_PROGRAMS = frozenset({
    "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output",
    "subprocess.Popen", "asyncio.create_subprocess_exec",
})  # fmt: skip
_SHELL_LINES = frozenset({
    "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "posix.system",
    "asyncio.create_subprocess_shell", "commands.getoutput", "pty.spawn",
})  # fmt: skip
_DELETES = {
    "os.remove": False, "os.unlink": False, "os.rmdir": False, "os.removedirs": True,
    "shutil.rmtree": True, "Path.unlink": False, "Path.rmdir": False,
}  # fmt: skip
_WRITES = {
    "os.rename": (0, 1), "os.replace": (0, 1), "os.renames": (0, 1), "os.mkdir": (0,),
    "os.makedirs": (0,), "os.truncate": (0,), "os.symlink": (1,), "os.link": (1,), "os.chmod": (0,),
    "os.mknod": (0,), "shutil.move": (0, 1), "shutil.copy": (1,), "shutil.copy2": (1,),
    "shutil.copyfile": (1,), "shutil.copytree": (1,), "shutil.unpack_archive": (1,),
    "shutil.make_archive": (0,), "Path.write_text": (-1,), "Path.write_bytes": (-1,),
    "Path.touch": (-1,), "Path.mkdir": (-1,), "Path.rename": (-1, 0), "Path.replace": (-1, 0),
    "Path.symlink_to": (-1,), "Path.hardlink_to": (-1,), "Path.chmod": (-1,),
}  # fmt: skip
"""Which arguments are written to; -1 is the object itself."""
_READS = {"Path.read_text": -1, "Path.read_bytes": -1, "shutil.copy": 0, "shutil.copyfile": 0,
          "shutil.copy2": 0, "shutil.copytree": 0, "os.listdir": 0}  # fmt: skip
_PRIVILEGE = frozenset({
    "os.chown", "os.lchown", "os.setuid", "os.setgid", "os.seteuid", "os.setegid", "os.chroot",
    "shutil.chown", "os.setgroups", "os.initgroups",
})  # fmt: skip
_STARTS = re.compile(r"os\.(?:exec|spawn|posix_spawn)\w*")
_OPENERS = frozenset({"open", "io.open", "codecs.open", "builtins.open", "os.open"})
_ENDS = frozenset({"os.kill", "os.killpg", "signal.pthread_kill"})
_CONNECTS = re.compile(
    r"socket\.|smtplib\.|ftplib\.|telnetlib\.|paramiko\.|websockets?\.|http\.client\.|imaplib\.|nntplib\."
    r"|xmlrpc\.client\.|asyncio\.open_connection|ssl\.wrap_socket"
)
_HTTP = re.compile(
    r"(?:requests|httpx2?|aiohttp|urllib3|niquests)\.(?:\w+\.)*(\w+)$|urllib\.request\.(urlopen|Request)$"
)
_HTTP_MODULE = re.compile(r"(?:requests|httpx2?|aiohttp|urllib3|niquests)\b")
_SENDING = frozenset({"post", "put", "patch", "delete"})
_HIDES = frozenset({
    "eval", "exec", "compile", "globals", "locals", "vars", "breakpoint", "builtins", "__builtins__",
    "sys.modules", "importlib.reload", "importlib.util.spec_from_file_location", "ctypes", "cffi",
    "pickle.loads", "pickle.load", "marshal.loads", "dill.loads", "runpy.run_module",
    "code.interact", "types.FunctionType", "types.CodeType", "gc.get_objects", "sys._getframe",
})  # fmt: skip
_HIDING_ATTRIBUTES = frozenset({
    "__subclasses__", "__globals__", "__builtins__", "__code__", "f_globals", "f_builtins", "__bases__",
    "__mro__", "__loader__", "__getattribute__", "__import__",
})  # fmt: skip
_RISKY_MODULES = frozenset(
    {"os", "subprocess", "shutil", "posix", "pty", "socket", "ctypes", "builtins"}
)
_LOSES_DATA = re.compile(
    r"\bdrop\s+(?:table|database)\b|\btruncate\s+table\b|\bdelete\s+from\s+\w+\s*;?\s*$", re.I
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_LOOPBACK = re.compile(r"https?://(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])(?:[:/]|$)")
_DEEPEST = 4


def examine(source: str, report: Report, depth: int = 0) -> None:
    """Tell the report what this code would do."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        report.doubt(f"This is not Python that can be parsed: {error}.")
        return
    if depth > _DEEPEST:
        report.doubt("Code within code, too deep to follow.")
        return
    _Visitor(tree, report, depth).visit(tree)


class _Visitor(ast.NodeVisitor):
    def __init__(self, tree: ast.AST, report: Report, depth: int) -> None:
        self._report = report
        self._depth = depth
        self._names = Names(tree)
        self._called: set[int] = set()

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.name.partition(".")[0]
            self._names.modules[alias.asname or first] = alias.name if alias.asname else first
            self._notice_import(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        self._notice_import(module)
        for alias in node.names:
            if alias.name == "*" and module.partition(".")[0] in _RISKY_MODULES:
                self._report.doubt(f"Takes everything from {module}.")
            self._names.modules[alias.asname or alias.name] = f"{module}.{alias.name}"

    def _notice_import(self, module: str) -> None:
        if module.partition(".")[0] in ("ctypes", "cffi"):
            self._report.doubt("Calls machine code by way of ctypes.")
        judge_module(module, self._report)

    def visit_Call(self, node: ast.Call) -> None:
        self._called.add(id(node.func))
        if self._names.dotted(node.func) in IMPORTS and node.args:
            self._notice_import(self._names.text(node.args[0]))
        call = _Call(node, self._names, self._report)
        for rule in (_runs, _changes, _opens, _sends, _reads_environment):
            rule(call)
        _hides(call, self._depth)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._names.dotted(node)
        if node.attr in _HIDING_ATTRIBUTES:
            self._report.doubt(f"Reaches for {node.attr}.")
        elif id(node) not in self._called and _is_risky(name):
            self._report.doubt(f"Passes {name} on.")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        name = self._names.dotted(node)
        if id(node) not in self._called and (_is_risky(name) or name in _HIDES):
            self._report.doubt(f"Passes {name} on.")

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self._names.dotted(node.value) == "os.environ":
            _notice_secret(self._names.text(node.slice), self._report)
        else:
            self.generic_visit(node)


class _Call:
    """A call, the full name of what is called, and whom to tell."""

    def __init__(self, node: ast.Call, names: Names, report: Report) -> None:
        self.node = node
        self.names = names
        self.report = report
        self.method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        self.name = names.dotted(node.func)
        if self.method and not (self.name in _WRITES or self.name in _DELETES):
            self.name = self._as_path_method() or self.name

    def _as_path_method(self) -> str:
        """A method of something that may be a path: those that only paths have are taken for it."""
        of_path = f"Path.{self.method}"
        if self.method in ("write_text", "write_bytes", "unlink", "read_text", "read_bytes"):
            is_os = self.name in ("os.unlink", "posix.unlink")
            return "" if is_os else of_path
        assert isinstance(self.node.func, ast.Attribute)
        is_path = self.names.path(self.node.func.value) is not None
        return of_path if is_path and (of_path in _WRITES or of_path in _DELETES) else ""

    def text(self, position: int) -> str:
        """The text of an argument; -1 is the object whose method is called."""
        return self.names.text(self._argument(position))

    def value(self, position: int) -> Value:
        return Value(self.text(position))

    def keyword(self, *names: str) -> ast.AST | None:
        """The argument that is given by one of these names."""
        return next((k.value for k in self.node.keywords if k.arg in names), None)

    def _argument(self, position: int) -> ast.AST | None:
        if position < 0:
            return self.node.func.value if isinstance(self.node.func, ast.Attribute) else None
        if position < len(self.node.args):
            return self.node.args[position]
        return self.node.keywords[0].value if self.node.keywords and position == 0 else None


def _is_risky(name: str) -> bool:
    listed = (_PROGRAMS, _SHELL_LINES, _PRIVILEGE, _ENDS)
    deletes = name in _DELETES and not name.startswith("Path")
    return deletes or any(name in names for names in listed) or bool(_STARTS.fullmatch(name))


def _runs(call: _Call) -> None:
    if call.name in _SHELL_LINES:
        call.report.runs_script(call.value(0))
    elif call.name in _PROGRAMS:
        _program(call)
    elif _STARTS.fullmatch(call.name):
        call.report.doubt(f"Starts another program by {call.name}.")
    elif call.name == "runpy.run_path":
        call.report.runs_python_file(call.value(0))


def _program(call: _Call) -> None:
    shell = call.keyword("shell")
    through_shell = shell is not None and not (isinstance(shell, ast.Constant) and not shell.value)
    arguments = call.keyword("args") or (call.node.args[0] if call.node.args else None)
    if not isinstance(arguments, ast.List | ast.Tuple):
        text = call.names.text(arguments)
        alone = not through_shell and UNKNOWN not in text
        call.report.runs_script(Value(shlex.quote(text) if alone else text))
        return
    words = [call.names.value(element) for element in arguments.elts]
    if through_shell and words:
        call.report.runs_script(words[0])
    else:
        call.report.runs(words)


def _changes(call: _Call) -> None:
    name, report = call.name, call.report
    if name in _DELETES:
        target = call.value(-1 if name.startswith("Path.") else 0)
        report.deletes(target, recursively=_DELETES[name])
    for position in _WRITES.get(name, ()):
        report.writes(call.value(position))
    if name in _READS:
        report.reads(call.value(_READS[name]))
    if name in _PRIVILEGE:
        report.danger("privilege", f"Changes rights by {name}.", f"code:{name}")
    if name in _ENDS:
        report.danger("destructive", f"Ends other processes by {name}.", f"code:{name}")
    if call.method.startswith("execute") and _LOSES_DATA.search(call.text(0)):
        report.danger("destructive", "Deletes data from a database.", "code:drop")


def _opens(call: _Call) -> None:
    on_path = call.method == "open" and call.name in ("Path.open", "")
    if call.name not in _OPENERS and not on_path:
        return
    target = call.value(-1 if on_path else 0)
    position = 0 if on_path else 1
    argument = call.keyword("mode", "flags")
    if argument is None and position < len(call.node.args):
        argument = call.node.args[position]
    mode = "r" if argument is None else call.names.text(argument)
    reads_only = call.name != "os.open" and not any(letter in mode for letter in f"wax+{UNKNOWN}")
    if reads_only:
        call.report.reads(target)
    else:
        call.report.writes(target)


def _sends(call: _Call) -> None:
    if _CONNECTS.match(call.name):
        reason = f"Opens a connection by {call.name}."
        call.report.danger("exfiltration", reason, f"code:{call.name}")
        return
    verb = _http_verb(call)
    texts = [call.names.text(argument) for argument in call.node.args]
    if verb and _carries_data(call, verb, texts) and not any(map(_LOOPBACK.match, texts)):
        where = next((text for text in texts if "://" in text), "another machine")
        target = where.replace(UNKNOWN, "…")[:80]
        access = Access(hosts=tuple(re.findall(r"://([^/:@\s]+)", target)))
        call.report.danger(
            "exfiltration", f"Sends data to {target}.", f"code:{verb} {target}", access
        )


def _http_verb(call: _Call) -> str:
    """The kind of an HTTP request; empty when it is none."""
    found = _HTTP.match(call.name)
    if found:
        return (found[1] or found[2]).lower()
    libraries = any(_HTTP_MODULE.match(module) for module in call.names.modules.values())
    return call.method if libraries and call.method in _SENDING else ""


def _carries_data(call: _Call, verb: str, texts: list[str]) -> bool:
    if verb in _SENDING or call.keyword("data", "json", "files", "content", "body", "fields"):
        return True
    if verb in ("request", "stream") and texts:
        return texts[0].upper() not in ("GET", "HEAD", "OPTIONS")
    return verb in ("urlopen", "request") and len(texts) > 1


def _hides(call: _Call, depth: int) -> None:
    name, report = call.name, call.report
    if name in ("eval", "exec", "compile"):
        source = call.text(0)
        if UNKNOWN in source:
            report.doubt(f"Runs code by {name} that is only known when it runs.")
        else:
            examine(source, report, depth + 1)
    elif name in ("__import__", "importlib.import_module", "getattr"):
        if _looks_hidden(call):
            report.doubt(f"Looks up by {name} what is only known when it runs.")
    elif name in _HIDES or name.partition(".")[0] in ("ctypes", "cffi"):
        report.doubt(f"Calls {name}.")


def _looks_hidden(call: _Call) -> bool:
    """getattr with an unknown name matters on modules that can do harm; an unknown import always."""
    if call.names.made_by(call.node):
        return False
    if call.name != "getattr":
        return True
    return UNKNOWN in call.text(1) and call.names.dotted(call.node.args[0]).partition(".")[0] in (
        "",
        *_RISKY_MODULES,
    )


def _reads_environment(call: _Call) -> None:
    is_passed_on = any(call.names.dotted(argument) == "os.environ" for argument in call.node.args)
    if is_passed_on or call.name in ("os.environ.items", "os.environ.copy", "os.environ.values"):
        call.report.danger("secrets", "Reads the whole environment.", "code:os.environ")
    elif call.name in ("os.getenv", "os.environ.get", "os.environ.pop"):
        _notice_secret(call.text(0), call.report)


def _notice_secret(name: str, report: Report) -> None:
    if _SECRET.search(name):
        report.danger("secrets", f"Reads the secret {name}.", f"terminal:${name}")
