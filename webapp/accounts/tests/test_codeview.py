"""Highlighted source."""

from webapp.codeview import HIGHLIGHT_LIMIT, LINES_LIMIT, Mark, lines_of


def test_lines_match_the_source_one_to_one() -> None:
    source = '\n\nx = """a\nb"""\n\n# <end> & more\n'
    lines = lines_of(source, {3: Mark("here", "#error", bad=True)})
    assert [line.number for line in lines] == [1, 2, 3, 4, 5, 6]
    assert lines[2].mark == Mark("here", "#error", bad=True)
    assert "&lt;end&gt; &amp; more" in lines[5].html
    assert all(line.html.count("<span") == line.html.count("</span>") for line in lines)


def test_a_long_source_is_plain_and_cut() -> None:
    lines = lines_of("a < b\n" * (HIGHLIGHT_LIMIT // 5))
    assert len(lines) == LINES_LIMIT
    assert lines[0].html == "a &lt; b"
