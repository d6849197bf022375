"""A page is run block by block, compared, and refreshed."""

import os

import pytest
from tests.documentation.page_run import PageDiffersError, run_page

PAGE = """# Title

<!-- run
mkdir made
export COLOUR=red
-->
```console
$ cd made
$ echo $COLOUR; pwd
red
/home/me/made
```

<!-- file: data.txt -->
```text
one
```

```sh
cat data.txt
```

```python
import asyncio
x = await asyncio.sleep(0, "seen")
print(open("data.txt").read(), end="")
```

<!-- prints -->
```text
one
```

<!-- continues -->
```python
print(x)
```

<!-- prints -->
```text
one
seen
```

<!-- exit: 3 -->
```console
$ echo gone; exit 3
gone
```

<!-- fresh -->
```console
$ ls
```
"""


@pytest.fixture
def checked(tmp_path):
    def check(text, **options):
        page = tmp_path / "page.md"
        page.write_text(text)
        return run_page(page, **options)[0]

    return check


def test_a_page_that_shows_what_is_printed(checked):
    assert checked(PAGE) == PAGE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```console\n$ echo b\na\n```\n", r"page.md:2: echo b(?s:.*)-a\n\+b"),
        ("```console\n$ echo b\nb\n$ false\n```\n", "page.md:4: false\nexit code 1, not 0"),
        ("```sh\nfalse\ntrue\n```\n", "exit code 1, not 0"),
        ("```python\nraise ValueError\n```\n", "ValueError"),
        ("```python\nprint(1)\n```\n<!-- prints -->\n```text\n2\n```\n", r"-2\n\+1"),
        ("<!-- stays -->\n```console\n$ echo b\na\n```\n", r"-a\n\+b"),
    ],
)
def test_a_page_that_shows_something_else_fails_with_the_difference(checked, text, message):
    with pytest.raises(PageDiffersError, match=message):
        checked(text)


def test_refreshing_writes_what_is_printed(checked):
    old = "```console\n$ echo one; echo 12 ms; echo three\nzero\n9 ms\n$ echo x\ny\nz\n```\nend\n"
    new = (
        "```console\n$ echo one; echo 12 ms; echo three\none\n9 ms\nthree\n$ echo x\nx\n```\nend\n"
    )

    assert checked(old, is_refreshing=True) == new
    assert checked(new, is_refreshing=True) == new


def test_a_command_is_repeated_until_it_prints_what_the_page_shows(checked):
    checked("<!-- until -->\n```console\n$ echo x >>file; wc -l <file\n3\n```\n")


def test_ctrl_c_ends_a_command_that_runs_on(checked):
    program = 'trap "echo end; exit" INT; echo begun; while true; do sleep 0.05; done'
    page = f"```console\n$ sh -c '{program}'\nbegun\n^C\nend\n```\n"

    assert checked(page) == page


def test_ports_of_the_page_are_free_ports(checked):
    checked(
        "```python\nfrom socket import create_server\n"
        "address = 'localhost:9092'.split(':')\nport = int(address[1])\n"
        "with create_server((address[0], port)):\n    print('localhost:9092', port != 9092)\n```\n"
        "<!-- prints -->\n```text\nlocalhost:9092 True\n```\n"
    )


def test_what_a_command_leaves_behind_is_ended(checked, tmp_path):
    file = tmp_path / "pid"
    checked(f"```console\n$ sleep 600 & echo $! >{file}\n```\n")

    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def test_two_ports_of_a_page_are_two_ports(checked):
    checked("```console\n$ test localhost:9092 != localhost:8080\n```\n")
