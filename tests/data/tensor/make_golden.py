"""Makes <format>.blocks (random GGUF blocks) and <format>.values (float32, little-endian): what the
`gguf` package (0.19.0, from PyPI) decodes from them. Run: python make_golden.py"""

import numpy
from gguf import GGMLQuantizationType, quants
from gguf.constants import GGML_QUANT_SIZES

BLOCKS_COUNT = 6
# Byte offsets of the half floats in a block.
HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
}

generator = numpy.random.default_rng(20250101)
for name, offsets in HALVES.items():
    kind = GGMLQuantizationType[name]
    _, block_bytes = GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (BLOCKS_COUNT, block_bytes), dtype=numpy.uint8)
    for offset in offsets:
        halves = generator.integers(0, 0x7C00, BLOCKS_COUNT, dtype=numpy.uint16)  # finite
        halves[0] = 0x0001  # the smallest subnormal
        halves[1] = 0x7BFF  # the largest
        halves |= generator.integers(0, 2, BLOCKS_COUNT, dtype=numpy.uint16) << 15
        blocks[:, offset : offset + 2] = halves[:, None].view(numpy.uint8)
    values = quants.dequantize(blocks.reshape(1, -1), kind).astype(numpy.float32)
    blocks.tofile(f"{name}.blocks")
    values.tofile(f"{name}.values")
