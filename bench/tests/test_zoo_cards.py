"""The cards of the models: front matter that a hub reads, and words that agree with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoshrink_bench import zoo
from geoshrink_bench.zoo.recipes import RECIPES
from geoshrink_bench.zoo.sheet import line_about

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "bench/src/geoshrink_bench/zoo/weights"
CARDS = [*sorted(path for path in (ROOT / "zoo").glob("*.md") if path.stem in RECIPES)]
CARDS += [PACKAGE / "fruit.md"]
#: A licence as a hub spells it, and as the card does.
LICENCES = {"cc-by-sa-4.0": "CC BY-SA 4.0", "cc-by-4.0": "CC BY 4.0", "apache-2.0": "Apache-2.0"}
TASKS = {"unconditional-image-generation", "other"}


def test_every_model_has_a_card():
    assert {card.stem for card in CARDS} == set(RECIPES)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.stem)
def test_a_hub_accepts_the_card(card):
    hub = pytest.importorskip("huggingface_hub")
    read = hub.ModelCard.load(card)
    data = read.data.to_dict()
    assert set(data) == {"license", "library_name", "pipeline_tag", "tags", "datasets"}
    assert data["library_name"] == "geoshrink" and data["pipeline_tag"] in TASKS
    assert "class-conditional" in data["tags"] and data["datasets"]
    assert f"**{LICENCES[data['license']]}**" in read.text
    assert read.text.lstrip().startswith(f"# {card.stem}\n")
    again = hub.ModelCard(str(read))
    assert again.data.to_dict() == data


def test_front_matter_is_not_what_a_sheet_says_of_a_model():
    assert line_about(zoo.load("fruit")).startswith("A class-conditional rectified flow on 64×64")
