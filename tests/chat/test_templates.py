"""Chat templates that people use, rendered by a tokenizer of one token a character: what the policy reads, to the letter."""

import json
import time
from pathlib import Path

import pytest

from gear_rl.chat import templates
from gear_rl.chat.templates import Replies, end_tokens, tokenized_prompts, writes_tools
from gear_rl.errors import GearError
from gear_rl.tasks.base import tools_of

trl = pytest.importorskip("trl")
QWEN3 = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
CHATML = (  # SmolLM2's: a system message of its own when there is none
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TOOL = {"type": "function", "function": {"name": "time", "description": "now", "parameters": {"type": "object"}}}


def characters(template):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = [chr(i) for i in range(32, 127)] + ["\n"]
    words = ["<pad>", "<|im_start|>", "<|im_end|>", *letters]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=" "))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("(.|\\n)"), "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<|im_end|>", additional_special_tokens=["<|im_start|>"]
    )
    tokenizer.chat_template = template
    return tokenizer


def text(tokenizer, ids):
    return "".join(tokenizer.convert_ids_to_tokens(ids))


@pytest.mark.parametrize(
    ("template", "reply", "read"),
    [
        (QWEN3, "noon", "user\n<tool_response>\nnoon\n</tool_response>"),
        (QWEN3, [{"role": "tool", "content": "noon"}, {"role": "tool", "content": "one"}],
         "user\n<tool_response>\nnoon\n</tool_response>\n<tool_response>\none\n</tool_response>"),
        (QWEN3, [{"role": "user", "content": "And now?"}], "user\nAnd now?"),
        (CHATML, "noon", "tool\nnoon"),
        (CHATML, [{"role": "user", "content": "And now?"}], "user\nAnd now?"),
    ],
)  # fmt: skip
def test_what_the_policy_reads_after_its_turn(template, reply, read):
    tokenizer = characters(template.read_text() if isinstance(template, Path) else template)
    expected = f"\n<|im_start|>{read}<|im_end|>\n<|im_start|>assistant\n"
    assert text(tokenizer, Replies(tokenizer).ids(reply)) == expected


@pytest.mark.parametrize("template", [QWEN3, CHATML])
def test_an_end_token_that_does_not_end_turns_is_an_error(template):
    """Else the probe's own words would stand in every dialogue."""
    tokenizer = characters(template.read_text() if isinstance(template, Path) else template)
    Replies(tokenizer).check()
    tokenizer.eos_token = "<|im_start|>"
    with pytest.raises(GearError, match=r"'<\|im_start\|>' does not end a turn.*eos_token"):
        Replies(tokenizer).ids("noon")


PHI3 = (  # passes over roles it does not know, and ends a whole dialogue with another token than a turn
    "{% for message in messages %}{% if message['role'] in ('user', 'assistant') %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% else %}{{ '<pad>' }}{% endif %}"
)


def test_an_end_token_of_whole_dialogues_is_an_error():
    tokenizer = characters(PHI3)
    tokenizer.eos_token = "<pad>"
    with pytest.raises(GearError, match=r"'<pad>' does not end a turn .* where the dialogue goes on"):
        Replies(tokenizer).ids([{"role": "user", "content": "noon"}])


def test_a_reply_that_the_template_leaves_out_is_an_error():
    tokenizer = characters(PHI3.replace("<pad>", ""))
    assert "noon" in text(tokenizer, Replies(tokenizer).ids([{"role": "user", "content": "noon"}]))
    with pytest.raises(GearError, match="leaves out messages of the role 'tool'"):
        Replies(tokenizer).ids("noon")


def test_an_end_token_that_opens_the_dialogue_is_no_error():
    tokenizer = characters("<pad>" + CHATML)
    tokenizer.eos_token = "<pad>"
    assert text(tokenizer, Replies(tokenizer).ids("noon")) == "<|im_start|>tool\nnoon<|im_end|>\n<|im_start|>assistant\n"


def test_template_settings_reach_every_turn():
    tokenizer = characters(QWEN3.read_text())
    ids = Replies(tokenizer, enable_thinking=False).ids("noon")
    assert text(tokenizer, ids).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    (prompt,) = tokenized_prompts(tokenizer, [[{"role": "user", "content": "hi"}]], enable_thinking=False)
    assert text(tokenizer, prompt).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_tools_are_rendered_by_row():
    tokenizer = characters(QWEN3.read_text())
    asked = [{"role": "user", "content": "hi"}]
    plain, with_tool = tokenized_prompts(tokenizer, [asked, asked], [None, [TOOL]])
    assert "time" not in text(tokenizer, plain) and '"name": "time"' in text(tokenizer, with_tool)


