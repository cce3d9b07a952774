"""python -m geoshrink_bench.foreign [list | fetch [NAME …]]: which foreign models are here."""

from __future__ import annotations

import argparse
import sys

from . import RECIPES, Missing, fetch
from .files import found, home
from .recipe import Recipe, recipe_of


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m geoshrink_bench.foreign", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("list", "fetch"), default="list")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    args = parser.parse_args(arguments)
    recipes = [recipe_of(name) for name in args.names] or list(RECIPES.values())
    print(f"foreign models in {home()}")
    missing = [problem for recipe in recipes if (problem := shown(recipe, args.what == "fetch"))]
    for problem in missing:
        print(f"NOT HERE: {problem}", file=sys.stderr)
    print(f"{len(recipes) - len(missing)} of {len(recipes)} are here")
    return int(args.what == "fetch" and bool(missing))


def shown(recipe: Recipe, bring: bool) -> str | None:
    """Prints one line; returns why a model is not here, or None."""
    problem = None
    try:
        (fetch if bring else found)(recipe)
    except (Missing, ValueError) as error:
        problem = str(error)
    here = "missing" if problem else "here"
    kind = f"{recipe.prediction}, {recipe.alphas}"
    print(f"{here:8}{recipe.name:16}{kind:15}{recipe.licence:12}{recipe.source}: {recipe.about}")
    return problem


if __name__ == "__main__":
    sys.exit(main())
