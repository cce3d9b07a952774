"""geoshrink plans: push, list and pull, and what a stranger's place may hold."""

from __future__ import annotations

import functools
import http.server
import json
import os
import threading
import urllib.error
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import geoshrink
from geoshrink import Plan, Profile
from geoshrink.cli import main
from geoshrink.files import digest as plan_digest
from geoshrink.planning.files import digest as planning_digest
from geoshrink.pointers import page_of
from geoshrink.purpose import Purpose
from geoshrink.sharing import Shelf
from geoshrink.sharing.entry import check_words
from geoshrink.sharing.place import Place
from geoshrink.sharing.shelf import INDEX, Query

SCHEDULER = "FlowMatchEulerDiscreteScheduler"
ID = "black-forest-labs/FLUX.1-dev"


def grid(steps: int) -> list[float]:
    return [1 - n / steps for n in range(steps + 1)]


def plan_file(folder: Path, steps: int = 50, budget: int = 10, **facts: Any) -> Path:
    purpose = Purpose(scheduler=SCHEDULER, steps=steps, **facts)
    plan = replace(Plan.of(grid(steps), budget), purpose=purpose)
    return plan.save(folder / f"plan{steps}-{budget}.json")


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def place(here) -> Path:
    """A folder with two plans."""
    for file in (plan_file(here, 50, 10, guidance=3.5), plan_file(here, 28, 7, guidance=4.5)):
        assert main(["plans", "push", str(file), "shared", "--model", ID]) == 0
    return here / "shared"


def index(place: Path) -> dict[str, Any]:
    return json.loads((place / INDEX).read_text("utf-8"))


def rewrite(place: Path, **changes: Any) -> None:
    """Changes the first entry of the index."""
    body = index(place)
    body["entries"][0] |= changes
    (place / INDEX).write_text(json.dumps(body), encoding="utf-8")


def test_a_plan_goes_there_and_comes_back(place, here, capsys):
    asked = ["--model", "flux.1-dev", "--steps", "50", "--budget", "10", "--guidance", "3.5"]
    assert main(["plans", "pull", str(place), *asked, "--out", "mine.json"]) == 0
    plan = Plan.load(here / "mine.json")
    assert plan == Plan.of(grid(50), 10) and plan.purpose is not None
    assert plan.purpose == Purpose(ID, "", SCHEDULER, (), 50, 3.5)
    assert "pulled a plan with 10 calls for 50 steps of FlowMatch" in capsys.readouterr().out


def test_a_pulled_file_has_the_name_of_its_hash(place, here):
    assert main(["plans", "pull", str(place), "--steps", "28"]) == 0
    entry = next(e for e in Shelf(str(place)).entries() if e.purpose.steps == 28)
    assert (here / entry.file).read_bytes() == (place / entry.file).read_bytes()
    assert entry.file == f"{entry.sha256[:16]}.plan.json"


def test_a_folder_is_made_for_it(place, here):
    assert main(["plans", "pull", str(place), "--steps", "28", "--out", "new/"]) == 0
    assert [file.suffix for file in (here / "new").iterdir()] == [".json"]


