"""Cells know the code that made them: what changes a hash, what does not, and what stale cells are
told and done.
"""

from __future__ import annotations

import ast
import csv
import time
from pathlib import Path
from typing import Any

import pytest

import geoshrink
import geoshrink_bench
from cases import small_case
from geoshrink.cli import main
from geoshrink_bench import code, command, syntax
from geoshrink_bench.asked import Asked
from geoshrink_bench.cases import zoo as running
from geoshrink_bench.code import CURRENT, STALE, UNKNOWN, Code, Part, state_of
from geoshrink_bench.methods.base import Method, Outcome
from geoshrink_bench.methods.ours import OURS
from geoshrink_bench.methods.registry import METHODS, register_method
from geoshrink_bench.methods.solvers import SOLVERS
from geoshrink_bench.report import load
from geoshrink_bench.report.tables import tables_of
from geoshrink_bench.store import Store

ROOTS = {p.__name__: Path(str(p.__file__)).parent for p in (geoshrink, geoshrink_bench)}
FORMS = {*OURS, "GeoShrink", "GeoShrink (planned)", "GeoShrink (learned)"}
#: Rivals that step in the case's own loop and reach nothing of geoshrink's history.
APART = {"direct", "full run, again", "FORA", "TaylorSeer", "TaylorSeer-Lite", "ToCa", "TeaCache"}
APART |= {"SpeCa", "ResilPhase", "FirstBlockCache", "MagCache", "EasyCache", "DBCache", "HiCache"}


# -- what a file does


def hashed(text: str, name: str = "") -> str:
    module = syntax.Module("a.b", text)
    return syntax.digest(module.part(name) if name else module.body)


PLAIN = """from .c import T
N = 3

class A(T):
    x: int = 1
    def f(self, n):
        return n + N
"""


@pytest.mark.parametrize(
    "same",
    [
        '"""What it is."""\n' + PLAIN,
        PLAIN.replace("N = 3", "N = 3  # three\n\n\n"),
        PLAIN.replace("n + N", "(n\n            + N)"),
        "from .d import D\n" + PLAIN.replace("(self, n)", "(self, n: D | None) -> 'int'"),
        "from .d import D\n" + PLAIN.replace("(self, n)", "(self, n) -> D"),
        PLAIN.replace("        return", '        """Adds."""\n        return'),
        PLAIN.replace("    x: int = 1", '    x: float = 1\n    "its x"'),
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .d import D\n" + PLAIN,
    ],
)
def test_what_does_not_act_does_not_count(same):
    assert same != PLAIN and hashed(same) == hashed(PLAIN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("N = 3", "N = 4"),
        ("N = 3", "N = 3.0"),
        ("N = 3", "N = '3'"),
        ("n + N", "n - N"),
        ("n + N", "N + n"),
        ("(self, n)", "(self, n=1)"),
        ("def f", "@wrapped\n    def f"),
        ("x: int = 1", "x: ClassVar[int] = 1"),
        ("x: int = 1", "x: int"),
        ("class A(T):", "class A:"),
        ("from .c", "from .d"),
    ],
)
def test_what_acts_counts(old, new):
    assert old in PLAIN and hashed(PLAIN.replace(old, new)) != hashed(PLAIN)


def test_a_definition_needs_what_it_names_and_what_acts_by_itself():
    text = (
        "from .a import one\nfrom .b import two\nK = one()\nL = two()\nregister(K)\n"
        "def g(): return K\nclass A:\n    def f(self): return g()\nclass B:\n    y = L\n"
    )
    assert hashed(text, "A") == hashed(text.replace("y = L", "y = 2"), "A")
    assert hashed(text, "B") != hashed(text.replace("y = L", "y = 2"), "B")
    for old, new in (("one()", "one(1)"), ("return K", "return -K"), ("register(K)", "pass")):
        assert hashed(text, "A") != hashed(text.replace(old, new), "A")
    assert syntax.imports_of(syntax.Module("p", text).part("A")) == ["p.a", "p.a.one"]
    kept = syntax.imports_of(syntax.Module("p", text).part("B"))
    assert {"p.b", "p.b.two"} <= set(kept)


def test_an_empty_text_at_the_end_of_a_format_is_no_change():
    """Python 3.12 and later write one into f"{x:{y}}"."""
    tree: Any = ast.parse('f"{x:>{y}}"').body[0]
    before = syntax.written(tree)
    spec = tree.value.values[0].format_spec
    spec.values = [v for v in spec.values if getattr(v, "value", None) != ""]
    short = syntax.written(tree)
    spec.values.append(ast.Constant(""))
    assert before == short == syntax.written(tree) and "'>'" in short
    assert syntax.written(ast.parse('f"{x:{z}}"').body[0]) not in short


