"""The glossary's rules on names and prose, as counts that may only fall (docs/glossary.md).

A count that falls lowers its limit below, in the same commit.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMES = frozenset("found made kept rest whole given known wanted more".split())
WORDS = frozenset(
    "heavy dear cut told tells turned lies lay rehearsal rehearsing keep keeps kept places asks "
    "asked wants stands".split()
)
OPENINGS = frozenset("What Who Whoever Whatever Which Of".split())

# Limits of the counts: they may only fall; the aim is 0.
PRIVATE_NAMES = 74
PROSE_WORDS = 227
NATIVE_WORDS = 918
CLAUSE_OPENINGS = 0


def modules() -> Iterator[tuple[Path, str, ast.Module]]:
    """Yields the path, text and tree of each Python file of the package."""
    for path in sorted((ROOT / "flambeau").rglob("*.py")):
        if "_kernels" not in path.parts:
            text = path.read_text()
            yield path, text, ast.parse(text)


def documented(module: ast.Module) -> Iterator[str]:
    """The docstrings of a module and of all that it defines."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            text = ast.get_docstring(node)
            if text:
                yield text


def words(text: str) -> Iterator[str]:
    """The words of a text that the glossary bans, outside of code in backticks."""
    for word in re.findall(r"[a-z]+", re.sub(r"`[^`]*`", "", text.lower())):
        if word in WORDS:
            yield word


def test_names_are_nouns() -> None:
    """Locals and parameters are called after the thing that they hold."""
    counts: Counter[str] = Counter()
    for path, _, module in modules():
        for node in ast.walk(module):
            stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.id if stored else node.arg if isinstance(node, ast.arg) else ""
            if name in NAMES:
                counts[str(path.relative_to(ROOT))] += 1
    assert sum(counts.values()) <= PRIVATE_NAMES, (sum(counts.values()), counts.most_common(9))


def test_prose_of_the_package() -> None:
    """Docstrings and comments use the glossary's words."""
    counts: Counter[str] = Counter()
    for _, text, module in modules():
        for docstring in documented(module):
            counts.update(words(docstring))
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                counts.update(words(token.string))
    assert sum(counts.values()) <= PROSE_WORDS, (sum(counts.values()), counts)


def test_words_of_the_core() -> None:
    """Names and comments of the native core do, too."""
    counts: Counter[str] = Counter()
    for path in sorted((ROOT / "native").rglob("*")):
        if path.suffix in (".cpp", ".h"):
            text = path.read_text().lower().replace("_", " ")
            counts.update(w for w in re.findall(r"[a-z]+", text) if w in WORDS | NAMES)
    assert sum(counts.values()) <= NATIVE_WORDS, (sum(counts.values()), counts)


def test_docstrings_begin_with_a_subject() -> None:
    """Not with a relative clause."""
    counts: Counter[str] = Counter()
    for path, _, module in modules():
        for docstring in documented(module):
            counts[str(path.relative_to(ROOT))] += docstring.split()[0].strip("`,.:") in OPENINGS
    assert sum(counts.values()) <= CLAUSE_OPENINGS, (sum(counts.values()), counts.most_common(9))


def test_the_glossary_lists_what_is_counted() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text().split("## Words that are not used")[1]
    listed = set(re.findall(r"[A-Za-z]+", page))
    assert not (WORDS | NAMES | (OPENINGS - {"Whoever", "Whatever", "Which"})) - listed
