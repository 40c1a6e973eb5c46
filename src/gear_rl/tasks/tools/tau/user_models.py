"""Language models as users: an OpenAI-compatible endpoint, or a model on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gear_rl.chat.endpoint import Endpoint
from gear_rl.chat.templates import rendered
from gear_rl.chat.tool_calls import read_turn
from gear_rl.errors import GearError
from gear_rl.tasks.tools.tau.user import ModelUser, ScriptedUser, User

Chat = Callable[[list[dict[str, str]]], str]
MOST_TOKENS = 256
MOST_CHARACTERS = 8000
SECONDS = 60.0
"""For one answer of the endpoint."""


def user_maker(user: str, model: str) -> Callable[[str], User]:
    """From a task's instruction to the user who plays it."""
    if user == "script":
        return ScriptedUser
    if user.startswith(("http://", "https://")):
        if not model:
            raise GearError(f"the user at {user} needs the model's name there: --set task.user_model=NAME.")
        chat: Chat = EndpointChat(user, model)
    elif Path(user).is_dir():
        chat = LocalChat(user)
    else:
        raise GearError(f"user={user!r}: write script, an endpoint (http://…/v1), or the folder of a local model.")
    return lambda instruction: ModelUser(instruction, chat)


class EndpointChat:
    """A user behind gear's one client for endpoints. The key is read from OPENAI_API_KEY, if it is set."""

    def __init__(self, url: str, model: str) -> None:
        named = ("task.user", "the environment variable OPENAI_API_KEY", "task.user_model")
        key = os.environ.get("OPENAI_API_KEY") or None
        self.endpoint = Endpoint(url, model, key, timeout=SECONDS, named=named)
        self.endpoint.greet()

    def __call__(self, messages: list[dict[str, str]]) -> str:
        reply = self.endpoint.chat(messages, temperature=0, max_tokens=MOST_TOKENS)
        return read_turn(reply.text).text[:MOST_CHARACTERS]  # thoughts are not for the agent


class LocalChat:
    """A Hugging Face model in this process, greedy, one conversation at a time."""

    def __init__(self, folder: str) -> None:
        self.folder, self._lock = folder, threading.Lock()
        self._loaded: Any = None

    def __call__(self, messages: list[dict[str, str]]) -> str:
        with self._lock:
            model, tokenizer = self._loaded or self._load()
            text = rendered(tokenizer, messages, add_generation_prompt=True)
            ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").to(model.device)
            out = model.generate(
                **ids, max_new_tokens=MOST_TOKENS, do_sample=False, pad_token_id=tokenizer.pad_token_id
            )
            return tokenizer.decode(out[0, ids["input_ids"].size(1) :], skip_special_tokens=True).strip()

    def _load(self) -> Any:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            tokenizer = AutoTokenizer.from_pretrained(self.folder)
            model: Any = AutoModelForCausalLM.from_pretrained(self.folder, dtype="auto")
            model = model.to(device).eval()
        except (OSError, ValueError) as error:
            raise GearError(f"the user's model in {self.folder} cannot be loaded: {error}") from None
        self._loaded = model, tokenizer
        return self._loaded
