"""The project's rules that no ordinary linter checks.

The limits at the end are a ratchet: each is what the code has reached, and may only become smaller.
"""

import ast
import pathlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

SRC = pathlib.Path(__file__).parents[1] / "src" / "odradek"
PURE = {
    "model", "config", "wire", "record", "placement", "replica", "controller", "group", "txn",
    "security",
}  # fmt: skip
IMPURE_IMPORTS = {
    "asyncio", "concurrent", "logging", "os", "pathlib", "random", "secrets", "select",
    "signal", "socket", "sqlite3", "subprocess", "tempfile", "threading", "time",
}  # fmt: skip
BANNED = {
    "FIXME": "finish it, or file an issue",
    "asyncio.ensure_future": "own the task: asyncio.TaskGroup",
    "get_event_loop": "asyncio.get_running_loop",
    "# type: ignore\n": "name the error: # type: ignore[code]",
}


TESTS = pathlib.Path(__file__).parent

LINES_OF_A_FILE = 600
LINES_OF_A_FUNCTION = 60
FILES_OF_A_FOLDER = 20
ONE_FILE_AN_API = {"broker/apis", "wire/messages", "tests/unit/broker/apis"}
# What is above a limit, and how far. No entry may be added, and none may grow.
LONG_FILES = {
    "broker/apis/produce.py": 898,
    "broker/controller/shell.py": 615,
    "broker/controller/store.py": 621,
    "broker/replication/replica_manager.py": 645,
    "cli/odradek/plan.py": 734,
    "client/consumer/coordinator.py": 662,
    "coord/zookeeper.py": 619,
    "group/membership.py": 604,
    "log/log.py": 757,
    "log/logs.py": 763,
    "sim/run/faults.py": 781,
    "txn/machine.py": 619,
}
LONG_FUNCTIONS = {
    "broker/apis/table.py:routes": 163,
    "cli/odradek/plan.py:partitions": 81,
    "record/check.py:plain_check": 90,
    "record/outline.py:outline": 71,
    "record/records.py:build_batch": 62,
    "record/records.py:iter_spans": 85,
    "record/validate.py:validate_produced": 79,
}
REPEATED_CLASS_NAMES = 23
SHORT_DOCSTRINGS = 8
NARROWING_ASSERTS = 57
ASSERTS_UNDER_IF = 0
PRIVATE_PATCHES = 0


def modules() -> tuple[tuple[pathlib.Path, str, ast.Module], ...]:
    return parsed(SRC)


@cache
def nodes(root: pathlib.Path) -> tuple[tuple[pathlib.Path, ast.AST], ...]:
    return tuple((path, node) for path, _, tree in parsed(root) for node in ast.walk(tree))


@cache
def parsed(root: pathlib.Path) -> tuple[tuple[pathlib.Path, str, ast.Module], ...]:
    texts = [(path.relative_to(root), path.read_text()) for path in sorted(root.rglob("*.py"))]
    return tuple((path, text, ast.parse(text)) for path, text in texts)


def complaints() -> Iterator[str]:
    for path, text, tree in modules():
        if not ast.get_docstring(tree):
            yield f"{path}: no docstring: what is this file for?"
        for word, instead in BANNED.items():
            if word in text:
                yield f"{path}: {word!r}: {instead}"
        for node in ast.walk(tree):
            if path.parts[0] in PURE:
                yield from impurities(path, node)


def impurities(path: pathlib.Path, node: ast.AST) -> Iterator[str]:
    where = f"{path}:{getattr(node, 'lineno', 0)}"
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [node.module]
    for name in names:
        if name.split(".")[0] in IMPURE_IMPORTS:
            yield f"{where}: a pure package imports {name}: take it as an argument"
    if isinstance(node, ast.AsyncFunctionDef | ast.Await):
        yield f"{where}: a pure package waits: return an effect instead"
    match node:
        case ast.Call(func=ast.Name(id="open" | "print" | "input" as name)):
            yield f"{where}: a pure package calls {name}()"


def test_tidy() -> None:
    assert list(complaints()) == []


# ------------------------------------------------------------------------------- the ratchet


def above(found: dict[str, int], limit: int, known: dict[str, int]) -> list[str]:
    """What is above a limit and not known, or more than it was; and what need not be known."""
    return [
        f"{name}: {size}, and the limit is {known.get(name, limit)}"
        for name, size in found.items()
        if size > known.get(name, limit)
    ] + [f"{name}: take it off the list" for name in known if found.get(name, 0) <= limit]


