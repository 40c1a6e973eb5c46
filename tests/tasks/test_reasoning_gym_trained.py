"""Three GEAR steps on a generator of reasoning-gym, judged by its own verifier."""

import pytest
from others_trained import trained
from words_model import save_words_model

pytest.importorskip("reasoning_gym")


@pytest.mark.apart
def test_training_with_gear_on_reasoning_gym(tmp_path):
    # With answers of one token a model of random weights is right now and then, and there is something to learn from.
    model = save_words_model(tmp_path / "model", more=[f"<answer>{n}</answer>" for n in (1, 2, 3)])
    options = {"dataset": "gcd", "config.max_value": 9, "instruction": "", "max_turn_tokens": 64, "judges": 1}
    rollouts = trained(tmp_path, "reasoning_gym", str(model), **options)
    assert len({line.reward for line in rollouts}) > 1