# -- what a module reaches


def tree(folder: Path, **files: str) -> Code:
    """A small geoshrink of its own."""
    for name, text in {"__init__": "from .everything import x\n", **files}.items():
        path = folder / (name.replace("__in__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Code({"geoshrink": folder})


def test_imports_are_followed_wherever_they_stand(tmp_path):
    found = tree(
        tmp_path,
        a="from . import b\nfrom .e import E\nimport torch\ndef f(x: E): b.g(x)\n",
        b="def g(x):\n    from .c import h\n    import importlib\n"
        "    return importlib.import_module('geoshrink.d').run(h(x))\n",
        c="from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from .e import E\ndef h(x: E): return x\n",
        d="import geoshrink.pack.one\nfrom .page import table\n",
        e="E = 1\n",
        everything="x = 1\n",
        page__in____init__="",
        page__in__table="T = 1\n",
        pack__in____init__="from .two import two\n",
        pack__in__one="from ..e import E as E\n",
        pack__in__two="two = 2\n",
    )
    names = ("a", "b", "c", "d", "pack", "pack.one", "pack.two", "e")
    assert found.reached(["geoshrink.a"]) == {f"geoshrink.{name}" for name in names}
    assert found.reached(["geoshrink.c"]) == {"geoshrink.c"}
    assert not found.reached(["geoshrink.page.table"]) and not found.reached(["geoshrink", "os"])


def test_kernels_that_are_loaded_late_count():
    assert "geoshrink.history.kernels.triton" in Code(ROOTS).reached(["geoshrink.sampling"])


BEFORE = Code(ROOTS)


def with_change(module: str, old: str, new: str) -> Code:
    """The sources with one text replaced; what is known of the others is kept."""
    after = Code({})
    file, text = BEFORE.texts[module]
    assert old in text
    after.texts = {**BEFORE.texts, module: (file, text.replace(old, new, 1))}
    after.modules = {name: found for name, found in BEFORE.modules.items() if name != module}
    after.hashes = {name: found for name, found in BEFORE.hashes.items() if name != module}
    return after


def changed(module: str, old: str, new: str, kind: str = "zoo") -> tuple[set[str], set[str]]:
    """(methods whose hash changes with a file's text, kinds of case whose runner's does)."""
    pair = BEFORE, with_change(module, old, new)

    def differ(one: str | None, other: str | None) -> bool:
        assert one and other
        return one != other

    methods = {name for name in METHODS if differ(*(c.method(name, {}, kind) for c in pair))}
    return methods, {each for each in code.RUNNERS if differ(*(c.runner(each) for c in pair))}


def test_a_comment_or_a_docstring_changes_no_hash():
    assert changed("geoshrink.history.cell", "KEPT = 0.5", "KEPT = 0.5  # half") == (set(), set())
    assert changed("geoshrink.sampling", '"""', '"""Words. ') == (set(), set())
    assert changed("geoshrink_bench.cases.zoo", '"""', '"""Words. ') == (set(), set())


def test_a_constant_of_the_history_makes_ours_stale_and_not_the_rivals():
    methods, runners = changed("geoshrink.history.cell", "KEPT = 0.5", "KEPT = 0.6")
    assert methods & (FORMS | set(SOLVERS) | APART) == FORMS | set(SOLVERS) and not runners
    assert "MeanCache" in methods  # its calibration runs in sample()


def test_a_constant_of_a_rival_makes_that_rival_stale():
    changes = changed("geoshrink_bench.methods.toca_blocks", "DEPTH = 27", "DEPTH = 28")
    assert changes == ({"ToCa"}, set())
    methods, _ = changed("geoshrink_bench.methods.teacache", "(1.0, 0.0)", "(1.0, 0.1)")
    assert {"TeaCache", "TeaCache (uncalibrated)"} <= methods and not methods & FORMS


def test_two_methods_of_one_file_are_told_apart():
    one = "return case.plain(budget)"
    assert changed("geoshrink_bench.methods.direct", one, "return case.plain(2)")[0] == {"direct"}
    planned, _ = changed("geoshrink_bench.methods.ours", "quiet=True)", "quiet=True, device=1)")
    assert planned == {"GeoShrink (planned)"}
    planned, _ = changed(
        "geoshrink.planning.search", "import annotations", "import annotations\nX = 1"
    )
    assert planned == {"GeoShrink (planned)", "GeoShrink (learned)"}


def test_a_form_is_also_what_it_was_made_with(monkeypatch):
    name, today = "auto, signed chordal", Code(ROOTS)
    before = today.method(name, {}, "zoo")
    monkeypatch.setattr(OURS[name], "options", OURS[name].options | {"rule": "chordal"})
    assert today.method(name, {}, "zoo") != before
    other = today.method("geometric, signed chordal", {}, "zoo")
    assert other not in (before, None)


def test_what_runs_every_method_has_a_hash_of_its_own():
    assert changed("geoshrink_bench.cases.zoo", "FIRST_SEED, ", "FIRST, ")[1] == {"zoo", "foreign"}
    assert changed("geoshrink_bench.cases.checkpoint", "WARM_UP = 4", "WARM_UP = 5") == (
        set(),
        {"checkpoint"},
    )
    entry = "make_it = self.called(options)"
    again = changed("geoshrink_bench.methods.registry", entry, "make_it = self.kind")
    assert again == (set(), set(code.RUNNERS))
    added = changed(
        "geoshrink_bench.methods.registry", '    "VDE": Entry(VDE),', '    "W": Entry(VDE),'
    )
    assert added == (set(), set())


@pytest.mark.parametrize(
    "module",
    [
        "geoshrink.page.table",
        "geoshrink.studio.app",
        "geoshrink.commands.compare",
        "geoshrink.compare.outcomes",
        "geoshrink.batch.jobs",
        "geoshrink.files",
        "geoshrink_bench.report.tables",
        "geoshrink_bench.report.zoo",
        "geoshrink_bench.commands.bench",
        "geoshrink_bench.command",
        "geoshrink_bench.runner",
        "geoshrink_bench.store",
        "geoshrink_bench.words",
    ],
)
def test_a_page_or_a_command_makes_no_cell_stale(module):
    after = "from __future__ import annotations\nMORE = 1\n"
    assert changed(module, "from __future__ import annotations\n", after) == (set(), set())


def test_in_a_pipeline_a_form_of_ours_is_its_host_too():
    seam = ("geoshrink.hosts.seam", "import annotations\n", "import annotations\nMORE = 1\n")
    methods, _ = changed(*seam, kind="checkpoint")
    assert methods & (FORMS | APART) == {*OURS, "GeoShrink", "GeoShrink (learned)"}
    assert not changed(*seam)[0]


def test_a_tuned_option_needs_the_tuning():
    after = with_change("geoshrink_bench.methods.tuning", "ROUNDS = 20", "ROUNDS = 9")
    for options, same in (({}, True), ({"warm_up": "tuned"}, False), ({"warm_up": 2}, True)):
        found = [each.method("HiCache", options, "zoo") for each in (BEFORE, after)]
        assert (found[0] == found[1]) == same


def test_hashes_are_quick_and_there_for_every_method():
    today, began = Code(ROOTS), time.process_time()
    setting = {"model": "fruit"}
    found = [today.of({"setting": setting, "method": name, "options": {}}) for name in METHODS]
    assert time.process_time() - began < 2  # about 0.5 s on an idle core
    assert all(set(each) == {"method", "runner"} for each in found)
    assert len({each["method"] for each in found}) > 0.9 * len(METHODS)


def test_the_hashes_are_of_the_code_as_it_was_read(tmp_path):
    found = tree(tmp_path, a="A = 1\n")
    (tmp_path / "a.py").write_text("A = 2\n")
    assert found.hash_of("geoshrink.a") != Code({"geoshrink": tmp_path}).hash_of("geoshrink.a")


class Elsewhere(Method):
    name = "elsewhere"

    def run(self, case, budget):
        return Outcome(case.solve(case.velocity()), tuple(range(6)))


def test_a_method_from_outside_has_its_own_file(monkeypatch):
    monkeypatch.setattr("geoshrink_bench.methods.registry.METHODS", METHODS)
    monkeypatch.setitem(METHODS, "elsewhere", None)
    register_method("elsewhere", Elsewhere)
    assert code.part_of(Elsewhere) == Part(__name__, "Elsewhere")
    assert Code(ROOTS).method("elsewhere", {}, "zoo")
    monkeypatch.setattr(Elsewhere, "__module__", "typed_at_a_prompt")
    spec = {"setting": {"model": "fruit"}, "method": "elsewhere", "options": {}}
    assert set(Code(ROOTS).of(spec)) == {"runner"}
    assert state_of(spec, {"code": Code(ROOTS).of(spec)}) == UNKNOWN


# -- cells

SUITE = {
    "name": "tiny",
    "samples": 2,
    "seeds": 1,
    "converged": 12,
    "models": {"fruit": {"budgets": [3], "guidance": 1.0, "shift": 3.0, "steps": 6}},
    "methods": ["FORA", "direct"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A suite of two cells that has run, on a network of three blocks."""

    def load_small(name, device="cpu", folder=None):
        model = small_case().model
        model.facts["sha256"] = "0" * 64
        return model

    monkeypatch.setattr(running, "load", load_small)
    command.run(SUITE, tmp_path, quiet=True)
    return tmp_path


def other_code(monkeypatch, module: str, old: str, new: str) -> None:
    after = with_change(module, old, new)
    for user in ("code", "lab", "cases.zoo"):
        monkeypatch.setattr(f"geoshrink_bench.{user}.TODAY", after)


def forget(folder: Path) -> None:
    """The cells as they were before they said which code made them."""
    store = Store(folder)
    for spec, result in list(store.cells()):
        store.write(spec, {name: value for name, value in result.items() if name != "code"})


DIRECT = ("geoshrink_bench.methods.direct", "return case.plain(budget)", "return case.plain(2)")
RUNNER = ("geoshrink_bench.cases.zoo", "FIRST_SEED, ", "FIRST, ")


def states(folder: Path) -> dict[str, str]:
    return {spec["method"]: state_of(spec, result) for spec, result in Store(folder).cells()}


def test_a_cell_says_which_code_made_it(folder, monkeypatch):
    for spec, result in Store(folder).cells():
        assert result["code"] == code.TODAY.of(spec) and set(result["code"]) == {"method", "runner"}
    assert states(folder) == {"FORA": CURRENT, "direct": CURRENT}
    other_code(monkeypatch, *DIRECT)
    assert states(folder) == {"FORA": CURRENT, "direct": STALE}
    other_code(monkeypatch, *RUNNER)
    assert states(folder) == {"FORA": STALE, "direct": STALE}
    forget(folder)
    assert states(folder) == {"FORA": UNKNOWN, "direct": UNKNOWN}


def test_latency_cells_say_it_too(folder):
    command.run(SUITE | {"latency": True, "repeats": 1}, folder, quiet=True)
    timed = [(s, r) for s, r in Store(folder).cells() if s["kind"] == "latency"]
    assert len(timed) == 2 and all(state_of(*each) == CURRENT for each in timed)
    cell = load([folder]).cells[0]
    assert (cell.code, cell.timed_code) == (CURRENT, CURRENT)


def test_a_method_that_is_gone_is_stale(folder, monkeypatch):
    monkeypatch.delitem(METHODS, "direct")
    assert states(folder) == {"FORA": CURRENT, "direct": STALE}


def test_stale_cells_are_kept_and_counted_and_made_anew_when_asked(folder, monkeypatch, capsys):
    before = {path: path.read_bytes() for path in folder.glob("*.cell.json")}
    other_code(monkeypatch, *DIRECT)
    progress = command.run(SUITE, folder, quiet=True)
    assert (progress.done, progress.kept, progress.stale) == (0, 2, 1)
    assert "2 kept from before (1 of them made by other code: --stale makes" in progress.line()
    assert {path: path.read_bytes() for path in before} == before
    progress = command.resume(folder, quiet=True, stale=True)
    assert (progress.done, progress.kept, progress.stale) == (1, 1, 0)
    assert states(folder) == {"FORA": CURRENT, "direct": CURRENT}
    forget(folder)
    assert command.resume(folder, quiet=True).stale == 2
    assert main(["bench", "resume", str(folder), "--stale"]) == 0
    assert states(folder) == {"FORA": CURRENT, "direct": CURRENT}
    assert command.resume(folder, quiet=True, stale=True).kept == 2


@pytest.mark.parametrize(
    "only, anew",
    [
        (["direct"], {"direct"}),
        ("FORA", {"FORA"}),
        (["fruit, FORA"], {"FORA"}),
        (["direct", "FORA"], {"direct", "FORA"}),
        (["fruit"], {"direct", "FORA"}),
    ],
)
def test_only_some_cells_are_made_anew(folder, only, anew):
    forget(folder)
    assert command.resume(folder, quiet=True, stale=True, only=only).done == len(anew)
    assert {name for name, state in states(folder).items() if state == CURRENT} == anew


@pytest.mark.parametrize("word, near", [("FORE", "FORA"), ("wan", "fruit, FORA, direct")])
def test_only_what_the_suite_has(tmp_path, word, near):
    with pytest.raises(ValueError, match=f"--only '{word}': .* it has .*{near}"):
        command.run(SUITE, tmp_path / "new", quiet=True, only=["direct", word])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("stale", [False, True])
def test_a_worker_elsewhere_makes_the_same_cells_anew(folder, stale):
    worker = command.Bench(Asked.load(folder), folder, stale)()
    assert worker.lab.anew == stale
    forget(folder)
    said = [worker(spec).came for spec in worker.lab.specs()]
    assert said == (["done", "done"] if stale else ["stale", "stale"])


def test_references_by_other_code_are_made_anew_with_their_cells(folder, monkeypatch):
    references = {path: path.stat().st_mtime_ns for path in folder.glob("*.reference.*")}

    def again() -> set[Path]:
        return {path for path, at in references.items() if path.stat().st_mtime_ns != at}

    other_code(monkeypatch, *DIRECT)
    command.resume(folder, quiet=True, stale=True)
    assert not again()
    other_code(monkeypatch, *RUNNER)
    command.resume(folder, quiet=True)
    assert not again()
    command.resume(folder, quiet=True, stale=True)
    assert again() == set(references) and len(references) == 2


def test_a_report_marks_what_is_stale(folder, monkeypatch, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")

    def texts() -> list[str]:
        command.report([folder], out, quiet=True)
        return [(out / f"report.{kind}").read_text("utf-8") for kind in ("md", "html", "tex")]

    def column() -> dict[str, str]:
        with open(out / "results.csv", encoding="utf-8") as file:
            return {row["method"]: row["code"] for row in csv.DictReader(file)}

    assert not any("Stale:" in text or "†" in text for text in texts())
    assert column() == {"FORA": CURRENT, "direct": CURRENT}
    other_code(monkeypatch, *DIRECT)
    written, page, latex = texts()
    said = "Stale: 1 cell of 2 done was made by other code than today's: direct 1 of 1."
    assert said in written and "1 cell of 2 done was made by other code" in page
    marked = [line for line in written.splitlines() if "†" in line and line.startswith("|")]
    assert marked and all(line.startswith("| direct |") for line in marked)
    assert "† made by other code than today's." in written and r"$\dagger$" in latex
    assert column() == {"FORA": CURRENT, "direct": STALE}
    forget(folder)
    written, page, _ = texts()
    assert "Stale: 2 cells of 2 done were made by unknown code." in written
    assert "Every number was made by unknown code." in page and "†" not in written
    assert column() == {"FORA": UNKNOWN, "direct": UNKNOWN}


def test_old_cells_are_read_as_before(folder):
    def numbers() -> list[str]:
        found = load([folder])
        return [t.markdown() for t in tables_of(found, found.settings[0], "full")]

    before = numbers()
    forget(folder)
    assert [
        text.replace(" Every number was made by unknown code.", "") for text in numbers()
    ] == before


def test_status_counts_what_is_done_missing_stale_and_unknown(folder, monkeypatch, capsys):
    def line() -> list[str]:
        assert main(["bench", "status", str(folder)]) == 0
        row = next(r for r in capsys.readouterr().out.splitlines() if r.startswith(str(folder)))
        return row.removeprefix(str(folder)).split()

    assert line() == ["tiny", "2", "2", "0", "0", "0", "0"]
    other_code(monkeypatch, *DIRECT)
    assert line() == ["tiny", "2", "2", "0", "0", "1", "0"]
    forget(folder)
    assert line() == ["tiny", "2", "2", "0", "0", "0", "2"]
    store = Store(folder)
    spec = next(spec for spec, _ in store.cells() if spec["method"] == "FORA")
    store.path(spec).unlink()
    assert line() == ["tiny", "2", "1", "1", "0", "0", "1"]
    store.fail(spec, "ValueError: no")
    assert line() == ["tiny", "2", "1", "1", "1", "0", "1"]
    for path in [*folder.glob("*.cell.json"), *folder.glob("*.error.json")]:
        path.unlink()
    assert line() == ["tiny", "2", "0", "2", "0", "0", "0"]
