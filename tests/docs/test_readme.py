"""What the README says about commands is what the commands do."""

from __future__ import annotations

import re
from pathlib import Path

from tools import go

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_every_verb_is_explained() -> None:
    said = set(re.findall(r"\./go (\w+)", README))
    table = README[README.index("| verb |") :]
    said |= set(re.findall(r"`(\w+)[^`]*`", table.split("\n\n")[0]))
    missing = {verb.__name__ for verb in go.VERBS} - said
    assert not missing, f"README.md does not mention ./go {missing}"


def test_verbs_exist() -> None:
    pages = [README, *(path.read_text() for path in (ROOT / "docs").glob("*.md"))]
    said = {verb for page in pages for verb in re.findall(r"\./go ([a-z]\w*)", page)}
    unknown = said - {verb.__name__ for verb in go.VERBS}
    assert not unknown, f"./go has no verb {unknown}"


def test_the_demo_says_what_is_shown() -> None:
    source = "".join(path.read_text() for path in (ROOT / "examples" / "gpt").glob("*.py"))
    for words in ("agree to the last bit", "loss curve:", "compile: cold", "tokens/s"):
        assert words in README and words in source
    flags = set(re.findall(r"(?<![\w-])--([a-z]\w+)", README)) - {"fix", "help", "quick"}
    assert all(f'"{flag}"' in source or f'"--{flag}"' in source for flag in flags)


def test_files_of_the_reading_list_exist() -> None:
    listed = re.findall(r"\]\(((?:flambeau|native)/[^)]+)\)", README)
    assert len(listed) >= 10 and all((ROOT / name).exists() for name in listed)
