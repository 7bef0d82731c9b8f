#!/usr/bin/env python3
"""Writes backend/tests/golden/logits/CASE.bin: logits of tiny random Llamas, computed by an implementation that is not ours (mlx-lm's, in f32 on the CPU).

    python -m venv venv && venv/bin/pip install -r backend/python/requirements-logits.txt
    venv/bin/python backend/python/golden_logits.py

No weights are kept: both sides draw them from the generator of backend/src/testing/random.rs, seeded by the tensor's name. A file holds f32, little endian:
the logits after the 1st, the 17th and the last of 48 tokens.
"""

from pathlib import Path

import mlx.core as mx
import numpy as np
import xxhash
from mlx_lm.models import llama

VOCAB = 275
TOKENS = [(7919 * i + 3) % VOCAB for i in range(48)]
KEPT = [0, 16, 47]

LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
# heads, key heads, tied, rope_scaling: as in backend/tests/golden_logits.rs.
CASES = {
    "gqa1-untied": (4, 4, False, None),
    "gqa3-tied-linear": (6, 2, True, {"rope_type": "linear", "factor": 4.0}),
    "gqa4-untied-llama3": (8, 2, False, LLAMA3 | {"factor": 8.0, "original_max_position_embeddings": 64}),
    "gqa8-tied-llama3": (8, 1, True, LLAMA3 | {"factor": 32.0, "original_max_position_embeddings": 128}),
}
LAYERS, HIDDEN, FFN, HEAD_DIM, SEED = 2, 64, 128, 16, 1


def uniform(name: str, count: int) -> np.ndarray:
    """SplitMix64, its upper 24 bits as -1..1."""
    state = SEED ^ xxhash.xxh3_64_intdigest(name.encode())
    out = np.empty(count, dtype=np.float32)
    for i in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        z ^= z >> 31
        out[i] = np.float32(z >> 40) / np.float32(2**23) - np.float32(1)
    return out


def matrix(name: str, rows: int, cols: int, scale: np.float32) -> mx.array:
    return mx.array((uniform(name, rows * cols) * scale).reshape(rows, cols))


def norm(name: str) -> mx.array:
    return mx.array(uniform(name, HIDDEN) * np.float32(0.3) + np.float32(1))


def scale(cols: int) -> np.float32:
    return np.sqrt(np.float32(3) / np.float32(cols))


def weights(heads: int, kv_heads: int, tied: bool) -> list[tuple[str, mx.array]]:
    q, kv = heads * HEAD_DIM, kv_heads * HEAD_DIM
    out = [
        ("model.embed_tokens.weight", matrix("token_embd.weight", VOCAB, HIDDEN, np.float32(1.7))),
        ("model.norm.weight", norm("output_norm.weight")),
    ]
    if not tied:
        out.append(("lm_head.weight", matrix("output.weight", VOCAB, HIDDEN, np.float32(3) * scale(HIDDEN))))
    for layer in range(LAYERS):
        ours, theirs = f"blk.{layer}", f"model.layers.{layer}"
        out.append((f"{theirs}.input_layernorm.weight", norm(f"{ours}.attn_norm.weight")))
        out.append((f"{theirs}.post_attention_layernorm.weight", norm(f"{ours}.ffn_norm.weight")))
        for their, our, rows, cols in [
            ("self_attn.q_proj", "attn_q", q, HIDDEN),
            ("self_attn.k_proj", "attn_k", kv, HIDDEN),
            ("self_attn.v_proj", "attn_v", kv, HIDDEN),
            ("self_attn.o_proj", "attn_output", HIDDEN, q),
            ("mlp.gate_proj", "ffn_gate", FFN, HIDDEN),
            ("mlp.up_proj", "ffn_up", FFN, HIDDEN),
            ("mlp.down_proj", "ffn_down", HIDDEN, FFN),
        ]:
            out.append((f"{theirs}.{their}.weight", matrix(f"{ours}.{our}.weight", rows, cols, scale(cols))))
    return out


def main() -> None:
    mx.set_default_device(mx.cpu)
    folder = Path(__file__).parents[1] / "tests" / "golden" / "logits"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (heads, kv_heads, tied, scaling) in CASES.items():
        model = llama.Model(
            llama.ModelArgs(
                model_type="llama",
                hidden_size=HIDDEN,
                num_hidden_layers=LAYERS,
                intermediate_size=FFN,
                num_attention_heads=heads,
                num_key_value_heads=kv_heads,
                head_dim=HEAD_DIM,
                rms_norm_eps=1e-5,
                vocab_size=VOCAB,
                max_position_embeddings=512,
                rope_theta=10_000.0,
                rope_scaling=scaling,
                tie_word_embeddings=tied,
            )
        )
        model.load_weights(weights(heads, kv_heads, tied), strict=True)
        logits = np.array(model(mx.array([TOKENS]))[0], dtype="<f4")
        (folder / f"{name}.bin").write_bytes(logits[KEPT].tobytes())
        print(name, logits[KEPT].std(), logits[47, :3])


if __name__ == "__main__":
    main()