def test_files_are_short() -> None:
    found = {str(path): len(text.splitlines()) for path, text, _ in modules()}
    assert above(found, LINES_OF_A_FILE, LONG_FILES) == []


def test_functions_are_short() -> None:
    found = {
        f"{path}:{node.name}": node.end_lineno - node.lineno + 1
        for path, node in nodes(SRC)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    }
    assert above(found, LINES_OF_A_FUNCTION, LONG_FUNCTIONS) == []


def test_folders_are_small() -> None:
    found = Counter(str(path.parent) for path, _, _ in modules() if path.name != "__init__.py")
    found.update(
        f"tests/{path.parent}" for path, _, _ in parsed(TESTS) if path.name != "conftest.py"
    )
    rest = {name: count for name, count in found.items() if name not in ONE_FILE_AN_API}
    assert above(rest, FILES_OF_A_FOLDER, {}) == []


def repeated_class_names() -> dict[str, list[str]]:
    """Parts of requests are left out: Kafka repeats their names, too."""
    found = defaultdict(list)
    for path, node in nodes(SRC):
        if isinstance(node, ast.ClassDef) and "wire/messages" not in str(path):
            found[node.name].append(str(path))
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def short_docstrings() -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        f"{path}: {text}"
        for path, node in nodes(SRC)
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
        if len(text.split()) <= 3
    ]


def narrowing_asserts() -> list[str]:
    """`assert x is not None`, `assert isinstance(...)`: with a better type they are not needed."""
    return [
        f"{path}:{node.lineno}"
        for path, node in nodes(SRC)
        if isinstance(node, ast.Assert) and is_narrowing(node.test)
    ]


def is_narrowing(test: ast.expr) -> bool:
    match test:
        case ast.Call(func=ast.Name(id="isinstance")):
            return True
        case ast.Compare(ops=[ast.IsNot()]):
            return True
    return False


def asserts_under_if() -> list[str]:
    """A test that may have skipped its assertion without notice."""
    return [
        f"{path}:{statement.lineno}"
        for path, node in nodes(TESTS)
        if isinstance(node, ast.If)
        for statement in [*node.body, *node.orelse]
        if isinstance(statement, ast.Assert)
    ]


def private_patches() -> list[str]:
    """Tests that set a private name of something else: it should be handed in."""
    return [f"{path}:{node.lineno}" for path, node in nodes(TESTS) if patches_private(node)]


def patches_private(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="setattr"), args=[_, ast.Constant(str(name)), *_]):
            return is_private(name)
        case ast.Call(func=ast.Attribute(attr="setattr"), args=[ast.Constant(str(name)), *_]):
            return is_private(name.rpartition(".")[2])
        case ast.Assign(targets=targets):
            return any(map(is_foreign, targets))
    return False


def is_foreign(target: ast.expr) -> bool:
    match target:
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            return False
        case ast.Attribute(attr=name):
            return is_private(name)
    return False


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize(
    ("found", "limit"),
    [
        pytest.param(repeated_class_names, REPEATED_CLASS_NAMES, id="repeated class names"),
        pytest.param(short_docstrings, SHORT_DOCSTRINGS, id="docstrings of three words"),
        pytest.param(narrowing_asserts, NARROWING_ASSERTS, id="narrowing asserts"),
        pytest.param(asserts_under_if, ASSERTS_UNDER_IF, id="assertions under an if"),
        pytest.param(private_patches, PRIVATE_PATCHES, id="private names patched"),
    ],
)
def test_it_becomes_less(found, limit: int) -> None:
    there: Iterable[str] = found()
    assert len(list(there)) <= limit, sorted(there)


def imports() -> dict[str, set[str]]:
    names = {
        ".".join(("odradek", *path.with_suffix("").parts)): tree for path, _, tree in modules()
    }
    known = {name.removesuffix(".__init__"): tree for name, tree in names.items()}
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, tree in known.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inside = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= {each if each in known else node.module for each in inside}
    return {name: (others & known.keys()) - {name} for name, others in found.items()}


def test_no_module_imports_in_a_circle() -> None:
    left = imports()
    while free := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in free}
    assert {name: sorted(others & left.keys()) for name, others in left.items()} == {}
