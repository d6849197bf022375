"""The pages that are generated from the code are up to date."""

import pathlib
import runpy

import pytest
from starlette.routing import Route

from odradek.web.app import create_app
from odradek.web.facts.source import Source

DOCS = pathlib.Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("program", "page"),
    [
        ("generate_configuration.py", "configuration.md"),
        ("generate_tools.py", "tools.md"),
        ("generate_page_json.py", "page_json.md"),
    ],
)
def test_a_generated_page_is_up_to_date(program, page):
    made = runpy.run_path(str(DOCS / program))["page"]()

    assert (DOCS / page).read_text(encoding="utf-8") == made, f"run `python docs/{program}`"


def test_the_page_s_json_has_every_url(tmp_path):
    program = runpy.run_path(str(DOCS / "generate_page_json.py"))
    documented = {
        *(("GET", path) for path in (*program["VIEWS"], *program["FILES"])),
        *(("POST", path) for path in program["WRITES"]),
    }
    app = create_app(Source({}, directory=tmp_path))
    served = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }

    assert documented == served
