"""Reading a page that `crbc report` or `crbc explain -o` wrote, without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from conftest import crbc, strict_json


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self._inside: list[int] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style", "title", "h2", "caption"):
            self._inside.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self.elements[self._inside[-1]][0] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside:
            at = self._inside[-1]
            self.texts[at] = self.texts.get(at, "") + data


@dataclass
class Page:
    """A page as an HTML parser sees it."""

    source: str
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    scripts: dict[str, str] = field(default_factory=dict)
    code: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Page:
        source = path.read_text("utf-8")
        parser = _Parser()
        parser.feed(source)
        page = cls(source, parser.elements)
        for at, (tag, attributes) in enumerate(parser.elements):
            if tag == "script":
                text = parser.texts.get(at, "")
                if attributes.get("id"):
                    page.scripts[str(attributes["id"])] = text
                else:
                    page.code.append(text)
        return page

    def data(self, name: str) -> Any:
        return strict_json(self.scripts[name])

    def group(self, number: int = 0) -> dict[str, Any]:
        packed = base64.b64decode(self.scripts[f"group-{number}"])
        found: dict[str, Any] = strict_json(zlib.decompress(packed).decode())
        return found

    @property
    def groups(self) -> list[int]:
        """Numbers of the groups that are embedded."""
        names = [name for name in self.scripts if name.startswith("group-")]
        return [int(name.removeprefix("group-")) for name in names]

    @property
    def sections(self) -> list[str]:
        return [str(a.get("id")) for tag, a in self.elements if tag == "section"]

    def loads_nothing(self) -> None:
        """Asserts that nothing outside the file is referred to and only its own script may run."""
        for tag, attributes in self.elements:
            assert tag not in ("link", "iframe", "img", "object", "embed", "base"), tag
            assert "src" not in attributes, (tag, attributes)
            href = attributes.get("href")
            assert href is None or href.startswith("#"), href
            assert not [name for name in attributes if name.startswith("on")], attributes
        assert not re.search(r"@import|url\((?!#)", self.source.partition("</style>")[0])
        [policy] = [
            str(a["content"])
            for tag, a in self.elements
            if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
        ]
        [code] = self.code
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert policy == (
            f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        )


def written(output: Path, *arguments: object) -> Page:
    """The page that a command writes."""
    ended = crbc(*arguments, "-o", output, "-q")
    assert ended.code == 0, ended.stderr
    assert ended.stdout == b""
    return Page.read(output)


def as_json(*arguments: object) -> Any:
    """What a command prints with --json, less the options it echoes."""
    ended = crbc(*arguments, "--json")
    assert ended.code in (0, 1), ended.stderr
    found = json.loads(ended.text)
    found.pop("options", None)
    return found
