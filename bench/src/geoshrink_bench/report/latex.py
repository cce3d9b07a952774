"""report.tex: tables with booktabs, to be \\input into a paper."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from geoshrink.page import Table

from ..words import REFERENCE
from .overview import losses
from .results import Results
from .tables import tables_of

POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
SIGNS = {
    **{"σ": r"\sigma", "ω": r"\omega", "β": r"\beta", "κ": r"\kappa", "τ": r"\tau"},
    **{"°": r"{}^\circ", "₀": "_0", "₁": "_1", "·": r"\cdot"},
    **{"±": r"\pm", "×": r"\times", "−": "-", "↑": r"\uparrow", "↓": r"\downarrow"},
    **{"†": r"\dagger"},
    **{"<": "<", ">": ">"},
}
WORDS = {
    **{c: rf"\{c}" for c in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"‰": r"\textperthousand{}", "—": "--", "…": r"\dots{}"},
}


def latex(results: Results) -> str:
    parts = [
        comment(f"{results.name}: made by geoshrink bench report."),
        comment("The preamble needs \\usepackage{booktabs,textcomp}."),
        *(comment(setting.about) for setting in results.settings if setting.about),
    ]
    lost = losses(results)
    tables = [lost] if lost.rows else []
    for reference in REFERENCE:
        for setting in results.settings:
            tables += tables_of(results, setting, reference)
    return "\n\n".join([*parts, *map(tabular, tables)]) + "\n"


def comment(text: str) -> str:
    return f"% {' '.join(text.split())}"


def tabular(table: Table) -> str:
    """The rows beneath the name of their group, the best of a group in bold."""
    group, best = table.group_by, table.best()
    columns = [j for j in range(len(table.columns)) if j != group]

    def heading(j: int) -> str:
        column = table.columns[j]
        return escaped(f"{column.name} ({column.unit})" if column.unit else column.name)

    def cell(i: int, j: int) -> str:
        text = escaped(table.shown(i, j))
        return rf"\textbf{{{text}}}" if (i, j) in best else text

    lines = [
        r"\begin{table}",
        rf"\caption{{{escaped(table.title)}. {escaped(table.caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}",
        r"\toprule",
        row(map(heading, columns)),
    ]
    kind_of = lambda i: "" if group is None else str(table.rows[i][group])  # noqa: E731
    for kind, members in groupby(range(len(table.rows)), kind_of):
        lines.append(r"\midrule")
        if kind:
            lines.append(rf"\multicolumn{{{len(columns)}}}{{l}}{{\emph{{{escaped(kind)}}}}} \\")
        lines += [row(cell(i, j) for j in columns) for i in members]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def escaped(text: str) -> str:
    r"""Text as LaTeX sets it, signs of mathematics as mathematics.

    >>> print(escaped("σ_1 ± 5 %, 10⁻⁴"))
    $\sigma$\_1 $\pm$ 5 \%, 10$^{-4}$
    """

    def one(match: re.Match[str]) -> str:
        found = match[0]
        if found in SIGNS:
            return f"${SIGNS[found]}$"
        return WORDS.get(found) or f"$^{{{found.translate(POWERS)}}}$"

    signs = re.escape("".join([*SIGNS, *WORDS]))
    return re.sub(rf"[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|[{signs}]", one, text)
