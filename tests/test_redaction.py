"""Secrets in URLs and in variables with secret names are masked wherever they occur, and nothing else changes."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from accelsweep.redaction import credentials_of, is_secret_name, masked, without_secrets

word = st.text(st.characters(categories=("L", "N")), min_size=1)
password = st.text(st.characters(exclude_categories=("Z", "C")), min_size=1)

ODD_PASSWORDS = [
    "p/a/ss", "p'a'ss", 'p"a"ss', "p@a@ss", "p%a%2Fss", "p:a:ss", "p?a=ss", "p#a#ss", "p&a&ss", "p[a]ss", "p\\ass",
    "p,ass;", "p/@'\"%:?#&",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://me:pw@host/x and s3://key@bucket", "https://***@host/x and s3://***@bucket"),
        ("https://h/d?x=1&auth_token=abc#part", "https://h/d?x=1&auth_token=***"),
        ("https://h/d?X-Amz-Signature=abc&y=2", "https://h/d?X-Amz-Signature=***&y=2"),
        ("https://h/d?sp=r&sig=a%2Fb%3D", "https://h/d?sp=r&sig=***"),
        ("https://h/d?pass%77ord=abc", "https://h/d?pass%77ord=***"),
        ("mssql+pyodbc:///?odbc_connect=UID%3Dme%3BPWD%3Dp", "mssql+pyodbc:///?odbc_connect=***"),
        ("https://h/#access_token=abc&state=1", "https://h/#access_token=***&state=1"),
        ("GET /data?token=abc HTTP/1.1", "GET /data?token=*** HTTP/1.1"),
        ("https://h/go?to=https%3A%2F%2Fme%3Apw%40host%2Fx&y=1", "https://h/go?to=https://***@host/x&y=1"),
        ('url="http://a:b@c/"', 'url="http://***@c/"'),
        ('see "https://h/d?token=abc".', 'see "https://h/d?token=***".'),
        ("https://medium.com/@user/text", "https://medium.com/@user/text"),
        ("https://host?mail=a@b.c", "https://host?mail=a@b.c"),
        ("http://[::1]:5000/@x", "http://[::1]:5000/@x"),
        ("http://127.0.0.1:5000/#/experiments/1?o=2", "http://127.0.0.1:5000/#/experiments/1?o=2"),
        ("a@b.c says token=1", "a@b.c says token=1"),
        ("batch_size=16 \n\ttwo  spaces", "batch_size=16 \n\ttwo  spaces"),
        ("", ""),
    ],
)
def test_only_the_secret_of_a_url_is_masked(text, expected):
    assert masked(text) == expected


@pytest.mark.parametrize("secret", ODD_PASSWORDS)
def test_a_password_may_hold_any_character_in_credentials_and_query(secret):
    template = 'error: "{}", tried twice'
    assert masked(template.format(f"postgresql://me:{secret}@host:5432/db")) == template.format(
        "postgresql://***@host:5432/db"
    )
    query = masked(f"postgresql://host/db?user=me&password={secret.replace('&', '')}")
    assert query.rstrip("\"'`)]}>,.;") == "postgresql://host/db?user=me&password=***"


@given(st.text(), word, password, st.text())
def test_no_password_survives_in_any_context(before, user, password, after):
    secret = f"begin{password}end"
    assume(secret not in before + after)
    shown = masked(f"{before} https://{user}:{secret}@host/ {after}")
    assert secret not in shown
    assert "://***@host/ " in shown


@given(st.text())
def test_masking_is_idempotent(text):
    assert masked(masked(text)) == masked(text)


def test_a_config_keeps_its_shape_and_numbers():
    config = {"data": {"url": "https://a:b@c", "size": 3}, "steps": [1, 2.5, None, True, "x"]}
    assert without_secrets(config) == {"data": {"url": "https://***@c", "size": 3}, "steps": [1, 2.5, None, True, "x"]}


def test_a_value_or_key_that_is_a_url_may_hold_spaces():
    config = {"url": "postgresql://me:pass word 'x'@host/db", "mirrors": {"https://me:pw@one": 1}}
    shown = without_secrets(config)
    assert shown == {"url": "postgresql://***@host/db", "mirrors": {"https://***@one": 1}}
    assert json.loads(masked(json.dumps(shown))) == shown


def test_secret_variables_of_a_run_are_masked_in_its_config_axes_and_overrides():
    config = {"env": {"HF_TOKEN": "hf_x y", "OMP_NUM_THREADS": "2"}, "env.WANDB_API_KEY": "k", "model": {"key": 3}}
    assert without_secrets(config) == {
        "env": {"HF_TOKEN": "***", "OMP_NUM_THREADS": "2"},
        "env.WANDB_API_KEY": "***",
        "model": {"key": 3},
    }
    assert without_secrets(["+env.HF_TOKEN='hf_x y'", "env.OMP_NUM_THREADS=2"]) == [
        "+env.HF_TOKEN=***",
        "env.OMP_NUM_THREADS=2",
    ]
    assert masked("accelsweep run '+env.HF_TOKEN=hf_x' batch_size=16") == (
        "accelsweep run '+env.HF_TOKEN=*** batch_size=16"
    )


@pytest.mark.parametrize(
    ("url", "credentials"),
    [
        ("http://host:5000", None),
        ("http://host:5000/x", None),
        ("sqlite:////a@b/mlflow.db", None),
        ("https://token@host", "token"),
        ("postgresql://me:a/b@c@host/db", "me:a/b@c"),
        ("no address", None),
    ],
)
def test_credentials_of_a_url_end_at_its_last_at_sign(url, credentials):
    assert credentials_of(url) == credentials


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "TORCH_API_KEY", "NCCL_SECRET", "HF_PASSWORD_FILE", "TORCH_CREDENTIAL",
     "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "PGPASSWORD", "torch_key"],
)  # fmt: skip
def test_a_name_with_a_secret_word_is_secret(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS", "TORCH_KEYED_CACHE", "HF_HOME", "PWD", "MONKEY_BARS", "NCCL_DEBUG"],
)
def test_a_word_that_merely_starts_like_a_secret_one_is_not(name):
    assert not is_secret_name(name)
