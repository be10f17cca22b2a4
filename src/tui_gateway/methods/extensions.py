"""List and show skills; list, enable and disable plugins."""

from typing import Annotated, Literal, TypedDict

from hermes_agent import skills
from hermes_cli import plugin_switch
from hermes_cli.plugin_switch import Status
from hermes_core.text import counted
from hermes_protocol.errors import BAD_ARGUMENT, UNKNOWN_METHOD
from tui_gateway.params import Nothing, Params, says
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import Runtime
from tui_gateway.skill_commands import CATEGORY, by_category, usable


class Manage(Params, frozen=True):
    """An action on skills."""

    action: Annotated[str, says("list, search or inspect.")] = "list"
    query: Annotated[str, says("A name, or a part of a name or description.")] = ""


class Skills(TypedDict, total=False):
    """`skills` of list: names by category; `results` of search; `info` of inspect, empty if unknown."""

    skills: dict[str, list[str]]
    results: list[dict[str, str]]
    info: dict[str, str]


def manage_skills(rt: Runtime, params: Manage) -> Skills:
    """List or search the skills of the home, or show one."""
    rt.assembly()  # loads the plugins, whose commands hide skills of the same name
    found = usable(skills.load(rt.home))
    match params.action:
        case "list":
            return {"skills": by_category(rt.home)}
        case "search":
            query = params.query.casefold()
            return {
                "results": [
                    {"name": skill.name, "description": skill.description}
                    for skill in found
                    if query in f"{skill.name} {skill.description}".casefold()
                ]
            }
        case "inspect":
            name = skills.slug(params.query)
            matches = [_info(skill) for skill in found if skill.name == name]
            return {"info": matches[0] if matches else {}}
        case "install" | "browse":
            fix = f"Put a folder with a SKILL.md into {rt.home.skills}."
            text = "Hermes does not support a catalog of skills."
            raise RpcError(UNKNOWN_METHOD, text, fix=fix)
        case _:
            raise RpcError(BAD_ARGUMENT, f"{params.action[:80]!r} is not a valid action.")


def _info(skill: skills.Skill) -> dict[str, str]:
    return {
        "name": skill.name,
        "category": CATEGORY,
        "description": skill.description,
        "path": str(skill.path),
    }


class Output(TypedDict):
    """Text for a person."""

    output: str


def reload_skills(rt: Runtime, params: Nothing) -> Output:
    """Report the usable skills, and the errors of the others."""
    del params
    skill_set = skills.load_all(rt.home)
    names = [f"  /{skill.name}" for skill in usable(skill_set.skills)]
    return {
        "output": "\n".join([counted(len(names), "skill"), *names, *map(str, skill_set.broken)])
    }


class Plugin(TypedDict):
    """A plugin. `status`: enabled or disabled in config.toml; `error`: the reason why it cannot be
    used."""

    name: str
    version: str
    description: str
    source: str
    status: str
    enabled: bool
    error: str


class Plugins(TypedDict):
    """The plugins, and the numbers of installed and of bundled ones."""

    plugins: list[Plugin]
    user_count: int
    bundled_count: int


def list_plugins(rt: Runtime, params: Nothing) -> Plugins:
    """List every known plugin."""
    del params
    rt.assembly()  # loads those that are enabled
    enabled = plugin_switch.enabled_in_file(rt.home)
    rows = [_plugin(status, enabled) for status in plugin_switch.statuses(rt.home)]
    bundled = sum(row["source"] == "bundled" for row in rows)
    return {"plugins": rows, "user_count": len(rows) - bundled, "bundled_count": bundled}


def _plugin(plugin: Status, enabled: list[str]) -> Plugin:
    is_enabled = plugin.name in enabled
    return {
        "name": plugin.name,
        "version": plugin.version,
        "description": plugin.description,
        "source": "bundled" if plugin.source == "bundled" else "user",
        "status": "enabled" if is_enabled else "disabled",
        "enabled": is_enabled,
        "error": plugin.error,
    }


class Switch(Params, frozen=True):
    """An action on plugins."""

    action: Annotated[Literal["list", "toggle"], says("list or toggle.")] = "list"
    name: Annotated[str, says("The plugin to toggle.")] = ""
    enable: Annotated[bool, says("Whether toggle enables it.")] = True


class Switched(TypedDict, total=False):
    """`list`: as `plugins.list`. `toggle`: the plugin with its new status, which the next server
    applies."""

    plugins: list[Plugin]
    user_count: int
    bundled_count: int
    ok: bool
    unchanged: bool
    name: str
    plugin: Plugin


def manage_plugins(rt: Runtime, params: Switch) -> Switched:
    """List plugins, or enable or disable one in config.toml."""
    if params.action == "list":
        return {**list_plugins(rt, Nothing())}
    rt.assembly()
    if params.enable:
        is_new = plugin_switch.enable(rt.home, rt.settings, params.name)
    else:
        is_new = plugin_switch.disable(rt.home, params.name)
    rows = list_plugins(rt, Nothing())["plugins"]
    plugin = next(row for row in rows if row["name"] == params.name)
    return {"ok": True, "unchanged": not is_new, "name": params.name, "plugin": plugin}
