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
