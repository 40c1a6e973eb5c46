"""Language models as users: an OpenAI-compatible endpoint, or a model on this machine."""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.tasks.tau.user import ModelUser, ScriptedUser, User

Chat = Callable[[list[dict[str, str]]], str]
MOST_TOKENS = 256
MOST_CHARACTERS = 8000
TRIES = 5


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
    """POST …/chat/completions. The key is read from OPENAI_API_KEY, if it is set."""

    def __init__(self, url: str, model: str, seconds: float = 60.0) -> None:
        self.url, self.model, self.seconds = f"{url.rstrip('/')}/chat/completions", model, seconds

    def __call__(self, messages: list[dict[str, str]]) -> str:
        body = json.dumps(
            {"model": self.model, "messages": messages, "max_tokens": MOST_TOKENS, "temperature": 0}
        ).encode()
        headers = {"Content-Type": "application/json"}
        if os.environ.get("OPENAI_API_KEY"):
            headers["Authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"
        trouble = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(min(2.0**attempt, 20.0))
            request = urllib.request.Request(self.url, body, headers)
            try:
                with urllib.request.urlopen(request, timeout=self.seconds) as reply:
                    return self._message(reply.read(1 << 22))
            except urllib.error.HTTPError as error:
                trouble = f"status {error.code}"
                if error.code not in (408, 409, 425, 429) and error.code < 500:
                    break
            except (OSError, ValueError) as error:
                trouble = str(error)
        raise GearError(f"the user's endpoint {self.url} does not answer: {trouble} (tried {attempt + 1} times).")

    def _message(self, reply: bytes) -> str:
        try:
            content = json.loads(reply)["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError, RecursionError):
            raise ValueError(f"not a chat completion: {reply[:200]!r}") from None
        return (content or "")[:MOST_CHARACTERS]


class LocalChat:
    """A Hugging Face model in this process, greedy, one conversation at a time."""

    def __init__(self, folder: str) -> None:
        self.folder, self._lock = folder, threading.Lock()
        self._loaded: Any = None

    def __call__(self, messages: list[dict[str, str]]) -> str:
        with self._lock:
            model, tokenizer = self._loaded or self._load()
            ids = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            ids = ids.to(model.device)
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
