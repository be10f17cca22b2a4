"""Rules about the tree that no other tool checks."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "src").rglob("*.py"))
REFUSED = {"utils", "util", "helpers", "common", "misc", "manager", "handler", "handlers"}


def test_no_module_has_a_name_that_means_nothing() -> None:
    assert [module for module in MODULES if module.stem in REFUSED] == []


def test_every_module_says_in_its_first_line_what_it_owns() -> None:
    texts = {module: module.read_text("utf-8") for module in MODULES}
    assert [m for m, text in texts.items() if text.strip() and not _docstring(text)] == []


def _docstring(text: str) -> str | None:
    """The docstring of a module; most begin with it, so that few need to be parsed whole."""
    head = re.match(r'"""[^"\\]+"""\n', text)
    return head[0] if head else ast.get_docstring(ast.parse(text))


def tracked() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def test_no_file_names_a_registry_or_a_path_of_somebodys_machine() -> None:
    wrong = re.compile(r"pypi\.org|pythonhosted|npmjs\.(org|com)|/(home|root)/\w")
    for path in tracked():
        if path.suffix != ".db" and path != Path(__file__):
            found = wrong.search(path.read_text("utf-8"))
            assert found is None, f"{path.relative_to(ROOT)}: {found}"


def test_every_dependency_has_its_reason_in_the_readme() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    readme = (ROOT / "README.md").read_text("utf-8")
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=\[]", requirement)[0]
        assert f"| {name} |" in readme


def test_every_page_the_readme_points_to_exists() -> None:
    for page in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text("utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / target).exists(), f"{page} points to {target}"


def test_every_platform_is_kept_apart_from_the_others() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (contract,) = [c for c in settings["contracts"] if c["type"] == "protected"]
    manifests = (ROOT / "src" / "gateway" / "platforms").glob("*/manifest.py")
    platforms = {f"gateway.platforms.{manifest.parent.name}" for manifest in manifests}
    assert platforms == set(contract["protected_modules"])
