"""Writes what commands print into the pages that show it: `./run docs --refresh PAGE...`."""

import pathlib
import sys

from tests.documentation.page_run import run_page


def main(names: list[str]) -> int:
    has_failed = False
    for name in names:
        page = pathlib.Path(name)
        text, failures = run_page(page, is_refreshing=True)
        is_new = text != page.read_text(encoding="utf-8")
        page.write_text(text, encoding="utf-8")
        print(f"{name}: {'changed, look at the difference' if is_new else 'as it was'}")
        for failure in failures:
            print(failure, file=sys.stderr)
        has_failed = has_failed or bool(failures)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
