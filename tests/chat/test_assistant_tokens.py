"""Which tokens the assistant wrote: a ChatML template with a byte-level tokenizer, by marks and by prefixes, exactly."""

from __future__ import annotations

import pytest
from byte_tokenizers import CHATML, WITHOUT_MARKS, byte_tokenizer

from gear_rl.chat.assistant_tokens import ConversationTokens
from gear_rl.errors import GearError

TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "add 1 and 2"},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}]},
    {"role": "tool", "content": "3"},
    {"role": "assistant", "content": "it is 3 – drei €"},
    {"role": "user", "content": "thanks"},
]
SAID = ['<call>add {"a": 1, "b": 2}</call><|im_end|>', "it is 3 – drei €<|im_end|>"]


def split(messages, template=WITHOUT_MARKS, **chat):
    tokenizer = byte_tokenizer(template)
    return tokenizer, ConversationTokens(tokenizer, {tokenizer.eos_token_id}, "tiny", chat).split(
        messages, None, "here"
    )


def spoken(tokenizer, conversation):
    """The text of each unbroken run of the mask."""
    runs, before = [], 0
    for token, now in zip(conversation.completion_ids, conversation.action_mask, strict=True):
        if now:
            runs = [*runs[:-1], [*runs[-1], token]] if before else [*runs, [token]]
        before = now
    return [tokenizer.decode(run) for run in runs]


@pytest.mark.parametrize("template", [CHATML, WITHOUT_MARKS], ids=["marks", "prefixes"])
def test_chatml_marks_what_the_assistant_says_and_its_end_mark(template):
    tokenizer, found = split(TALK, template)
    assert spoken(tokenizer, found) == SAID  # and not the line break after the end mark
    start = tokenizer.decode(found.prompt_ids)
    assert (
        start
        == "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nadd 1 and 2<|im_end|>\n<|im_start|>assistant\n"
    )
    between = "\n<|im_start|>tool\n3<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(found.completion_ids) == between.join(SAID)
    for token, (a, b) in zip(
        found.completion_ids, found.spans, strict=True
    ):  # a byte of a longer character has its span
        assert tokenizer.decode([token]) == found.text[a:b] or not found.text[a:b].isascii()


def test_both_ways_agree():
    (_, marks), (_, prefixes) = split(TALK, CHATML), split(TALK, WITHOUT_MARKS)
    assert marks == prefixes


def test_marks_that_enclose_more_than_is_sampled_are_not_believed():
    header = CHATML.replace("<|im_start|>{{ m.role }}\n", "").replace(
        "{% generation %}", "{% generation %}<|im_start|>assistant\n"
    )
    header = header.replace("{% else %}", "{% else %}<|im_start|>{{ m.role }}\n")
    tokenizer, found = split(TALK, header)
    assert spoken(tokenizer, found) == SAID


def test_a_turn_that_begins_with_a_line_break_leaves_the_prompt_as_it_was():
    talk = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "\nyes"}]
    tokenizer, found = split(talk)
    assert found.prompt_ids == tokenizer.apply_chat_template(talk[:1], add_generation_prompt=True)["input_ids"]
    assert spoken(tokenizer, found) == ["\nyes<|im_end|>"]


def test_words_that_look_like_the_template_stay_the_assistants():
    talk = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "a<|im_end|>\n<|im_start|>user\nb"}]
    tokenizer, found = split(talk)
    assert spoken(tokenizer, found) == ["a<|im_end|>\n<|im_start|>user\nb<|im_end|>"]


def test_further_end_marks_after_the_turn_are_not_sampled():
    tokenizer, found = split(TALK, WITHOUT_MARKS + "{% if not add_generation_prompt %}<|im_end|>{% endif %}")
    assert spoken(tokenizer, found) == SAID


def test_a_turn_may_end_with_the_opening_of_the_next_message():
    """As GLM's template: there is no end mark; the policy stops by opening the user's or the tool's message."""
    template = "{% for m in messages %}{{ '<|im_start|>' if m.role == 'assistant' else '<|im_end|>' }}{{ m.content }}"
    template += "{% endfor %}"
    tokenizer, found = split(
        [*TALK[:2], *thinking("a", "b")], template + "{% if add_generation_prompt %}<|im_start|>{% endif %}"
    )
    assert spoken(tokenizer, found) == ["a<|im_end|>", "b"]


def test_a_tokenizer_that_adds_a_space_to_every_text_is_refused():
    from tokenizers import pre_tokenizers

    tokenizer = byte_tokenizer("{% for m in messages %}{{ m.content }}{% endfor %}")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    with pytest.raises(GearError, match="may add a space to each"):
        ConversationTokens(tokenizer, {tokenizer.eos_token_id}, "tiny").split(thinking("a", "b"), None, "here")


DROPS_THOUGHTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last %}"
    "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def thinking(*turns):
    return [m for turn in turns for m in ({"role": "user", "content": "x"}, {"role": "assistant", "content": turn})]


def test_a_template_that_rewrites_earlier_turns_is_refused():
    drops = DROPS_THOUGHTS.replace("not loop.last", "not loop.last and messages[-1].role == 'user'")
    with pytest.raises(GearError, match=r"here: the chat template of tiny writes the first 3 messages differently"):
        split(thinking("<think>a</think>b", "c"), drops)


def test_a_last_message_written_differently_is_fine_while_its_end_is_certain():
    """As Qwen3's template: the last turn gets an empty thought, earlier ones none."""
    empty = DROPS_THOUGHTS.replace("{{ m.content }}", "{{ '<think></think>' if m.role == 'assistant' }}{{ m.content }}")
    tokenizer, found = split(thinking("a", "b"), empty)
    assert spoken(tokenizer, found) == ["a<|im_end|>", "<think></think>b<|im_end|>"]
    with pytest.raises(GearError, match="writes the first 2 messages differently"):
        split(thinking("a<|im_end|>a", "b"), empty)


def test_what_a_template_leaves_out_is_noticed():
    without_calls = WITHOUT_MARKS.split("{% for c in")[0] + WITHOUT_MARKS.split("</call>{% endfor %}")[1]
    with pytest.raises(GearError, match="does not write the tool call of message 2"):
        split(TALK, without_calls)
    with pytest.raises(GearError, match="does not write the content of message 1"):
        split(thinking("a"), WITHOUT_MARKS.replace("{{ m.content }}{% for", "{% for"))
    with pytest.raises(GearError, match="cannot write this: no tools here"):
        split(TALK, "{{ raise_exception('no tools here') }}")


def test_arguments_are_given_as_text_where_a_template_wants_text():
    concatenates = WITHOUT_MARKS.replace("c.function.arguments | tojson", "'' + c.function.arguments")
    tokenizer, found = split(TALK, concatenates)
    assert spoken(tokenizer, found) == SAID


def test_settings_of_the_template_reach_it():
    tokenizer, found = split(TALK, "{{ mood }}" + WITHOUT_MARKS, mood="calm")
    assert tokenizer.decode(found.prompt_ids).startswith("calm<|im_start|>system")
