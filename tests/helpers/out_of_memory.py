"""A device that is too small: the real forward raises torch's own error for batches above a limit."""

import torch

from gear_rl.sampling.decoding import Decoder


def limit_batch(monkeypatch, most):
    """Make `Decoder.read` run out of memory for more than `most` rows. Returns the list of batch sizes it was asked for."""
    sizes, read = [], Decoder.read

    def limited(self, ids):
        if self.cache is None:  # the prompts
            sizes.append(len(ids))
        elif len(ids) > most:  # in the middle of the rollouts, as a growing cache does
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return read(self, ids)

    monkeypatch.setattr(Decoder, "read", limited)
    return sizes


def run_out_of_memory(monkeypatch):
    """Make every copy of a tensor run out of memory."""

    def too_large(self, *args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(torch.Tensor, "clone", too_large)


def limit_tokens(body, most):
    """Make a forward of `body` run out of memory for more than `most` tokens. Returns the list of tokens it was asked for."""
    asked = []

    def limited(module, args, kwargs):
        given = kwargs.get("input_ids")
        asked.append((kwargs["inputs_embeds"][..., 0] if given is None else given).numel())
        if asked[-1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    body.register_forward_pre_hook(limited, with_kwargs=True)
    return asked
