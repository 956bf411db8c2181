"""What the settings accept, mend and refuse."""

import pytest

from services.inference.settings import InferenceSettings, SettingsError, load_settings


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"),
        (" https://models.example/api/v1/ ", "https://models.example/api/v1"),
        ("", ""),
    ],
)
def test_the_address_gets_the_usual_path(given: str, used: str) -> None:
    settings = InferenceSettings.model_validate({"base_url": given})
    assert settings.base_url == used
    assert settings.configured is bool(used)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("INFERENCE_BASE_URL", "localhost:8000", "must be a URL"),
        ("INFERENCE_BASE_URL", "http://host:notaport/v1", "INFERENCE_BASE_URL"),
        ("INFERENCE_BASE_URL", "http://me:secret-word@host/v1", "must hold no user or password"),
        ("INFERENCE_API_KEY", "secret-word and more", "one word of printable ASCII"),
        ("INFERENCE_API_KEY", "secret-word\u200b", "one word of printable ASCII"),
        ("INFERENCE_CA_FILE", "/no/such/secret-word.pem", "names no file"),
        ("INFERENCE_TEMPERATURE", "secret-word", "INFERENCE_TEMPERATURE"),
        ("INFERENCE_TURN_LIMIT_S", "99999", "less than or equal to 1500"),
    ],
)
def test_a_bad_value_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert name in str(caught.value)
    assert words in str(caught.value)
    assert "secret-word" not in str(caught.value)


def test_the_key_loses_the_line_end_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_API_KEY", "sk-1\n")
    assert load_settings().api_key.get_secret_value() == "sk-1"


def test_the_key_is_not_in_the_settings_text() -> None:
    settings = InferenceSettings.model_validate({"api_key": "sk-secret"})
    assert "sk-secret" not in f"{settings!r} {settings} {settings.model_dump_json()}"
