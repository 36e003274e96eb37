"""Secrets in addresses are masked wherever they stand in a text, and nothing else is touched."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from accelsweep.base.secrets import masked, without_secrets

word = st.text(st.characters(categories=("L", "N")), min_size=1)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pw@host/x and s3://key@bucket", "https://***@host/x and s3://***@bucket"),
        ("https://h/d?x=1&auth_token=abc#part", "https://h/d?x=1&auth_token=***"),
        ("https://h/d?X-Amz-Signature=abc&y=2", "https://h/d?X-Amz-Signature=***&y=2"),
        ('url="http://a:b@c/"', 'url="http://***@c/"'),
        ("a@b.c says token=1", "a@b.c says token=1"),
        ("", ""),
    ],
)
def test_only_the_secret_of_an_address_is_masked(text, shown):
    assert masked(text) == shown


@given(st.text(), word, word, st.text())
def test_no_password_survives_in_any_surroundings(before, user, password, after):
    secret = f"begin{password}end"
    assume(secret not in before + after)
    assert secret not in masked(f"{before} https://{user}:{secret}@host/ {after}")


@given(st.text())
def test_masking_twice_changes_nothing_more(text):
    assert masked(masked(text)) == masked(text)


def test_a_config_keeps_its_shape_and_its_numbers():
    config = {"data": {"url": "https://a:b@c", "size": 3}, "steps": [1, 2.5, None, True, "x"]}
    assert without_secrets(config) == {"data": {"url": "https://***@c", "size": 3}, "steps": [1, 2.5, None, True, "x"]}
