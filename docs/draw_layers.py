"""Draws docs/layers.svg from the import contracts in pyproject.toml: `python docs/draw_layers.py`.

The contracts are what `lint-imports` checks, and a test compares the drawing with them, so the
picture shows the imports that the code has.
"""

import pathlib
import tomllib
from html import escape

HERE = pathlib.Path(__file__).parent
PICTURE = HERE / "layers.svg"
ROW, GAP, BOX_GAP, LETTER, PADDING, WIDTH = 30, 12, 10, 8.2, 12, 370
STYLE = """
text { font: 13px ui-monospace, SFMono-Regular, Menlo, monospace; fill: #1c2733 }
.title { font-weight: 600 } .note { fill: #5b6b7b }
rect { fill: #e8f0f7; stroke: #7a94ab; rx: 4 } .pure rect { fill: #e6f4e4; stroke: #74a06e }
line { stroke: #5b6b7b; stroke-width: 1.5; marker-end: url(#head) } marker path { fill: #5b6b7b }
@media (prefers-color-scheme: dark) {
  text { fill: #dbe4ec } .note { fill: #93a4b4 }
  rect { fill: #22303d; stroke: #5b7388 } .pure rect { fill: #22382a; stroke: #5f8a66 }
  line { stroke: #93a4b4 } marker path { fill: #93a4b4 }
}
"""


def contracts() -> tuple[dict[str, list[list[str]]], set[str]]:
    """The layers of each container, from the top; and the packages that must be pure."""
    text = (HERE.parent / "pyproject.toml").read_text()
    layers: dict[str, list[list[str]]] = {}
    pure: set[str] = set()
    for contract in tomllib.loads(text)["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            (container,) = contract["containers"]
            layers[container] = [
                [name.strip(" ()") for name in layer.split("|")] for layer in contract["layers"]
            ]
        elif "pure" in contract["name"]:
            pure = {name.rpartition(".")[2] for name in contract["source_modules"]}
    return layers, pure


def column(
    title: str, layers: list[list[str]], left: float, pure: set[str]
) -> tuple[list[str], float, float]:
    """One container: its shapes, the right edge and the lower edge."""
    right = left
    shapes = [f'<text class="title" x="{left:g}" y="24">{escape(title)}</text>']
    top = 40.0
    for layer in layers:
        x = left
        for name in layer:
            if name == "web":  # a package to come
                continue
            box = len(name) * LETTER + 2 * PADDING
            if x + box > left + WIDTH:
                x, top = left, top + ROW + 2
            kind = ' class="pure"' if name in pure else ""
            shapes.append(
                f'<g{kind}><rect x="{x:g}" y="{top:g}" width="{box:g}" height="{ROW}"/>'
                f'<text x="{x + PADDING:g}" y="{top + 20:g}">{escape(name)}</text></g>'
            )
            right = max(right, x + box)
            x += box + BOX_GAP
        top += ROW + GAP
    shapes.append(f'<line x1="{left - 14:g}" y1="44" x2="{left - 14:g}" y2="{top - GAP - 4:g}"/>')
    return shapes, right, top


def drawn() -> str:
    """The picture, as SVG."""
    layers, pure = contracts()
    shapes: list[str] = []
    left, lowest = 32.0, 0.0
    for container, found in layers.items():
        title = "packages" if container == "odradek" else container.removeprefix("odradek.")
        more, right, bottom = column(title, found, left, pure if container == "odradek" else set())
        shapes += more
        left, lowest = right + 56, max(lowest, bottom)
    note = (
        "A box may import what is below it in its column; green: no clock, no randomness, no I/O."
    )
    shapes.append(f'<text class="note" x="18" y="{lowest + 18:g}">{note}</text>')
    width, height = left - 24, lowest + 34
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'role="img" aria-label="The layers of the code">\n<style>{STYLE}</style>\n'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(drawn())
    print(f"wrote {PICTURE}")
