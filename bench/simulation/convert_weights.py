"""Writes a GGUF file again with its matrices in another format: convert_weights.py IN OUT FORMAT
(F16, BF16, Q8_0, Q4_1, ...). For comparing formats on one model; needs `pip install gguf==0.19.0`."""

import sys

import gguf


def convert(source, target, name):
    kind = gguf.GGMLQuantizationType[name]
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value_type = field.types[0]
        sub_type = field.types[-1] if value_type == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), value_type, sub_type=sub_type)
    for tensor in reader.tensors:
        data, stored = tensor.data, tensor.tensor_type
        if len(tensor.shape) > 1:  # vectors stay as they are
            data = gguf.quants.quantize(gguf.quants.dequantize(data, stored), kind)
            stored = kind
        writer.add_tensor(tensor.name, data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=True)
    writer.close()


if __name__ == "__main__":
    convert(*sys.argv[1:4])
