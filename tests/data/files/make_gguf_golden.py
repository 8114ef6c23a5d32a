"""Makes gguf_golden.json: what the `gguf` package (0.19.0, from PyPI) reads from the GGUF files under
tests/data/models/gguf: metadata, and of each tensor its format, its shape [out, in] and the CRC-32 of its
values as float32. Run: python make_gguf_golden.py"""

import json
import pathlib
import zlib

import numpy
from gguf import GGUFReader, GGUFValueType, quants

here = pathlib.Path(__file__).resolve().parent
golden = {}
for path in sorted((here.parent / "models/gguf").glob("*/model.gguf")):
    reader = GGUFReader(path)
    metadata = {}
    for key, field in reader.fields.items():
        if key.startswith("GGUF."):
            continue
        value = field.contents()
        if field.types[0] == GGUFValueType.ARRAY:  # its length and ends will do
            value = {"count": len(value), "first": value[0], "last": value[-1]}
        metadata[key] = value
    tensors = {}
    for tensor in reader.tensors:
        values = quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        tensors[tensor.name] = {
            "format": tensor.tensor_type.name,
            "shape": [int(n) for n in reversed(tensor.shape)],
            "crc32": zlib.crc32(numpy.ascontiguousarray(values).tobytes()),
        }
    golden[path.parent.name] = {"metadata": metadata, "tensors": tensors}
(here / "gguf_golden.json").write_text(json.dumps(golden, indent=0) + "\n")