def test_the_same_file_twice_is_one_entry_and_the_latest_is_first(place, here, capsys):
    assert main(["plans", "push", "plan50-10.json", "shared", "--model", ID]) == 0
    assert [e["purpose"]["steps"] for e in index(place)["entries"]] == [50, 28]
    capsys.readouterr()
    assert main(["plans", "list", "shared"]) == 0
    said = capsys.readouterr().out
    assert said.count(ID) == 2 and "shared: 2 to pull" in said
    assert main(["plans", "list", "shared", "--scheduler", "unipc"]) == 0
    assert capsys.readouterr().out == "shared has nothing of that kind\n"
    assert main(["plans", "list", "shared", "--json", "--kind", "plan", "--budget", "7"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert only["budget"] == 7 and (place / only["file"]).is_file()


def test_several_push_at_once_and_all_are_listed(here):
    pytest.importorskip("fcntl")
    files = [plan_file(here, 20 + i, 6) for i in range(8)]
    pushing = [threading.Thread(target=Shelf("shared").push, args=(file,)) for file in files]
    for thread in pushing:
        thread.start()
    for thread in pushing:
        thread.join()
    assert {entry.purpose.steps for entry in Shelf("shared").entries()} == {*range(20, 28)}


def test_a_whole_file_is_pushed_as_it_is(here):
    file = plan_file(here)
    Shelf("shared").push(file)
    (entry,) = Shelf("shared").entries()
    assert (here / "shared" / entry.file).read_bytes() == file.read_bytes()


def test_the_version_and_the_form_of_a_whole_file_are_kept(here):
    body = json.loads(plan_file(here).read_text("utf-8"))
    del body["sha256"]
    body["geoshrink"] = "0.0.9"
    text = json.dumps(body | {"sha256": plan_digest(body)}, indent=2)
    Path("plan.json").write_text(text, encoding="utf-8")
    entry = Shelf("shared").push("plan.json")
    assert entry.geoshrink == "0.0.9"
    assert Path("shared", entry.file).read_text("utf-8") == text


def test_a_plan_of_before_needs_no_facts(here):
    Path("old.json").write_text(Plan.of(grid(20), 5).to_json(), encoding="utf-8")
    entry = Shelf("shared").push("old.json")
    assert entry.purpose == Purpose(steps=20) and Shelf("shared").entries() == [entry]


def test_plans_of_before_can_be_pushed(here, capsys):
    (here / "old.json").write_text(Plan.of(grid(20), 5).to_json(), encoding="utf-8")
    assert main(["plans", "push", "old.json", "shared", "--network", "Net"]) == 0
    (entry,) = Shelf("shared").entries()
    assert entry.purpose == Purpose(network="Net", steps=20) and entry.budget == 5
    assert entry.geoshrink == geoshrink.__version__


def test_a_profile_is_shared_as_a_plan_is(here):
    noise = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    told: dict[str, Any] = {"guidance": 2.0, "budgets": (), "quiet": True}
    made = geoshrink.profile(lambda x, sigma: torch.cos(3 * x), noise, grid(12), **told)
    made.save("profile.json")
    assert main(["plans", "push", "profile.json", "shared", "--model", ID]) == 0
    assert main(["plans", "pull", "shared", "--kind", "profile", "--out", "got.json"]) == 0
    got = Profile.load("got.json")
    assert got.plan(5) == made.plan(5) and got.facts == Purpose(ID, steps=12, guidance=2.0)


def test_what_is_told_when_pushing_is_in_the_file_and_the_list(here, capsys):
    file = plan_file(here)
    told = ["--network", "Net", "--guidance", "2.5"]
    assert main(["plans", "push", str(file), "shared", *told]) == 0
    (entry,) = Shelf("shared").entries()
    assert entry.purpose == Purpose("", "Net", SCHEDULER, (), 50, 2.5)
    assert Plan.load(Path("shared", entry.file)).purpose == entry.purpose
    wide = plan_file(here, 28, 7, guidance=(3.0, 5.0))
    assert main(["plans", "push", str(wide), "shared"]) == 0
    capsys.readouterr()
    assert main(["plans", "list", "shared"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if SCHEDULER in line]
    version = geoshrink.__version__
    assert rows[0][-6:] == ["28", "3", "to", "5", "7", version]
    assert rows[1][-6:] == ["Net", SCHEDULER, "50", "2.5", "10", version]


@pytest.mark.parametrize(
    ("wanted", "steps"),
    [
        ({"guidance": 3.0}, [28]),
        ({"guidance": 4.2}, [28]),
        ({"guidance": 5.0}, [28]),
        ({"guidance": 2.5}, [50]),
        ({"guidance": 2.9}, []),
        ({"guidance": 5.1}, []),
        ({"scheduler": "EULER"}, [12, 28, 50]),
        ({"budget": 7}, [28]),
        ({"kind": "plan"}, [12, 28, 50]),
        ({"kind": "profile"}, []),
        ({"network": "net"}, []),
    ],
)
def test_a_query_finds_what_is_wanted_and_no_more(here, wanted, steps):
    """The plan for 12 steps has no guidance: nobody knows whether it is the one that is wanted."""
    for n, facts in ((50, {"guidance": 2.5}), (28, {"guidance": (3.0, 5.0)}), (12, {})):
        Shelf("shared").push(plan_file(here, n, {50: 10, 28: 7, 12: 5}[n], **facts))
    found = Shelf("shared").find(Query(**wanted))
    assert [entry.purpose.steps for entry in found] == steps


def test_an_id_is_how_a_sha256_begins_in_whatever_case(place):
    first = Shelf("shared").entries()[0]
    for beginning in (first.sha256[:8], first.sha256.upper()):
        assert Shelf("shared").find(Query(sha256=beginning)) == [first]
    assert Shelf("shared").find(Query(sha256=first.sha256[1:])) == []


def test_a_profile_is_of_no_budget(here):
    entry = replace(Shelf("shared").push(plan_file(here)), kind="profile", budget=None)
    assert Query(budget=10).difference(entry) == {"budget": "a profile, of no budget"}


def test_an_address_is_a_place(here, capsys):
    import fsspec

    file = plan_file(here)
    address = "memory://geoshrink-plans/of/mine"
    assert main(["plans", "push", str(file), address]) == 0
    assert main(["plans", "pull", address, "--out", "mine.json"]) == 0
    assert Plan.load("mine.json") == Plan.load(file)
    store: Any = fsspec.filesystem("memory")
    store.rm("/geoshrink-plans", recursive=True)
    Shelf(f"file://{here}/new/of/mine").push(file)
    assert len(Shelf(str(here / "new" / "of" / "mine")).entries()) == 1


@pytest.fixture
def served(place):
    """The place, read-only on the web."""
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": print_nothing})
    handler: Any = functools.partial(quiet, directory=str(place))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def print_nothing(*_: object) -> None: ...


def test_the_web_is_read_and_never_written(served, here, capsys):
    assert main(["plans", "pull", f"{served}/", "--steps", "28", "--out", "web.json"]) == 0
    assert Plan.load("web.json").budget == 7
    assert main(["plans", "push", "web.json", served]) == 2
    assert "can only be read: push to a folder" in capsys.readouterr().err
    assert main(["plans", "list", f"{served}/nowhere"]) == 2
    assert "has no index.json" in capsys.readouterr().err


RAW = {
    "status": b"\x1b[31mno status line" + b"x" * 500 + b"\r\n\r\n",
    "headers": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
}


class Odd(http.server.BaseHTTPRequestHandler):
    """Answers with what the path says: a status, or bytes as they are."""

    def do_GET(self) -> None:
        name = self.path.split("/")[1]
        if name.isdigit():
            self.send_error(int(name))
        else:
            self.wfile.write(RAW[name])

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def odd():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["500", *RAW])
def test_a_server_that_answers_oddly_is_named(odd, capsys, name):
    assert main(["plans", "list", f"{odd}/{name}"]) == 2
    said = capsys.readouterr().err
    assert f"{odd}/{name}/index.json: " in said and len(said) < 300 and "\x1b" not in said


@pytest.mark.parametrize("code", [403, 404, 410])
def test_a_server_says_in_three_ways_that_there_is_nothing(odd, capsys, code):
    assert main(["plans", "list", f"{odd}/{code}"]) == 2
    assert "has no index.json" in capsys.readouterr().err


def test_a_server_that_drips_is_given_up(served, capsys, monkeypatch):
    monkeypatch.setattr("geoshrink.sharing.place.WHOLE", -1.0)
    assert main(["plans", "list", served]) == 2
    assert f"{served}/index.json: TimeoutError" in capsys.readouterr().err


def test_a_server_has_so_many_seconds_to_answer(monkeypatch, capsys):
    asked = []

    def silent(url: str, timeout: float | None = None) -> None:
        asked.append(timeout)
        raise urllib.error.URLError("timed out")

    monkeypatch.setattr("urllib.request.urlopen", silent)
    assert main(["plans", "list", "https://nowhere.example"]) == 2
    said = capsys.readouterr().err
    assert "plans: https://nowhere.example/index.json does not answer: timed out" in said
    assert asked == [30.0]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://", "'https://' names no server: give https://SERVER/FOLDER"),
        ("HTTP:///", "'HTTP:///' names no server"),
        ("http://[::1", "http://[::1/index.json is no address"),
        ("http://a b", "http://a b/index.json: InvalidURL"),
    ],
)
def test_what_is_no_address_is_quoted(here, capsys, address, words):
    assert main(["plans", "list", address]) == 2
    assert words in capsys.readouterr().err


