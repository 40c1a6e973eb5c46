"""Random hidden states of student and teacher, an output head and sampled tokens."""

import math

import torch


def draw(n, width, vocab, dtype=torch.float32, seed=0, size=1.0, device="cpu"):
    """(N, D), (N, D), (V, D) and (N,); `size`: about the standard deviation of the logits."""
    generator = torch.Generator().manual_seed(seed)
    student = torch.randn(n, width, generator=generator)
    teacher = student + 0.3 * torch.randn(n, width, generator=generator)
    weight = torch.randn(vocab, width, generator=generator) * size / math.sqrt(width)
    ids = torch.randint(vocab, (n,), generator=generator)
    return student.to(device, dtype), teacher.to(device, dtype), weight.to(device, dtype), ids.to(device)
