"""Names of agents, models and vendors are hidden in text and paths; ordinary words stay."""

from __future__ import annotations

import pytest

from biabench_plugin.review.blinding import HIDDEN, Blinding


@pytest.mark.parametrize(
    "text",
    [
        "Claude Code",
        "claude-code",
        "ClaudeCode",
        "~/.codex/",
        "OPENAI_API_KEY",
        "deep_seek",
        "Agentic J",
        "gpt-5.6-sol",
        "GPT5",
        "opus-4.8",
        "my_lab",
        "My Lab",
        "vendor/secret-model-7",
        "secret_model_7",
    ],
)
def test_names_are_hidden_in_every_spelling(text: str) -> None:
    hidden = Blinding(["my_lab", "vendor/secret-model-7"]).text(f"made by {text}, and so on")
    left = hidden.replace(HIDDEN, "").lower()
    for piece in ("claude", "codex", "openai", "seek", "agentic", "gpt", "5.6", "sol,", "opus", "lab", "secret"):
        assert piece not in left, hidden
    assert hidden.startswith("made by ")
    assert hidden.endswith(", and so on")


def test_ordinary_words_stay() -> None:
    text = "np.empty(3); octopus; the command failed; replay; api; grokking; x = opuscule; haikus"
    assert Blinding(["command", "api"]).text(text) == text


def test_an_agent_that_is_an_ordinary_word_is_hidden_as_a_word() -> None:
    assert Blinding(["empty"]).text("the empty agent; emptying") == f"the {HIDDEN} agent; emptying"


def test_short_names_are_hidden_as_words_only() -> None:
    assert Blinding(["abc"]).text("abc abcd x_abc.py") == f"{HIDDEN} abcd x_{HIDDEN}.py"


def test_text_and_paths_still_match_each_other() -> None:
    blinding = Blinding(["my_lab"])
    assert blinding.path("out/my_lab/plot_my-lab.png") in blinding.text("see out/my_lab/plot_my-lab.png")


def test_folders_of_this_host_are_hidden() -> None:
    blinding = Blinding([], ["/srv/campaigns/one"])
    assert blinding.text("read /srv/campaigns/one/work/ab/input") == "read /run/work/ab/input"


def test_names_are_hidden_in_megabytes_of_text_quickly_and_completely() -> None:
    text = ("numbers 1.25, 7.5\n" * 100_000) + "by Claude\n" + ("more\n" * 100_000)
    hidden = Blinding(["my_lab"]).text(text)
    assert f"by {HIDDEN}\n" in hidden
    assert len(hidden) == len(text) - len("Claude") + len(HIDDEN)
