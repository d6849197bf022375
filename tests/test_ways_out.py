"""Text leaves by few ways, where what others have chosen becomes printable; each other is listed.

See "Where does foreign text become printable?" in docs/decisions.md.
"""

import ast
import pathlib

SOURCE = pathlib.Path(__file__).parents[1] / "src" / "odradek"

# Around `cli.output`, the log's formatter and the templates' `finalize`: module, name, and why not.
LISTED = {
    (
        "broker/main.py",
        "print",
    ): "run by `odradek server-start`, whose stderr is a printable stream",
    ("broker/main.py", "logging.StreamHandler"): "with the formatter that makes lines printable",
    ("broker/main.py", "logging.basicConfig"): "with that handler",
    ("broker/storage/cleaner_worker.py", "print"): "JSON for the broker, in a pipe",
    ("cli/odradek/plan.py", "bare"): "clears the line before a printable one",
    ("cli/odradek/produce.py", "bare"): "rich's progress bar, of a file of the user",
    ("cli/odradek/status_screen.py", "bare"): "rich's screen, of printable texts",
    ("cli/odradek/testkit.py", "sys.stdin.buffer"): "is read",
    ("spark/java.py", "print"): "a path of this machine, for a shell",
    ("web/rendering.py", "Markup"): "around what a template has rendered",
}
CALLS = {
    "bare",
    "Markup",
    "logging.StreamHandler",
    "logging.FileHandler",
    "logging.basicConfig",
}
WORDS = ("bare(", "Markup(", "Handler(", "basicConfig(", "print(", "sys.__std", ".buffer")
ATTRIBUTES = {"sys.__stdout__", "sys.__stderr__"}


def dotted(node):
    """`a.b.c` of a name or an attribute of one; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and dotted(node.value):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def ways_out(path):
    """What in a module could bring text to a terminal, a log or a page as it is."""
    module = path.relative_to(SOURCE).as_posix()
    text = path.read_text()
    if not any(word in text for word in WORDS):
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call | ast.Attribute):
            continue
        name = dotted(node.func) if isinstance(node, ast.Call) else dotted(node)
        if isinstance(node, ast.Call):
            if name in CALLS:
                yield name
            # Commands run within `printable_output`; elsewhere nothing prints.
            if name == "print" and not module.startswith(("cli/", "sim/")):
                yield name
        elif name in ATTRIBUTES or (name.startswith("sys.std") and name.endswith(".buffer")):
            yield name


def test_no_module_prints_around_the_printable_form_without_a_reason():
    found = {
        (path.relative_to(SOURCE).as_posix(), way)
        for path in SOURCE.rglob("*.py")
        for way in ways_out(path)
    }

    assert found == LISTED.keys()


def test_no_template_inserts_text_as_it_is():
    templates = [*SOURCE.rglob("*.html"), *SOURCE.rglob("*.svg"), *SOURCE.rglob("*.jinja")]

    assert templates
    for template in templates:
        text = "".join(template.read_text().split())
        assert "|safe" not in text, template
        assert "autoescapefalse" not in text, template
