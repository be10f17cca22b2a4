"""What the site of docs/ needs beyond its pages; mkdocs.yml names this file as a hook.

Pages of the top folder (CHANGELOG.md and others) are part of the site. A link to a file that is in the
repository but not on the site becomes plain text; a link to nothing fails the build, and so does a page
that would load anything from another server.
"""

import posixpath
import re
from pathlib import Path
from typing import TypeAlias

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
OF_THE_PROJECT = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}
"""Pages beside docs/, and where the site has them."""

ON_SITE = {**OF_THE_PROJECT, "README.md": "index.md"}
_SOURCES = {on_site: source for source, on_site in OF_THE_PROJECT.items()}

Entry: TypeAlias = "str | list[Entry] | dict[str, Entry]"
"""An entry of the navigation in mkdocs.yml."""

_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]\[]*)\]\(([^)\s]+)\)")
_REMOTE = re.compile(r"<(?:script|link|img|iframe|source)[^>]+(?:src|href)=\"?(https?://[^\" >]+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each folder in the navigation by its pages, the index first."""
    config.nav = [_expanded(entry) for entry in config.nav or []]
    return config


def _expanded(entry: Entry) -> Entry:
    if isinstance(entry, dict):
        return {title: _expanded(inner) for title, inner in entry.items()}
    if isinstance(entry, list):
        lists = [_expanded(inner) for inner in entry]
        return [e for inner in lists for e in (inner if isinstance(inner, list) else [inner])]
    if not entry.endswith("/"):
        return entry
    names = sorted(path.name for path in (ROOT / "docs" / entry).glob("*.md"))
    return [entry + name for name in sorted(names, key=lambda name: name != "index.md")]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages beside docs/."""
    for source, on_site in OF_THE_PROJECT.items():
        content = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, on_site, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links of a page at the site, where the repository has other paths."""
    uri = page.file.src_uri
    source = _SOURCES.get(uri, f"docs/{uri}")

    def rewrite(match: re.Match[str]) -> str:
        text, target = match.groups()
        path, mark, anchor = target.partition("#")
        if not path or ":" in path:
            return match[0]
        in_repository = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        on_site = _on_site(in_repository)
        if on_site is None:
            return text if (ROOT / in_repository).exists() else match[0]
        relative = posixpath.relpath(on_site, posixpath.dirname(uri) or ".")
        return f"[{text}]({relative}{mark}{anchor})"

    parts = _FENCE.split(markdown)
    parts[::2] = [_LINK.sub(rewrite, part) for part in parts[::2]]
    return "".join(parts)


def _on_site(path: str) -> str | None:
    """Return the page of the site for a path in the repository, None if the site does not have it."""
    if path.startswith("docs/"):
        inner = path.removeprefix("docs/")
        return f"{inner}/index.md" if (ROOT / path).is_dir() else inner
    return ON_SITE.get(path)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuse a page that loads something from another server."""
    if found := _REMOTE.search(output):
        raise PluginError(f"{page.file.src_uri} loads {found[1]}")
    return output
