"""Builds the documentation into build/docs: this folder's pages, and the API from its records.

    ./go docs        (or: python docs/build.py [--out FOLDER])

The API pages are computed: operators from their definitions (`language.definition.REGISTRY`),
primitives from their records, knobs from the settings' table, everything else from the public
modules. What lacks a docstring, and a link that leads nowhere, is a warning, and warnings fail.
"""

from __future__ import annotations

import argparse
import html
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import markdown  # noqa: E402

PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
HOMES = {  # home of operators -> title of its page
    "torch": "torch",
    "method": "torch.Tensor",
    "nn.functional": "torch.nn.functional",
    "linalg": "torch.linalg",
    "special": "torch.special",
    "fft": "torch.fft",
}
MODULES = ("nn", "optim", "autograd", "func", "utils", "serialization", "random", "capture")
MODULES += ("runtime", "distributions", "amp", "testing", "linalg", "multiprocessing")
STYLE = """
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 sans-serif; }
pre { background: #f4f4f4; padding: .6rem; overflow-x: auto; font-size: 14px; }
code { background: #f4f4f4; } table { border-collapse: collapse; }
td, th { border: 1px solid #ccc; padding: .2rem .5rem; text-align: left; vertical-align: top; }
.entry { border-top: 1px solid #ddd; margin-top: 1.2rem; } .from { color: #666; font-size: 14px; }
"""


@dataclass
class Entry:
    """One documented thing: anchor, signature lines, docstring, a note on what it comes with."""

    name: str
    signatures: list[str]
    text: str
    note: str = ""


@dataclass
class Site:
    """The pages so far, and what is wrong with them."""

    out: Path
    pages: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, path: str, title: str, body: str) -> None:
        """Adds a page; `path` is relative to the site, without its suffix."""
        self.titles[path] = title
        self.pages[path] = body

    def reference(self, path: str, title: str, entries: list[Entry], intro: str = "") -> None:
        """Adds a page of entries with an index in front."""
        for entry in entries:
            if not entry.text.strip():
                self.warnings.append(f"{title}.{entry.name} has no docstring")
        index = " · ".join(
            f'<a href="#{html.escape(e.name)}">{html.escape(e.name)}</a>' for e in entries
        )
        parts = [f"<h1>{title}</h1>", markdown.render(intro), f"<p>{index}</p>"]
        self.add(path, title, "\n".join(parts + [_entry(entry) for entry in entries]))

    def write(self) -> None:
        """Writes all pages."""
        for path, body in self.pages.items():
            file = self.out / f"{path}.html"
            file.parent.mkdir(parents=True, exist_ok=True)
            up = "../" * path.count("/")
            file.write_text(
                f"<!doctype html><meta charset=utf-8><title>{self.titles[path]}</title>"
                f'<style>{STYLE}</style><p><a href="{up}index.html">Flambeau</a></p>\n{body}\n'
            )

    def check_links(self) -> None:
        """Warns of links to pages or anchors that are not there."""
        anchors = {p: set(re.findall(r'id="([^"]+)"', body)) for p, body in self.pages.items()}
        for path, body in self.pages.items():
            for link in re.findall(r'<a href="([^"]+)"', body):
                if not self._leads_somewhere(path, html.unescape(link), anchors):
                    self.warnings.append(f"{path}: link to {link} leads nowhere")

    def _leads_somewhere(self, path: str, link: str, anchors: dict[str, set[str]]) -> bool:
        if "://" in link:
            return True
        target, _, anchor = link.partition("#")
        file = (self.out / path).parent / target if target else self.out / f"{path}.html"
        page = str(file.resolve().relative_to(self.out.resolve()).with_suffix(""))
        return page in self.pages and (not anchor or anchor in anchors[page])


def _entry(entry: Entry) -> str:
    signatures = markdown.code(entry.signatures)
    note = f'<p class="from">{markdown.inline(entry.note)}</p>' if entry.note else ""
    anchor = html.escape(entry.name)
    text = _docstring(entry.text)
    return f'<div class="entry" id="{anchor}"><h3>{anchor}</h3>{signatures}{text}{note}</div>'


def _docstring(text: str) -> str:
    """A docstring: its first paragraphs as text, its sections as they are."""
    head, mark, rest = inspect.cleandoc(text).partition("\n\n")
    shown = f"<p>{markdown.inline(' '.join(head.split()))}</p>"
    return shown + (markdown.code(rest.splitlines()) if mark else "")


# ------------------------------------------------------------------------------- operators


def operators(site: Site) -> None:
    """A page per home, from the definitions."""
    import flambeau  # noqa: F401 - installs what is defined
    from flambeau.language.definition import REGISTRY

    found: dict[str, list[Entry]] = {home: [] for home in HOMES}
    for definition in REGISTRY.values():
        if definition.name.startswith("_"):
            continue
        for home in definition.options.where:
            if home in found:
                found[home].append(_operator(definition, home))
    for home, entries in found.items():
        entries.sort(key=lambda entry: entry.name)
        if entries:
            intro = f"{len(entries)} operators, from their definitions in `flambeau/ops/`."
            site.reference(f"api/operators.{home}", HOMES[home], entries, intro)


