"""Formulas as MathML, written when the site is built: no script and no network when it is read."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)


def on_page_content(content: str, **_: Any) -> str:
    """Replace what pymdownx.arithmatex marked (`$…$`, `$$…$$`) by MathML."""

    def mathml(match: re.Match[str]) -> str:
        display = "block" if match[2] == "[" else "inline"
        formula = convert(html.unescape(match[3]).strip(), display=display)
        return f'<div class="formula">{formula}</div>' if display == "block" else formula

    return FORMULA.sub(mathml, content)
