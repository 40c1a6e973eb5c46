"""A sampler behind vLLM's interface, as far as TRL and we call it: a transformers model with weights of its own.

It is no vLLM. What is real around it: TRL's `VLLMGeneration` and `VLLMClient` with their weight sync, and its trainer. What
is real in it: it samples token by token from its own copy of the weights, and its logits differ from the policy's, as
another implementation's do; here by much more (`NOISE`), so that a mix-up of the two cannot hide in rounding.
`tests/vllm_smoke/smoke.py` runs the same code on vLLM itself, in an environment of its own, and checks these signatures there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

NOISE = 0.5
"""Added to the logits: this times the sine of the token id."""


class SamplingParams:
    """vLLM's, of which these fields are used here; another field is an error."""

    def __init__(self, n=1, temperature=1.0, seed=None, stop_token_ids=None, max_tokens=16, logprobs=None, detokenize=True,
                 repetition_penalty=1.0, top_p=1.0, top_k=0, min_p=0.0):  # fmt: skip
        assert (repetition_penalty, top_p, top_k, min_p) == (1.0, 1.0, 0, 0.0), "not written here"
        self.n, self.temperature, self.seed, self.stop_token_ids = n, temperature, seed, stop_token_ids
        self.max_tokens, self.logprobs, self.detokenize = max_tokens, logprobs, detokenize


@dataclass(frozen=True)
class Logprob:
    logprob: float
    rank: int


class LLM:
    """`vllm.LLM`."""

    made: ClassVar[list[LLM]] = []

    def __init__(self, model: str, **settings: Any) -> None:
        from gear_rl.models import load_model

        self.model, self.tokenizer = load_model(model, "cpu")
        self.settings, self.loads, self.resets, self.asked = settings, 0, 0, list[tuple[list[int], SamplingParams]]()
        self._seed = torch.Generator().manual_seed(settings.get("seed") or 0)
        runner = SimpleNamespace(model_runner=SimpleNamespace(model=self))
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=runner),
            model_config=SimpleNamespace(max_model_len=self.model.config.max_position_embeddings),
        )
        LLM.made.append(self)

    @torch.no_grad()
    def load_weights(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        mine = dict(self.model.named_parameters())
        for name, value in weights:
            mine[name].copy_(value)
            self.loads += 1

    def reset_prefix_cache(self) -> bool:
        self.resets += 1
        return True

    def generate(self, prompts: list[dict], sampling_params: Any = None, *, use_tqdm: bool = True) -> list[Any]:
        each = sampling_params if isinstance(sampling_params, list) else [sampling_params] * len(prompts)
        outputs = []
        for prompt, params in zip(prompts, each, strict=True):
            ids = prompt["prompt_token_ids"]
            self.asked.append((list(ids), params))
            outputs.append(
                SimpleNamespace(prompt_token_ids=ids, outputs=[self._one(ids, params) for _ in range(params.n)])
            )
        return outputs

    @torch.no_grad()
    def _one(self, prompt: list[int], params: SamplingParams) -> Any:
        draws = self._seed if params.seed is None else torch.Generator().manual_seed(params.seed)
        ends = {self.model.config.eos_token_id, *(params.stop_token_ids or ())}
        ids, tokens, logprobs = torch.tensor([prompt]), list[int](), list[dict[int, Logprob]]()
        while True:
            logits = self.model(ids).logits[0, -1]
            logits = logits + NOISE * torch.arange(len(logits)).sin()
            logps = (logits / params.temperature).log_softmax(-1)
            token = int(torch.multinomial(logps.exp(), 1, generator=draws))
            tokens.append(token)
            logprobs.append({token: Logprob(float(logps[token]), 1)})
            full = len(prompt) + len(tokens) >= self.llm_engine.model_config.max_model_len
            if token in ends or len(tokens) == params.max_tokens or full:
                reason = "stop" if token in ends else "length"
                logs = logprobs if params.logprobs is not None else None
                return SimpleNamespace(token_ids=tokens, logprobs=logs, finish_reason=reason)
            ids = torch.cat([ids, torch.tensor([[token]])], dim=1)


@contextmanager
def server(llm: LLM) -> Iterator[str]:
    """The addresses of `vllm serve` that TRL's client uses, over HTTP."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            config = {
                "model_config": {"logprobs_mode": "processed_logprobs"},
                "weight_transfer_config": {"backend": "nccl"},
            }
            known = {"/health": {}, "/v1/models": {"data": [{"id": "policy"}]}, "/server_info": {"vllm_config": config}}
            self._send(known[self.path.split("?")[0]])

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            if self.path == "/reset_prefix_cache":
                return self._send({"success": llm.reset_prefix_cache()})
            assert self.path == "/v1/completions" and given.pop("model") == "policy"
            assert given.pop("return_token_ids") and given.pop("return_tokens_as_token_ids")
            prompts = [{"prompt_token_ids": ids} for ids in given.pop("prompt")]
            outputs = llm.generate(prompts, SamplingParams(**given))
            self._send({"choices": [_choice(o.prompt_token_ids, c) for o in outputs for c in o.outputs]})

        def _send(self, body: dict) -> None:
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{served.server_port}"
    finally:
        served.shutdown()
        served.server_close()


def _choice(prompt: list[int], said: Any) -> dict[str, Any]:
    names, values = zip(
        *[(f"token_id:{t}", lp.logprob) for step in said.logprobs for t, lp in step.items()], strict=True
    )
    tops = [{name: value} for name, value in zip(names, values, strict=True)]
    logprobs = {"tokens": names, "token_logprobs": values, "top_logprobs": tops}
    return {"prompt_token_ids": prompt, "token_ids": said.token_ids, "logprobs": logprobs}


def install(monkeypatch: Any, llm: LLM | None = None) -> None:
    """Put this engine where TRL would import vLLM's. llm: what a server holds; the weights, which TRL sends by NCCL between
    GPUs, are handed over to it in this process."""
    from trl.generation import vllm_client, vllm_generation

    class Client(vllm_client.VLLMClient):
        def init_communicator(self, device: Any = 0) -> None: ...

        def update_named_params(self, metadata: Any, named_params: Any) -> None:
            for (name, _, shape), (same, value) in zip(metadata, named_params, strict=True):
                assert name == same and shape == list(value.shape)
                llm.load_weights([(name, value)])

    monkeypatch.setattr(LLM, "made", [])
    for module in (vllm_generation, vllm_client):
        monkeypatch.setattr(module, "is_vllm_available", lambda *_, **__: True)
    monkeypatch.setattr(vllm_client, "_HAS_RESET_PREFIX_CACHE_SUCCESS", True)
    monkeypatch.setattr(vllm_generation, "VLLMClient", Client)
    monkeypatch.setattr(vllm_generation, "LLM", LLM, raising=False)
    monkeypatch.setattr(vllm_generation, "SamplingParams", SamplingParams, raising=False)