def test_addresses_keep_their_slashes_and_lose_their_capitals(here):
    assert Place("HTTPS://Host/Plans//").address == "https://Host/Plans"
    assert Place("HTTPS://h").web and not Place("here/").web
    assert Place("here/").address == "here" and Place("/").address == "/"
    assert Place("memory://").fs is not None


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--steps", "30"], "the nearest has 28 steps"),
        (["--steps", "50", "--budget", "7"], "the nearest has budget 10"),
        (["--model", "sd3"], f"the nearest has model {ID}"),
        (["--guidance", "9", "--steps", "28"], "the nearest has guidance 4.5"),
        ([], "2 files are what you ask for: say more"),
        (["--sha256", "xyz"], "--sha256 is up to 64 hexadecimal digits, got 'xyz'"),
        (["--sha256", ""], "--sha256 is up to 64 hexadecimal digits, got ''"),
        (["--model", "sd3", "--steps", "28"], f"the nearest has model {ID} ("),
        (["--steps", "50", "--guidance", "4.5"], "the nearest has guidance 3.5 ("),
        (["--steps", "28", "--guidance", "3.5", "--budget", "10"], "the nearest has 50 steps ("),
    ],
)
def test_what_is_not_there_is_told_with_the_difference(place, capsys, asked, words):
    capsys.readouterr()
    assert main(["plans", "pull", "shared", *asked]) == 2
    said = capsys.readouterr().err
    assert words in said and said.splitlines()[-1] == f"See {page_of('plans')}"


