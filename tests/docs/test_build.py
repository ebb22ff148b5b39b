"""`./go docs` builds without warnings; the small Markdown renderer knows the project's marks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import markdown  # noqa: E402

import build  # noqa: E402


def test_builds_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "docs" / "build.py"), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    torch = (tmp_path / "api" / "operators.torch.html").read_text()
    assert 'id="add"' in torch and "add(Tensor self, TensorOrScalar other" in torch
    assert (tmp_path / "index.html").exists()


def test_warns_of_what_is_wrong(tmp_path: Path) -> None:
    site = build.Site(tmp_path)
    site.reference("api/a", "a", [build.Entry("silent", ["silent()"], "")])
    site.add("page", "Page", markdown.render("[there](api/a.md#silent) [gone](api/b.md)"))
    site.check_links()
    assert site.warnings == ["a.silent has no docstring", "page: link to api/b.html leads nowhere"]


def test_markdown() -> None:
    text = "# A `b`\n\none *two*\n**three** `x < y`\n\n* first\n  goes on\n* [l](p.md#q)\n\n"
    text += "```python\na < b\n```\n\n| h |\n| --- |\n| `c` |\n\n    code\n\n1. one\n2. two\n"
    assert markdown.render(text).splitlines() == [
        '<h1 id="a-b">A <code>b</code></h1>',
        "<p>one <i>two</i> <b>three</b> <code>x &lt; y</code></p>",
        '<ul><li>first goes on</li><li><a href="p.html#q">l</a></li></ul>',
        "<pre>a &lt; b</pre>",
        "<table><tr><th>h</th></tr><tr><td><code>c</code></td></tr></table>",
        "<pre>code</pre>",
        "<ol><li>one</li><li>two</li></ol>",
    ]