def _operator(definition: Any, home: str) -> Entry:
    options = definition.options
    signatures = getattr(definition.native, "schemas", None) or [definition.name + "(...)"]
    notes = []
    if any(overload.options.inplace for overload in definition.overloads):
        notes.append(f"in place: `{definition.name}_`")
    if options.out:
        notes.append("takes `out=`")
    if options.view:
        notes.append("returns a view")
    if options.aliases:
        notes.append("also " + ", ".join(f"`{name}`" for name in options.aliases))
    notes.append(f"defined in `{definition.overloads[0].body.__module__.replace('.', '/')}.py`")
    return Entry(definition.name, list(signatures), definition.__doc__ or "", "; ".join(notes))


# ------------------------------------------------------------------------------- modules


def public_modules(name: str) -> Iterator[Any]:
    """A package and the public modules in it."""
    try:
        module = importlib.import_module(f"flambeau.{name}")
    except ModuleNotFoundError:
        return
    yield module
    for item in pkgutil.walk_packages(getattr(module, "__path__", []), f"flambeau.{name}."):
        if any(part.startswith("_") for part in item.name.split(".")):
            continue
        try:
            yield importlib.import_module(item.name)
        except ImportError:  # a package that it needs is not installed
            continue


def modules(site: Site) -> None:
    """A page per public package, with what its modules define."""
    for name in MODULES:
        entries = [entry for module in public_modules(name) for entry in _members(module)]
        unique = {entry.name: entry for entry in entries}
        if unique:
            intro = inspect.getdoc(importlib.import_module(f"flambeau.{name}")) or ""
            site.reference(f"api/{name}", f"torch.{name}", list(unique.values()), intro)


def _members(module: Any) -> Iterator[Entry]:
    for name, value in vars(module).items():
        defined_here = getattr(value, "__module__", None) == module.__name__
        if name.startswith("_") or not defined_here:
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            note = f"defined in `{module.__name__.replace('.', '/')}.py`"
            yield Entry(name, [_signature(name, value)], inspect.getdoc(value) or "", note)


def _signature(name: str, value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        text = "(...)"
    return f"{name}{text}"


# ------------------------------------------------------------------------------- tables


def primitives(site: Site) -> None:
    """The table of primitives, from their records."""
    from flambeau import prims  # noqa: F401 - enters the records
    from flambeau.prims.record import NOT_DIFFERENTIABLE, PRIMITIVES

    lines = ["# Primitives", "", f"{len(PRIMITIVES)} records (`flambeau/prims/`).", ""]
    lines += ["| name | kind | differentiable | cost |", "| --- | --- | --- | --- |"]
    for record in PRIMITIVES.values():
        differentiable = "no" if record.derivative == NOT_DIFFERENTIABLE else "yes"
        lines.append(f"| `{record.name}` | {record.kind} | {differentiable} | {record.cost} |")
    site.add("api/primitives", "Primitives", markdown.render("\n".join(lines)))


def knobs(site: Site) -> None:
    """The table of environment variables, from the settings."""
    from flambeau.runtime import settings

    lines = ["# Environment variables", "", "| name | default | what it does |"]
    lines.append("| --- | --- | --- |")
    for knob in settings.KNOBS.values():
        lines.append(f"| `{settings.PREFIX}{knob.name}` | {knob.default} | {knob.help} |")
    site.add("api/knobs", "Environment variables", markdown.render("\n".join(lines)))


# ------------------------------------------------------------------------------- pages


def pages(site: Site) -> None:
    """The hand-written pages; links to source files become plain text."""
    for path in [*(ROOT / name for name in PAGES), *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text()
        title = text.lstrip("# ").splitlines()[0]
        site.add(path.stem, title, markdown.render(_without_sources(text, path)))


def _without_sources(text: str, path: Path) -> str:
    def keep(found: re.Match[str]) -> str:
        target = found[2].partition("#")[0]
        if "://" in target:
            return found[0]
        if target.endswith(".md") and (path.parent / target).exists():
            return f"[{found[1]}]({Path(target).name})"
        return found[1]

    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", keep, text)


def index(site: Site) -> None:
    """The first page: all others, by kind."""
    guides = [p for p in site.pages if not p.startswith("api/")]
    reference = [p for p in site.pages if p.startswith("api/")]
    lines = ["<h1>Flambeau</h1>"]
    for title, names in (("Pages", guides), ("Reference", reference)):
        items = "".join(f'<li><a href="{n}.html">{site.titles[n]}</a></li>' for n in names)
        lines.append(f"<h2>{title}</h2><ul>{items}</ul>")
    site.add("index", "Flambeau", "\n".join(lines))


def build(out: Path) -> Site:
    """Makes and writes the whole site."""
    site = Site(out)
    for part in (pages, operators, modules, primitives, knobs, index):
        part(site)
    site.check_links()
    site.write()
    return site


def main() -> int:
    """Builds, prints warnings, and fails if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs")
    site = build(parser.parse_args().out)
    for warning in site.warnings:
        print(f"[docs] warning: {warning}", file=sys.stderr)
    print(f"[docs] {len(site.pages)} pages in {site.out}: open {site.out / 'index.html'}")
    return int(bool(site.warnings))


if __name__ == "__main__":
    sys.exit(main())
