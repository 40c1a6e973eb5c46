"""`workshop_words`: the workshop in plain English, on a real tokenizer, where a wrong decision spans many tokens."""

from gear_rl.tasks.workshop_words.task import WorkshopWords

__all__ = ["WorkshopWords"]
