"""A page is read into blocks with directives, and a console block into commands."""

import pytest
from tests.documentation.blocks import Block, PageError, blocks, commands, is_heavy, not_fenced


def page(text):
    return blocks(text.replace("'''", "```"))


def test_a_block_has_its_language_its_lines_and_the_number_of_the_first():
    (block,) = page("# Title\n\n'''console\n$ one\nout\n'''\n")

    assert block == Block("console", 4, ("$ one", "out"))
    assert block.is_executed


def test_blocks_of_a_list_lose_the_indent():
    (block,) = page("1. step:\n\n   '''sh\n   if true; then\n     echo\n   fi\n   '''\n")

    assert block.lines == ("if true; then", "  echo", "fi")
    assert block.indent == "   "


def test_a_fence_of_four_ticks_holds_fences():
    (block,) = blocks("````markdown\n```sh\necho\n```\n````\n")

    assert block.lines == ("```sh", "echo", "```")


def test_comments_before_a_block_are_its_directives():
    first, second = page(
        "<!-- exit: 1 -->\n<!-- until -->\n\n'''console\n$ no\n'''\n'''text\n'''\n"
    )

    assert first.directives == {"exit": "1", "until": ""}
    assert second.directives == {}


def test_a_comment_before_text_is_no_directive():
    (block,) = page("<!-- generated -->\ntext\n\n'''sh\ntrue\n'''\n")

    assert block.directives == {}


def test_a_block_that_is_not_run_has_a_reason():
    (block,) = page("<!-- not run: needs root -->\n'''sh\napt-get install\n'''\n")

    assert not block.is_executed
    with pytest.raises(PageError, match="why is the block not run"):
        page("<!-- not run -->\n'''sh\ntrue\n'''\n")


def test_hidden_commands_are_executed():
    (block,) = page("text\n<!-- run\necho one\necho two\n-->\n")

    assert (block.language, block.lines) == ("hidden", ("echo one", "echo two"))
    assert block.is_executed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("'''sh\ntrue\n", "line 1: this does not end"),
        ("\n<!-- run\ntrue\n", "line 2: this does not end"),
        ("'''bash\ntrue\n'''\n", "a block of language 'bash'"),
        ("'''\ntrue\n'''\n", "a block of language ''"),
        ("<!-- unitl -->\n'''sh\ntrue\n'''\n", "unitl"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, message):
    with pytest.raises(PageError, match=message):
        page(text)


def test_a_console_block_has_commands_and_what_they_print():
    (block,) = page(
        "'''console\n$ one\nout\n\nmore\n$ two \\\n    --flag\n$ three\n> end\nx\n'''\n"
    )
    one, two, three = commands(block)

    assert (one.line, one.text, one.prints, one.prints_from) == (2, "one", ("out", "", "more"), 3)
    assert (two.text, two.prints) == ("two \\\n    --flag", ())
    assert (three.text, three.prints) == ("three\nend", ("x",))


def test_a_console_block_begins_with_a_command():
    (block,) = page("'''console\nodradek up\n'''\n")

    with pytest.raises(PageError, match=r"line 2: a console block begins with `\$ `"):
        commands(block)


def test_a_page_is_heavy_by_a_comment():
    assert is_heavy("# Title\n<!-- heavy: starts a JVM -->\n")
    assert not is_heavy("# Title\n")


def test_commands_in_indented_blocks_are_found():
    text = "```text\n    odradek up\n```\n\n    odradek up\n    broker.id=1\n    $ ls\n"

    assert not_fenced(text) == [5, 7]
