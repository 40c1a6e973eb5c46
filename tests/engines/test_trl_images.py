"""Images in prompts and tool results, with a tiny model that has vision: GEAR's signals against one plain forward each."""

from __future__ import annotations

import pytest
import torch
from beside_trl import WHO, check_credited, check_same, small_trainer
from datasets import Dataset, Features
from datasets import Image as ImageFeature
from peft import LoraConfig
from PIL import Image
from tiny_vision import picture, picture_questions, tiny_vision
from trl import GRPOTrainer
from trl_setups import arguments, length_reward

from gear_rl.chat.hints import hinted_prompt
from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.engines.trl_images import refuse_image_tools
from gear_rl.errors import GearError
from gear_rl.methods import method


@pytest.fixture(scope="module")
def vision():
    return tiny_vision()


def trainer_of(folder, vision, seen, **changes):
    config = dict(max_completion_length=6, max_steps=1, learning_rate=0.0)
    model, processor = vision
    return CreditGRPOTrainer(
        model=model, processing_class=processor, args=arguments(folder, **config), train_dataset=picture_questions(),
        reward_funcs=[length_reward], hint="hint", recorder=seen.append, **changes,
    )  # fmt: skip


@torch.no_grad()
def plain_logits(vision, prompt_ids, completion_ids, images):
    """(T, V) before each token of the completion: one sequence, the whole model, full logits."""
    model, processor = vision
    ids = torch.tensor([[*prompt_ids, *completion_ids]])
    pixels = processor.image_processor(images=[images], return_tensors="pt")["pixel_values"]
    types = (ids == processor.tokenizer.image_token_id).long()
    logits = model.eval()(input_ids=ids, pixel_values=pixels, token_type_ids=types).logits[0]
    return logits[len(prompt_ids) - 1 : -1].log_softmax(-1)


def check_signals(vision, scored, images_of):
    """Signals of the step equal those from plain forwards, with the rollout's own images and not with another's."""
    sampled, mask, signals = scored.sampled, scored.rollouts.action_mask, scored.rollouts.signals
    others = 0.0
    for i, completion in enumerate(sampled.completion_ids):
        student = plain_logits(vision, sampled.prompt_ids[i], completion, images_of(i))
        teacher = plain_logits(vision, scored.hinted.prompt_ids[i], completion, images_of(i))
        kl = (student.exp() * (student - teacher)).sum(1)
        acted = mask[i, : len(completion)]
        torch.testing.assert_close(signals["reverse_kl"][i, : len(completion)][acted], kl[acted], atol=1e-4, rtol=1e-3)
        swapped = [Image.fromarray(picture(99)) for _ in images_of(i)]
        other = plain_logits(vision, sampled.prompt_ids[i], completion, swapped)
        others = max(others, float((other - student).abs().max()))
    assert others > 0.1, "another picture gives other probabilities, so the ones above show that the right one was read"
    assert float(signals["reverse_kl"].max()) > 1e-3, "the hint was read"


def test_the_hint_goes_into_the_last_text_of_a_message():
    image = {"type": "image", "image": object()}
    parts = [{"type": "text", "text": "first"}, image, {"type": "text", "text": "What?"}, image]
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    hinted = hinted_prompt(prompt, "a cat", "{prompt} ({hint})")
    assert hinted[1]["content"] == [parts[0], image, {"type": "text", "text": "What? (a cat)"}, image]
    assert prompt[1]["content"] is parts and parts[2]["text"] == "What?", "the prompt itself is left alone"
    only_image = [{"role": "user", "content": [image]}]
    assert hinted_prompt(only_image, "a cat", "{prompt}({hint})")[0]["content"] == [
        image,
        {"type": "text", "text": "(a cat)"},
    ]


def test_gear_reads_prompts_with_images(tmp_path, vision):
    seen = []
    trainer = trainer_of(tmp_path, vision, seen)
    trainer.train()
    (scored,) = seen
    image_token = vision[1].tokenizer.image_token_id
    assert [ids.count(image_token) for ids in scored.hinted.prompt_ids] == [4] * 8
    check_signals(vision, scored, lambda i: [scored.sampled.rows[i]["image"]])