def test_facts_that_contradict_a_file_are_refused(here, capsys):
    file = plan_file(here, guidance=3.5, network="Net")
    for more, words in (
        (["--guidance", "4"], "guidance 3.5, not 4.0: leave --guidance out"),
        (["--scheduler", "UniPC"], f"scheduler '{SCHEDULER}', not 'UniPC'"),
        (["--network", "Other"], "network 'Net', not 'Other': leave --network out"),
        (["--model", "x" * 300], "model is a name of at most 200 letters"),
    ):
        assert main(["plans", "push", str(file), "shared", *more]) == 2
        assert words in capsys.readouterr().err
    assert not Path("shared").exists()


@pytest.mark.parametrize("content", ["", "no", "[1]", "[" * 100_000, '{"version": 1}', "\0"])
def test_what_is_no_plan_is_not_pushed(here, capsys, content):
    Path("plan.json").write_text(content)
    assert main(["plans", "push", "plan.json", "shared"]) == 2
    assert capsys.readouterr().err.startswith("geoshrink plans: plan.json: this ")
    assert main(["plans", "push", "missing.json", "shared"]) == 2
    assert not Path("shared").exists()


def test_a_file_that_was_changed_is_not_kept(place, here, capsys):
    entry = Shelf("shared").entries()[0]
    file = place / entry.file
    body = json.loads(file.read_text("utf-8"))
    del body["sha256"]
    file.write_text(json.dumps(body), encoding="utf-8")
    asked = ["plans", "pull", "shared", "--steps", "28", "--out", "mine.json"]
    assert main(asked) == 2 and "has no sha256" in capsys.readouterr().err
    other = Plan.load(here / "plan50-10.json").save(here / "other.json")
    file.write_bytes(other.read_bytes())
    rewrite(place, bytes=2**20)
    assert main(asked) == 2 and "is not what the index of shared says" in capsys.readouterr().err
    file.unlink()
    assert main(asked) == 2 and "but does not have it" in capsys.readouterr().err
    assert not Path("mine.json").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"purpose": {"model": "owner/other", "steps": 28}},
        {"budget": 9},
        {"geoshrink": "9.9.9"},
        {"bytes": 2**20},
    ],
)
def test_a_file_that_the_index_tells_wrongly_is_not_kept(place, capsys, change):
    rewrite(place, **change)
    assert main(["plans", "pull", "shared", "--steps", "28", "--out", "mine.json"]) == 2
    assert "is not what the index of shared says" in capsys.readouterr().err
    assert not Path("mine.json").exists()


def test_a_file_says_which_geoshrink_wrote_it(place, capsys):
    file = place / Shelf("shared").entries()[0].file
    body = json.loads(file.read_text("utf-8"))
    del body["sha256"], body["geoshrink"]
    file.write_text(json.dumps(body | {"sha256": plan_digest(body)}), encoding="utf-8")
    assert main(["plans", "pull", "shared", "--steps", "28"]) == 2
    assert "does not say which geoshrink wrote it" in capsys.readouterr().err


def test_names_of_fields_are_printable_too(place, capsys):
    file = place / Shelf("shared").entries()[0].file
    body = json.loads(file.read_text("utf-8"))
    body["\x1b[31m"] = body.pop("version")
    file.write_text(json.dumps(body), encoding="utf-8")
    rewrite(place, bytes=2**20)
    assert main(["plans", "pull", "shared", "--steps", "28"]) == 2
    assert r"control characters in '\x1b[31m'" in capsys.readouterr().err


