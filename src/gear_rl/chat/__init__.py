"""Text for and from chat models.

Messages, chat templates, hints in prompts, tool calls in turns, which tokens are the assistant's, and the client of an
OpenAI-compatible endpoint. Nothing here knows tasks, rewards, credit or a model's weights."""
