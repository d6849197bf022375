"""The project's rules that no ordinary linter knows, checked on every run."""

import ast
import pathlib
from collections.abc import Iterator

SRC = pathlib.Path(__file__).parents[1] / "src" / "odradek"
PURE = {
    "model", "config", "wire", "record", "placement", "replica", "controller", "group", "txn",
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


def modules() -> Iterator[tuple[pathlib.Path, str, ast.Module]]:
    for path in sorted(SRC.rglob("*.py")):
        text = path.read_text()
        yield path.relative_to(SRC), text, ast.parse(text)


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
