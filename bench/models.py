"""The benchmark's models, written once for both frameworks: the module is an argument."""

from __future__ import annotations

from typing import Any


def Block(t: Any, width: int, heads: int) -> Any:  # noqa: N802 - stands for a class
    """A pre-norm transformer block."""
    nn, f = t.nn, t.nn.functional

    class _Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            B, T, C = x.shape
            q, k, v = self.qkv(self.norm1(x)).split(C, dim=2)
            q, k, v = (y.view(B, T, heads, C // heads).transpose(1, 2) for y in (q, k, v))
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
            return x + self.down(f.gelu(self.up(self.norm2(x))))

    return _Block()


def GPT(t: Any, vocabulary: int, context: int, layers: int, heads: int, width: int) -> Any:  # noqa: N802
    """The demo model."""
    nn, f = t.nn, t.nn.functional

    class _GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = (
                nn.Embedding(vocabulary, width),
                nn.Embedding(context, width),
            )
            self.blocks = nn.ModuleList(Block(t, width, heads) for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: Any, targets: Any) -> Any:
            B, T = tokens.shape
            x = self.token(tokens) + self.position(t.arange(T))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return f.cross_entropy(logits.view(B * T, -1), targets.reshape(B * T))

    return _GPT()
