"""`Head.of` reads any family's head so that it gives the model's own logits, and refuses what it cannot."""

import pytest
import torch
from torch import nn

from gear_rl.errors import GearError
from gear_rl.scoring import Head

transformers = pytest.importorskip("transformers")
TINY = {
    "vocab_size": 90,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "pad_token_id": 0,
}
IDS = torch.tensor([[5, 6, 7, 80, 9]])


def tiny(family: str, **options):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(family, **TINY, **options))
    with torch.no_grad():  # large enough that a missing soft-cap or scale cannot hide
        model.get_output_embeddings().weight.normal_(0, 1.0)
        if getattr(model.get_output_embeddings(), "bias", None) is not None:
            model.get_output_embeddings().bias.normal_(0, 3.0)
    return model.eval()


@pytest.mark.parametrize(
    ("family", "options", "scale", "softcap"),
    [
        ("qwen3", {}, 1.0, None),
        ("llama", {"tie_word_embeddings": True}, 1.0, None),
        ("gemma2", {"final_logit_softcapping": 7.0, "query_pre_attn_scalar": 16}, 1.0, 7.0),
        ("granite", {"logits_scaling": 8.0}, 1 / 8, None),
        ("cohere", {"logit_scale": 0.25}, 0.25, None),
        ("phi", {}, 1.0, None),
    ],
)
def test_reads_each_family_exactly(family, options, scale, softcap):
    model = tiny(family, **options)
    head = Head.of(model)
    assert (head.scale, head.softcap, head.size) == (scale, softcap, 90)
    assert head.verify(model, IDS) < 1e-5
    assert (head.bias is not None) == (family == "phi")
    assert head.weight.data_ptr() == model.get_output_embeddings().weight.data_ptr()  # read, not copied


def test_a_wrong_head_does_not_pass_verification():
    model = tiny("granite", logits_scaling=8.0)
    with pytest.raises(GearError, match="gives other logits than the model"):
        Head(model.get_output_embeddings().weight).verify(model, IDS)


def test_real_vocabulary_size_masks_padding():
    head = Head.of(tiny("qwen3"), vocab_size=81)
    assert head.size == 81 and head.logits(torch.randn(2, 32)).shape == (2, 81)


def test_peft_models():
    peft = pytest.importorskip("peft")

    def adapted(**options):
        return peft.get_peft_model(tiny("qwen3"), peft.LoraConfig(task_type="CAUSAL_LM", r=2, **options))

    body = adapted(target_modules=["q_proj"])
    assert Head.of(body).verify(body, IDS) < 1e-5
    whole = adapted(target_modules=["q_proj"], modules_to_save=["lm_head"])
    trained = next(m for n, m in whole.named_modules() if n.endswith("lm_head.modules_to_save.default"))
    with torch.no_grad():
        trained.weight.mul_(0.5)
    assert Head.of(whole).verify(whole, IDS) < 1e-5
    with whole.disable_adapter():  # the base policy's head, as a `base` teacher reads it
        assert Head.of(whole).verify(whole, IDS) < 1e-5
    with pytest.raises(GearError, match=r"lm_head of .* is adapted \(Linear\).*Leave lm_head out of target_modules"):
        Head.of(adapted(target_modules=["q_proj", "lm_head"]))


def test_refuses_by_name_what_it_cannot_do():
    odd = tiny("qwen3")
    odd.config.logits_scaling = 4.0
    with pytest.raises(GearError, match=r"'qwen3' has logits_scaling=4.0"):
        Head.of(odd)
    bert = transformers.AutoConfig.for_model("bert", **TINY, is_decoder=True)
    with pytest.raises(GearError, match="'bert' transforms hidden states"):
        Head.of(transformers.AutoModelForCausalLM.from_config(bert))
    with pytest.raises(GearError, match="has no get_output_embeddings"):
        Head.of(nn.Linear(2, 2))
    with pytest.raises(GearError, match=r"not an nn\.Linear"):
        Head.coerce(nn.Conv1d(4, 4, 1))
    with pytest.raises(GearError, match="quantised head"):
        Head(torch.zeros(4, 4, dtype=torch.int8))
    with pytest.raises(GearError, match="vocab_size 9 does not fit"):
        Head(torch.zeros(4, 4), vocab_size=9)
    with pytest.raises(GearError, match="softcap must be positive"):
        Head(torch.zeros(4, 4), softcap=0.0)
    with pytest.raises(GearError, match="scale must be positive"):
        Head(torch.zeros(4, 4), scale=-1.0)
    with pytest.raises(GearError, match="bias must be"):
        Head(torch.zeros(4, 4), torch.zeros(3))