def look(angle: int) -> list:
    """Take a picture.

    Args:
        angle: Where to.
    """
    return [{"type": "image", "image": Image.fromarray(picture(angle))}]


def count(word: str) -> str:
    """Count letters.

    Args:
        word: What to count.
    """
    return str(len(word))


def test_gear_reads_tool_results_with_images(tmp_path, vision, monkeypatch):
    """A random model calls no tools, so what TRL's tool loop returns is written here; all that follows is TRL's and ours."""
    seen = []
    trainer = trainer_of(tmp_path, vision, seen)
    trainer.tools = [look]
    tokenizer = vision[1].tokenizer
    result = [tokenizer.boi_token_id, *[tokenizer.image_token_id] * 4, tokenizer.eoi_token_id]
    pictures = [Image.fromarray(picture(20 + i)) for i in range(8)]

    def generated(self, prompts):
        ids, images, _ = self._tokenize_prompts(prompts)
        looks = [i % 3 != 0 for i in range(len(prompts))]  # some rollouts call the tool, and end with an action or not
        completions = [[40 + i, 41, *(result if looks[i] else []), *[42, 43][: i % 2 + 1]] for i in range(len(prompts))]
        masks = [[1, 1, *[0] * (6 * looks[i]), *[1, 1][: i % 2 + 1]] for i in range(len(prompts))]
        masks[4] = [1, 1, *[0] * 6, 0]  # nothing follows the image
        of_tools = [[pictures[i]] if looks[i] else [] for i in range(len(prompts))]
        images = [own + more for own, more in zip(images, of_tools, strict=True)]
        texts = [[{"role": "assistant", "content": "x"}]] * len(prompts)
        return ids, completions, masks, texts, None, {}, images, of_tools

    monkeypatch.setattr(GRPOTrainer, "_generate", generated)
    trainer.train()
    (scored,) = seen
    own = [row["image"] for row in scored.sampled.rows]
    check_signals(vision, scored, lambda i: [own[i], pictures[i]] if i % 3 else [own[i]])


@pytest.mark.parametrize("name", ["opsd", "igpo", "oar_p", "cepo"])
def test_what_cannot_read_images_says_so_before_anything_is_sampled(tmp_path, vision, name):
    with pytest.raises(GearError, match=r"not supported for prompts or tool results with images .*gear and grpo work"):
        trainer_of(tmp_path, vision, [], credit=name, answer="hint")


def test_tools_that_may_return_images():
    refuse_image_tools(method("gear"), [look])
    refuse_image_tools(method("opsd"), [count])
    with pytest.raises(GearError, match="'look' may return some"):
        refuse_image_tools(method("opsd"), [count, look])
    with pytest.raises(GearError, match="Annotate it"):
        refuse_image_tools(method("opsd"), [lambda word: "text"])


@pytest.mark.parametrize("case", ["adapters", "several_pictures"])
def test_grpo_with_images_is_trl(tmp_path, case):
    """As TRL's own tests of models with vision: bit for bit theirs with `grpo`; `gear` trains, and differs."""
    trainers = []
    for who in WHO:
        model, processor = tiny_vision()
        data = picture_questions()
        changes = dict(
            max_completion_length=6, pad_to_multiple_of=8, log_completions=True, log_multimodal=False,
            num_iterations=2, importance_sampling_level="sequence", max_steps=2,
        )  # fmt: skip
        given = dict(peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
        if case == "several_pictures":
            images = [[Image.fromarray(picture(i + j)) for j in range(1 + i % 2)] for i in range(len(data))]
            features = Features(prompt=data.features["prompt"], images=[ImageFeature()])
            data, given = Dataset.from_dict({"prompt": data["prompt"], "images": images}, features=features), {}
        trainer = small_trainer(
            who, tmp_path, dict(changes, beta=0.1 if given else 0.0), model=model, processing_class=processor,
            train_dataset=data, **given,
        )  # fmt: skip
        trainer.train()
        assert not trainer._logs["images"]
        trainers.append(trainer)
    check_same(*trainers[:2])
    check_credited(trainers[0], trainers[2])
