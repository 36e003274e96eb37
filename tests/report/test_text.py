"""Text from outside: unprintable characters are replaced, and each renderer escapes everything else."""

import base64
import csv
import gzip
import io
import re

import pytest
from markdown_it import MarkdownIt

from accelsweep.report.formatting import printable, printable_findings, sentence
from accelsweep.report.html_page import pack, zipped
from accelsweep.report.markdown import code_block, escape
from accelsweep.report.table_model import to_csv


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\ud800", "\u202e", "\u2066"])
def test_unprintable_characters_are_replaced(character):
    assert printable(f"a{character}b") == "a\ufffdb"


def test_ordinary_text_of_any_script_is_untouched():
    text = 'batch "32" <b> & \n\t 你好 é 👩‍🔬'
    assert printable(text) == text


def test_cleaning_changes_no_number(findings, hostile_findings):
    assert printable_findings(findings) == findings
    cleaned = printable_findings(hostile_findings)
    assert [setting.rate for setting in cleaned.settings] == [setting.rate for setting in findings.settings]


def test_compressed_text_cannot_end_its_script_element_and_is_the_same_each_time():
    text = zipped("</script><!-- & \u2028")
    assert text == zipped("</script><!-- & \u2028")
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)
    assert gzip.decompress(base64.b64decode(text)).decode() == "</script><!-- & \u2028"


def test_packed_columns_hold_each_text_once():
    assert pack([{"run": "a", "step": 0}, {"run": "a", "step": 1}]) == {
        "run": {"of": ["a"], "at": [0, 0]},
        "step": [0, 1],
    }


def test_a_formula_in_a_csv_is_escaped_and_numbers_are_not():
    rows = [{"name": "=HYPERLINK(1)", "value": -1.5, "none": None, "flag": True, "quoted": 'a,"b"\nc'}]
    text = to_csv(rows)
    assert text == 'name,value,none,flag,quoted\n\'=HYPERLINK(1),-1.5,,true,"a,""b""\nc"\n'
    assert next(csv.DictReader(io.StringIO(text)))["quoted"] == 'a,"b"\nc'


def test_a_csv_has_the_requested_columns():
    assert to_csv([{"a": 1, "b": 2}, {"b": 3}], ["b", "a"]) == "b,a\n2,1\n3,\n"


def test_markdown_renders_as_exactly_the_text():
    text = r"<b>*a*_b_ [c](d) `e` | ~f~ # 1. - \ &amp; !g"
    assert MarkdownIt("commonmark").render(escape(text)) == (
        "<p>&lt;b&gt;*a*_b_ [c](d) `e` | ~f~ # 1. - \\ &amp;amp; !g</p>\n"
    )


def test_no_text_can_end_its_code_block():
    text = "echo ```` \n```\n<b>"
    tokens = MarkdownIt("commonmark").parse(code_block(text))
    assert [(token.type, token.content) for token in tokens] == [("fence", f"{text}\n")]


@pytest.mark.parametrize(
    ("text", "words"), [("stop it", "Stop it."), ("Done.", "Done."), ("accelsweep run x", "accelsweep run x"), ("", "")]
)
def test_a_message_is_a_sentence_and_a_command_is_not(text, words):
    assert sentence(text) == words
