"""Writes what commands print into the pages that show it: `./run docs --refresh PAGE...`."""

import pathlib
import sys

from tests.documentation.page_run import PageDiffersError, run_page


def main(names: list[str]) -> int:
    for name in names:
        page = pathlib.Path(name)
        try:
            text = run_page(page, is_refreshing=True)
        except PageDiffersError as error:
            print(error, file=sys.stderr)
            return 1
        is_new = text != page.read_text(encoding="utf-8")
        page.write_text(text, encoding="utf-8")
        print(f"{name}: {'changed, look at the difference' if is_new else 'as it was'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