def test_a_template_that_passes_over_tools_gets_them_in_the_system_message():
    tokenizer = characters(CHATML)
    assert not writes_tools(tokenizer) and writes_tools(characters(QWEN3.read_text()))
    asked = [{"role": "user", "content": "hi"}]
    (bare,) = tokenized_prompts(tokenizer, [asked])
    alone, beside = tokenized_prompts(
        tokenizer, [asked, [{"role": "system", "content": "Be brief."}, *asked]], [[TOOL]] * 2
    )
    schema = json.dumps(TOOL["function"])
    for prompt, opening in ((alone, "You can call"), (beside, "Be brief.\n\nYou can call")):
        assert text(tokenizer, prompt).startswith(f"<|im_start|>system\n{opening}")
        assert schema in text(tokenizer, prompt) and "You are helpful" not in text(tokenizer, prompt)
    assert "time" not in text(tokenizer, bare)


def test_tools_of_a_row_go_before_the_tasks():
    class Some:
        tools = [TOOL]  # noqa: RUF012

    assert tools_of(Some, {}) == [TOOL] and tools_of(Some, {"tools": json.dumps([])}) == []
    assert tools_of(Some, {"tools": None}) == [TOOL]


def test_a_turn_ends_at_every_mark_the_model_knows():
    class Model:
        class generation_config:
            eos_token_id = [2, 0]  # noqa: RUF012

    tokenizer = characters(CHATML)
    assert end_tokens(Model, tokenizer) == {0, 2} and end_tokens(object(), tokenizer) == {2}


LOOP = "{% for i in range(99999) %}" * 3 + "%s" + "{% endfor %}" * 3


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (LOOP.replace("%s", ""), "takes more than 1 s"),
        (LOOP.replace("%s", "{{ 'x' * 1000 }}"), "takes more than 1 s|takes more than 1024 MiB"),
        ("{{ 'x' * 10**11 }}", "takes more than 1024 MiB of memory"),
        ("{{ 'x' | center(2 * 10**9) }}", "takes more than 1024 MiB of memory"),
        ("{{ 'x' * 10**7 }}", "writes 10000000 characters for one conversation; at most"),
        ("{{ raise_exception('roles must alternate\x1b[2J') }}", r"cannot write this: roles must alternate\?\[2J"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "cannot write this: .*recursion"),
        ("{{ messages[0].content.nothing.at_all }}", "cannot write this"),
        ("{% if", "cannot write this"),
        ("{{ " + "9" * 5000 + " }}", "cannot write this"),
        ("{{ " + "-" * 300 + "x }}", "nests more than 100 levels"),
        ("{{ " + "(" * 5000 + "x" + ")" * 5000 + " }}", "nests more than 100 levels"),
        ("{% generation %}{{ " + " + ".join("x" * 200) + " }}{% endgeneration %}{% break %}", "nests more than 100 levels"),
    ],
)
def test_a_hostile_template_ends_with_a_message(template, says, monkeypatch):
    if "than 1 s" in says:  # the others need theirs on a busy machine
        monkeypatch.setattr(templates, "SECONDS", 1.0)
    tokenizer = characters(template)
    prompt = [{"role": "user", "content": "hi"}]
    for use in (lambda: tokenized_prompts(tokenizer, [prompt]), lambda: Replies(tokenizer).ids("hi")):
        began = time.monotonic()
        with pytest.raises(GearError, match=says):
            use()
        assert time.monotonic() - began < 20


def test_replies_are_kept_within_a_bound(monkeypatch):
    tokenizer = characters(CHATML)
    asked, render = [], templates.rendered_ids
    monkeypatch.setattr(templates, "rendered_ids", lambda *a, **k: (asked.append(1), render(*a, **k))[1])
    monkeypatch.setattr(templates, "MOST_KEPT", 100_000)
    replies = Replies(tokenizer)
    first = replies.ids("reply 0")
    for i in range(200):
        replies.ids(f"reply {i} " + "x" * 100)
        assert replies.ids("reply 0") == first, "what is used stays"
    assert len(asked) == 1 + 201
    assert 0 < replies._bytes <= 100_000 and len(replies._kept) < 30
    assert len(replies.ids("reply 1 " + "x" * 100)) > 100 and len(asked) == 1 + 202
    huge = replies.ids("y" * 10_000)
    assert len(huge) > 10_000 and len(replies._kept) == 1, "one that exceeds the bound is kept alone"