def test_a_full_disk_leaves_the_place_and_your_file_as_they_were(place, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = index(place)
    third = plan_file(Path(), 20, 6)
    monkeypatch.setattr(os, "replace", full)
    assert main(["plans", "push", str(third), "shared"]) == 2
    assert index(place) == before and len([*place.glob("*.plan.json")]) == 2
    assert main(["plans", "pull", "shared", "--steps", "28", "--out", "mine.json"]) == 2
    assert not Path("mine.json").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sha256": "../../../../etc/passwd"}, "a sha256 has 64 hexadecimal digits"),
        ({"sha256": "A" * 64}, "a sha256 has 64 hexadecimal digits"),
        ({"kind": "../../x"}, "a file is a plan or a profile, got kind '../../x'"),
        ({"kind": ["plan"]}, "a file is a plan or a profile, got kind"),
        ({"bytes": 10**401}, "is too large to be one"),
        ({"budget": 10**401}, "a budget is a whole number from 1 to 1000000, got 1000"),
        ({"budget": "x" * 5000}, "a budget is a whole number from 1 to 1000000, got 'xxx"),
        ({"purpose": {"guidance": 10**400}}, "guidance is a number or a range"),
        ({"purpose": {"steps": 10**7}}, "steps are a whole number from 1 to 1000000"),
        ({"bytes": 2**40}, "is too large to be one"),
        ({"bytes": 3 * 2**20}, "a plan of 3145728 bytes is too large to be one"),
        ({"bytes": True}, "bytes are a whole number from 1 on, got True"),
        ({"bytes": -1}, "bytes are a whole number from 1 on, got -1"),
        ({"budget": "7"}, "a budget is a whole number from 1 to 1000000, got '7'"),
        ({"geoshrink": "\x1b[2J"}, "is a name of at most 200 letters"),
        ({"purpose": {"model": "a\nb"}}, "is a name of at most 200 letters"),
        ({"purpose": None}, "purpose is missing"),
        ({"file": "../x"}, "an entry has budget, bytes"),
    ],
)
def test_a_strange_index_is_refused(place, capsys, change, words):
    rewrite(place, **change)
    capsys.readouterr()
    assert main(["plans", "list", "shared"]) == 2
    said = capsys.readouterr().err
    assert words in said and len(said) < 400


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "it has no 'geoshrink index': []"),
        ('{"entries": []}', "it has no 'geoshrink index'"),
        ('{"geoshrink index": 1}', "its entries are a list, got None"),
        ('{"geoshrink index": 1, "entries": 5}', "its entries are a list, got 5"),
        (json.dumps({"geoshrink index": "2" * 5000}), "it has version '222"),
        (json.dumps(["x" * 5000]), "it has no 'geoshrink index': ['xxx"),
    ],
)
def test_what_is_wrong_with_an_index_is_said_in_words(here, capsys, content, words):
    Path("shared").mkdir()
    Path("shared", INDEX).write_text(content)
    assert main(["plans", "list", "shared"]) == 2
    said = capsys.readouterr().err
    assert words in said and len(said) < 300


