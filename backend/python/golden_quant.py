#!/usr/bin/env python3
"""Writes backend/tests/golden/quant/FORMAT.bin: blocks of random bits, then the f32 numbers that gguf-py makes of them.

    python -m venv venv && venv/bin/pip install -r backend/python/requirements.txt
    venv/bin/python backend/python/golden_quant.py

Scales are finite f16: zero, subnormal, largest and random ones. The same bytes come out on every run.
"""

from pathlib import Path

import gguf
import numpy as np

# Blocks, and where in a block its f16 scales are.
FORMATS = {
    "F32": (64, []),
    "F16": (256, [0]),
    "BF16": (256, []),
    "Q8_0": (16, [0]),
    "Q4_0": (16, [0]),
    "Q4_1": (16, [0, 2]),
    "Q4_K": (10, [0, 2]),
    "Q5_K": (10, [0, 2]),
    "Q6_K": (10, [208]),
}
# ±0, the smallest and largest subnormal, the smallest normal, the largest, of either sign.
EDGES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x7BFF, 0xFBFF]


def blocks(name: str, count: int, scales: list[int], random: np.random.Generator) -> np.ndarray:
    kind = gguf.GGMLQuantizationType[name]
    _, size = gguf.GGML_QUANT_SIZES[kind]
    data = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in scales:
        bits = random.integers(0, 0x10000, count, dtype=np.uint16)
        bits = np.where(bits & 0x7C00 == 0x7C00, bits & 0xBFFF, bits)
        edges = np.roll(np.array(EDGES, dtype=np.uint16), at)[:count]
        bits[: len(edges)] = edges
        data[:, at : at + 2] = bits.view(np.uint8).reshape(count, 2)
    if name in ("F32", "BF16"):  # no NaN: their payload is nobody's concern
        top = data[:, size - 1]
        data[:, size - 1] = np.where(top & 0x7F == 0x7F, top & 0xBF, top)
    return data


def main() -> None:
    folder = Path(__file__).parent.parent / "tests/golden/quant"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (count, scales) in FORMATS.items():
        data = blocks(name, count, scales, np.random.default_rng(20261130))
        numbers = gguf.dequantize(data.reshape(1, -1), gguf.GGMLQuantizationType[name])
        assert numbers.dtype == np.float32
        (folder / f"{name}.bin").write_bytes(data.tobytes() + numbers.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