def test_numbers_that_no_float_holds_are_not_pushed(here, capsys):
    body = json.loads(plan_file(here).read_text("utf-8"))
    del body["sha256"]
    Path("plan.json").write_text(json.dumps(body | {"coefficients": [10**400] * 50}))
    assert main(["plans", "push", "plan.json", "shared"]) == 2
    assert "this plan is damaged" in capsys.readouterr().err
    noise = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    made = geoshrink.profile(lambda x, sigma: x, noise, grid(12), budgets=(), quiet=True)
    made.save("profile.json")
    body = json.loads(Path("profile.json").read_text("utf-8"))
    del body["sha256"]
    body["grid"]["tracks"][0]["sigmas"][0] = 10**400
    Path("profile.json").write_text(json.dumps(body | {"sha256": planning_digest(body)}))
    assert main(["plans", "push", "profile.json", "shared"]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_words_of_strangers_are_printable(here, capsys):
    plan = replace(Plan.of(grid(20), 5), mesh="\x1b]0;mine\x07")
    plan.save("plan.json")
    assert main(["plans", "push", "plan.json", "shared"]) == 2
    assert r"control characters in '\x1b]0;mine\x07'" in capsys.readouterr().err
    body = json.loads(Path("plan.json").read_text("utf-8")) | {"mesh": "mine", "\x1b[31m": 1}
    del body["sha256"]
    Path("plan.json").write_text(json.dumps(body), encoding="utf-8")
    assert main(["plans", "push", "plan.json", "shared"]) == 2
    assert r"control characters in '\x1b[31m'" in capsys.readouterr().err


def test_what_is_nested_without_end_is_looked_through():
    """From Python 3.13 on, JSON is read deeper than functions can call themselves."""
    body: Any = "\x1b"
    for _ in range(10_000):
        body = [body]
    with pytest.raises(ValueError, match="control characters"):
        check_words(body)


@pytest.mark.parametrize("place", ["version", "type"])
def test_profiles_of_strangers_are_quoted_in_short(here, capsys, place):
    noise = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    made = geoshrink.profile(lambda x, sigma: x, noise, grid(12), budgets=(), quiet=True)
    made.save("profile.json")
    body = json.loads(Path("profile.json").read_text("utf-8"))
    del body["sha256"]
    if place == "version":
        body["geoshrink profile"] = "2" * 9000
    else:
        body["batches"][0]["grams"][0]["type"] = "x" * 9000
    body["sha256"] = planning_digest(body)
    Path("profile.json").write_text(json.dumps(body), encoding="utf-8")
    assert main(["plans", "push", "profile.json", "shared"]) == 2
    assert len(capsys.readouterr().err) < 600


def test_sizes_are_limited(place, here, capsys, monkeypatch):
    entry = Shelf("shared").entries()[0]
    with (place / entry.file).open("ab") as file:
        file.write(b" " * 100)
    assert main(["plans", "pull", "shared", "--steps", "28"]) == 2
    assert f"has more than {entry.bytes} bytes" in capsys.readouterr().err
    monkeypatch.setattr("geoshrink.sharing.shelf.INDEX_BYTES", 100)
    assert main(["plans", "list", "shared"]) == 2
    assert "index.json has more than 100 bytes" in capsys.readouterr().err


def test_numbers_cannot_be_blown_up(here, capsys):
    """One number for each sample would be broadcast to a matrix each: 128 MB to many TB."""
    from geoshrink.planning.files import symmetric

    with pytest.raises(ValueError, match="are not triangles of 1001 rows"):
        symmetric(torch.zeros(1000, 1), 1001)
    for odd in (torch.zeros(6), torch.zeros(1, 6, 1)):
        with pytest.raises(ValueError, match="are not triangles of 3 rows"):
            symmetric(odd, 3)


def test_nothing_of_yours_is_overwritten(place, here, capsys):
    Path("mine.json").write_text("mine")
    assert main(["plans", "pull", "shared", "--steps", "28", "--out", "mine.json"]) == 2
    assert "with other contents: name another file" in capsys.readouterr().err
    assert Path("mine.json").read_text() == "mine"
    for _ in range(2):  # the same contents are no trouble
        assert main(["plans", "pull", "shared", "--steps", "28", "--out", "new.json"]) == 0


def test_a_file_or_a_broken_index_is_no_place(here, capsys):
    file = plan_file(here)
    assert main(["plans", "list", ""]) == 2
    assert "a place is a folder or an address, got ''" in capsys.readouterr().err
    assert main(["plans", "push", str(file), str(file)]) == 2
    assert "is a file: name the folder" in capsys.readouterr().err
    for content in ("{", "[]", '{"geoshrink index": 2, "entries": []}', '{"entries": []}'):
        Path("shared").mkdir(exist_ok=True)
        Path("shared", INDEX).write_text(content)
        for asked in (["list", "shared"], ["push", str(file), "shared"]):
            assert main(["plans", *asked]) == 2
            assert "the index.json of shared cannot be read" in capsys.readouterr().err


def test_an_address_that_cannot_be_written_is_not_asked_first(here, capsys):
    assert main(["plans", "push", "none.json", "https://nowhere.invalid/plans"]) == 2
    assert "https://nowhere.invalid/plans can only be read" in capsys.readouterr().err


def test_a_damaged_file_is_named(here, capsys):
    (here / "cut.json").write_text('{"grid": [1')
    assert main(["plans", "push", "cut.json", "there"]) == 2
    told = capsys.readouterr().err
    assert 'cut.json: this is neither a plan nor a profile, or it is damaged: \'{"grid"' in told


def test_a_guidance_that_is_no_number_finds_nothing(here, capsys):
    assert main(["plans", "list", ".", "--guidance", "nan"]) == 2
    assert "--guidance is a finite number, got nan" in capsys.readouterr().err
