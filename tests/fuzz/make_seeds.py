#!/usr/bin/env python3
"""Writes the first inputs of the fuzzers into seeds/: small, valid, and different from each other.

Inputs that a fuzzer found (their names begin with "found-") are kept as they are.
"""

import json
import lzma
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data"
UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
F32, Q8_0 = 0, 8


def write(target, name, data):
    folder = HERE / "seeds" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# GGUF ---------------------------------------------------------------------------------------------


def gguf_string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind, value):
    if kind == STRING:
        return gguf_string(value)
    return struct.pack({UINT32: "<I", FLOAT32: "<f", BOOL: "<?", 5: "<i", 0: "<B"}[kind], value)


def gguf_pair(key, kind, value, element=None):
    head = gguf_string(key) + struct.pack("<I", kind)
    if kind != ARRAY:
        return head + gguf_value(kind, value)
    return head + struct.pack("<IQ", element, len(value)) + b"".join(
        gguf_value(element, item) for item in value)


def gguf_file(pairs, tensors):
    """`tensors`: name, dimensions innermost first, type, bytes."""
    table, data = b"", b""
    for name, dims, kind, values in tensors:
        table += gguf_string(name) + struct.pack("<I", len(dims))
        table += b"".join(struct.pack("<Q", dim) for dim in dims) + struct.pack("<IQ", kind, len(data))
        data += values + bytes(-len(values) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + table
    return head + bytes(-len(head) % 32) + data


def gguf_model(architecture, tokenizer, *, hidden=8, heads=2, ffn=8, kind=F32, vocab=16, extra=(),
               norms=("attn_norm", "ffn_norm"), qk_norm=False):
    def tensor(name, *dims):
        count = 1
        for dim in dims:
            count *= dim
        if kind == Q8_0 and len(dims) == 2:
            return (name, dims, Q8_0, (b"\x00\x3c" + bytes(range(32))) * (count // 32))
        return (name, dims, F32, struct.pack(f"<{count}f", *([0.5] * count)))

    def key(name, value):
        return gguf_pair(f"{architecture}.{name}", UINT32, value)

    pairs = [
        gguf_pair("general.architecture", STRING, architecture),
        gguf_pair("general.alignment", UINT32, 32),
        key("block_count", 1), key("embedding_length", hidden), key("feed_forward_length", ffn),
        key("attention.head_count", heads), key("context_length", 64),
        gguf_pair(f"{architecture}.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        *extra, *tokenizer,
    ]
    tensors = [tensor("token_embd.weight", hidden, vocab), tensor("output_norm.weight", hidden),
               tensor("output.weight", hidden, vocab)]
    tensors += [tensor(f"blk.0.{name}.weight", hidden) for name in norms]
    tensors += [tensor(f"blk.0.attn_{name}.weight", hidden, hidden) for name in ("q", "k", "v", "output")]
    tensors += [tensor("blk.0.ffn_gate.weight", hidden, ffn), tensor("blk.0.ffn_up.weight", hidden, ffn),
                tensor("blk.0.ffn_down.weight", ffn, hidden)]
    if qk_norm:
        tensors += [tensor(f"blk.0.attn_{name}_norm.weight", hidden // heads) for name in ("q", "k")]
    return gguf_file(pairs, tensors)


def gguf_tokenizer(model, tokens, *, types=None, scores=None, merges=None, extra=()):
    pairs = [gguf_pair("tokenizer.ggml.model", STRING, model),
             gguf_pair("tokenizer.ggml.tokens", ARRAY, tokens, STRING)]
    if types:
        pairs.append(gguf_pair("tokenizer.ggml.token_type", ARRAY, types, 5))
    if scores:
        pairs.append(gguf_pair("tokenizer.ggml.scores", ARRAY, scores, FLOAT32))
    if merges is not None:
        pairs.append(gguf_pair("tokenizer.ggml.merges", ARRAY, merges, STRING))
    return pairs + list(extra)


def make_gguf():
    spm = ["<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "<0xB6>", "▁", "H", "e", "l", "o", "ll", "He",
           "▁Hello", "llo", "Hello"]
    spm_types = [2, 3, 3, 6, 6, 6] + [1] * 10
    scores = [0.0] * 6 + [-float(i) for i in range(10)]
    ids = [gguf_pair("tokenizer.ggml.bos_token_id", UINT32, 1),
           gguf_pair("tokenizer.ggml.eos_token_id", UINT32, 2)]
    template = gguf_pair("tokenizer.chat_template", STRING,
                         "{% for m in messages %}{{ m.content }}{% endfor %}")
    llama = gguf_tokenizer("llama", spm, types=spm_types, scores=scores, extra=[*ids, template])
    bpe = gguf_tokenizer("gpt2", ["H", "e", "l", "o", "Ġ", "w", "r", "d", "ll", "He", "Hell", "Hello",
                                  "Ġw", "1", "<|im_end|>", "<|endoftext|>"],
                         types=[1] * 14 + [3, 3], merges=["l l", "H e", "He ll", "Hell o", "Ġ w"],
                         extra=[gguf_pair("tokenizer.ggml.pre", STRING, "qwen2"),
                                gguf_pair("tokenizer.ggml.eos_token_id", UINT32, 14)])
    unigram = gguf_tokenizer("t5", spm, types=spm_types, scores=scores, extra=ids)
    bert = gguf_tokenizer("bert", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁hello", "▁w", "o", "r", "ld",
                                   "▁1", "2", "3", "▁h", "e", "l", "s"], types=[3] * 4 + [1] * 12)
    write("gguf", "llama-spm", gguf_model("llama", llama))
    write("gguf", "llama-q8_0", gguf_model("llama", llama, hidden=32, ffn=32, kind=Q8_0))
    write("gguf", "qwen3-bpe", gguf_model("qwen3", bpe, qk_norm=True))
    write("gguf", "llama-unigram", gguf_model("llama", unigram))
    write("gguf", "llama-wordpiece", gguf_model("llama", bert, extra=[
        gguf_pair("llama.rope.scaling.type", STRING, "yarn"),
        gguf_pair("llama.rope.scaling.factor", FLOAT32, 4.0)]))
    write("gguf", "gemma3", gguf_model(
        "gemma3", llama, qk_norm=True,
        norms=("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"),
        extra=[gguf_pair("gemma3.attention.sliding_window", UINT32, 8),
               gguf_pair("gemma3.attention.key_length", UINT32, 4)]))
    write("gguf", "no-tensors", gguf_file([gguf_pair("general.architecture", STRING, "llama")], []))
    write("gguf", "all-kinds", gguf_file(
        [gguf_pair("a", 0, 7), gguf_pair("b", BOOL, True), gguf_pair("c", ARRAY, [1, 2], 5),
         gguf_pair("d", ARRAY, [True, False], BOOL), gguf_pair("e", ARRAY, [1.5], FLOAT32),
         gguf_pair("f", ARRAY, ["x", ""], STRING)], [("t", (4,), F32, bytes(16))]))


# safetensors --------------------------------------------------------------------------------------


def safetensors(header, data=b""):
    text = header if isinstance(header, str) else compact(header)
    return struct.pack("<Q", len(text.encode())) + text.encode() + data


def make_safetensors():
    def tensor(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    write("safetensors", "one", safetensors({"a": tensor("F32", [2, 3], 0, 24)}, bytes(24)))
    write("safetensors", "several", safetensors(
        {"__metadata__": {"format": "pt", "x": "y"}, "a": tensor("BF16", [2], 0, 4),
         "b": tensor("I8", [], 4, 5), "c": tensor("F16", [1, 2, 1], 5, 9),
         "d": tensor("F8_E4M3", [0], 9, 9)}, bytes(9)))
    write("safetensors", "none", safetensors("{}"))
    write("safetensors", "escapes", safetensors(
        r'{"\u00e4\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":[{"x":1e5}]}} ', b"\1"))


# Hugging Face files -------------------------------------------------------------------------------


def make_folders():
    seen = set()
    for folder in sorted((DATA / "models").iterdir()):
        if not (folder / "config.json").exists():
            continue
        config = json.loads((folder / "config.json").read_text())
        key = (config["architectures"][0], compact(config.get("rope_scaling")),
               compact(config.get("layer_types")))
        if key in seen:
            continue
        seen.add(key)
        for name in ("transformers_version", "torch_dtype", "initializer_range", "use_cache",
                     "pretraining_tp", "attention_dropout"):
            config.pop(name, None)
        write("config", folder.name, compact(config))
    llama = json.loads((DATA / "models/llama/config.json").read_text())
    index = json.loads((DATA / "models/llama-f16-sharded/model.safetensors.index.json").read_text())
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    word_level = next(entry for entry in components() if entry["name"] == "word_level")
    write("model_folder", "sharded", "\n".join([
        "=== config.json", compact(llama), "=== tokenizer.json", compact(word_level["tokenizer"]),
        "=== model.safetensors.index.json", compact(index)]))
    write("model_folder", "names", "\n".join([
        "=== generation_config.json", '{"eos_token_id":[2,4],"temperature":0.5}',
        "=== tokenizer.json", compact(word_level["tokenizer"]), "=== tokenizer_config.json",
        compact({"bos_token": "a", "eos_token": {"content": "b"}, "added_tokens_decoder": {
            "9": {"content": "<x>", "special": True}}, "extra_special_tokens": {"y": "z"},
            "chat_template": [{"name": "default", "template": template},
                              {"name": "tool_use", "template": template}]})]))
    write("model_folder", "templates", "\n".join([
        "=== chat_template.jinja", template, "=== chat_template.json",
        compact({"chat_template": template})]))


def components():
    return json.loads(lzma.open(DATA / "tokenizers/components.json.xz").read())


def make_tokenizers():
    wanted = {"normalizer_nfc", "normalizer_strip_accents", "normalizer_prepend",
              "normalizer_replace_regex", "normalizer_bert", "normalizer_precompiled",
              "normalizer_byte_level", "unk_fused", "unk_metaspace", "word_suffix",
              "bpe_subword_prefix", "bert", "word_level", "unigram", "unigram_bytes", "added_tokens",
              "gpt2_like", "llama_like", "falcon_chain", "words_fixed_length", "words_digits_each",
              "split_regex_contiguous", "roberta_like"}
    for entry in components():
        if entry["name"] in wanted:
            write("tokenizer_json", entry["name"], compact(entry["tokenizer"]))
    word_level = next(entry for entry in components() if entry["name"] == "word_level")
    write("tokenizer_json", "with-config", compact(word_level["tokenizer"]) + "\0" + compact(
        {"bos_token": "a", "added_tokens_decoder": {"900": {"content": "<x>", "special": True}}}))
    for number, text in enumerate(["Hello, world 123", "<s>a</s>\n\n\tb  c ", "ÄÖ \u0308\u2581 天気🦙",
                                   "can't we'll I'M", "\ufeff\u00a0\u3000x\u200d"]):
        for index in (0, 40, 57, 66, 69):
            write("tokenizer_text", f"{number}-{index}", bytes([index]) + text.encode())
    write("tokenizer_text", "not-utf8", b"\x45a\xff\xc3\xe2\x96\xed\xa0\x80\xf4\x90\x80\x80z")
    for index in (0, 57, 66, 69):
        write("detokenizer", f"ids-{index}", bytes([index, 0, 2]) + struct.pack(
            "<12h", 1, 5, 300, 7, 7, 2, 260, 33, -1, 12, 9, 3000))


# Text ---------------------------------------------------------------------------------------------

TEMPLATES = {
    "chatml": "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
              "message['content'] + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}"
              "{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "tools": "{%- if tools %}{%- for t in tools %}{{- t | tojson(indent=2) }}{%- endfor %}{%- endif %}"
             "{%- set ns = namespace(last=0) %}{%- for m in messages[::-1] %}{%- set ns.last = "
             "loop.index0 %}{%- if m.tool_calls is defined and m.tool_calls %}{%- for c in m.tool_calls"
             " %}{{ c.function.name ~ ':' ~ (c.function.arguments | tojson) }}{%- endfor %}{%- endif %}"
             "{%- endfor %}{{ ns.last }}",
    "macro": "{% macro show(x, n=2) -%}{{ x | upper }}{% if n > 0 %}{{ show(x, n - 1) }}{% endif %}"
             "{%- endmacro %}{{ show('a') }}{% call(q) show('b') %}{{ q }}{% endcall %}",
    "filters": "{{ [3,1,2] | sort | join(', ') }}{{ 'a b' | title | replace('A', 'x') | trim | length }}"
               "{{ {'b': 1, 'a': [1.5, none, true]} | dictsort | string }}{{ range(5) | select('odd') | "
               "list }}{{ messages | map(attribute='role') | unique | list | reverse | first }}"
               "{{ 'x' | default('y') | indent(2) | e }}{{ '%s-%05.2f' | format('a', 3.14159) }}"
               "{{ [1,2,3,4] | batch(2) | list }}{{ 7.5 | round(0, 'floor') | int }}"
               "{{ messages | selectattr('role', 'equalto', 'user') | rejectattr('x') | list | length }}"
               "{{ [1,2]|sum }}{{ 'ab'|list|last }}{{ {'a':1}|items|list }}{{ '<b>'|striptags }}",
    "methods": "{{ ' aXb '.strip().split('X')[-1].upper().startswith('B') }}{{ 'abc'[::-1][1:] }}"
               "{{ {'a': 1}.items() | list }}{{ 'a,b'.partition(',') }}{{ 'é'.encode is defined }}"
               "{{ '{0} {x:>5}'.format(1, x=2) }}{{ 'a-b'.replace('-', '+', 1).title() }}"
               "{{ [1,2].index(2) }}{{ 'aba'.count('a') }}{{ 'x'.join(['1','2']) }}",
    "control": "{% for i in range(9) if i != 4 %}{% if i == 2 %}{% continue %}{% elif i > 6 %}{% break %}"
               "{% endif %}{{ loop.index }}{{ loop.cycle('a','b') }}{{ loop.changed(i) }}{% else %}none"
               "{% endfor %}{% set x %}block{% endset %}{{ x }}{% filter upper %}f{% endfilter %}"
               "{% generation %}g{% endgeneration %}{# c #}{% raw %}{{ r }}{% endraw %}{% with y = 1 %}"
               "{{ y }}{% endwith %}",
    "numbers": "{{ 2 ** 10 // 3 % 5 - -1.5e3 }}{{ 1 / 3 }}{{ 10 ** 30 }}{{ 0.1 + 0.2 }}{{ 7 // -2 }}"
               "{{ 1 < 2 <= 2 != 3 and not false or none is none }}{{ 'a' in 'abc' }}{{ 'b' if 0 else 'c' }}"
               "{{ 5 is divisibleby 5 }}{{ 3 is number and 'x' is string and [] is sequence }}",
    "raise": "{% if messages[0].role != 'user' %}{{ raise_exception('first ' ~ messages[0]) }}{% endif %}"
             "{{ strftime_now('%d %b %Y') }}{{ undefined_name.attribute }}",
    "sandbox": "{{ ''.__class__.__mro__ }}{{ lipsum.__globals__ }}{% include '/etc/passwd' %}",
    "large": "{{ 'x' * 100000 }}{% for i in range(1000) %}{% for j in range(1000) %}{{ i }}{% endfor %}"
             "{% endfor %}",
}


def make_templates():
    for name, template in TEMPLATES.items():
        write("jinja", name, template)
    write("jinja", "with-variables", TEMPLATES["chatml"] + "\0" + compact(
        {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}))
    messages = [
        {"role": "developer", "content": "D"}, {"role": "system", "content": [{"type": "text", "text": "S"}]},
        {"role": "user", "name": "n", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": [1]}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "42"}]
    for bits in (0, 1, 2, 8, 27, 124, 255):
        write("chat_messages", f"rules-{bits}", bytes([bits]) + compact(messages).encode())
    write("chat_messages", "with-tools", b"\x01" + compact(
        {"messages": messages, "tools": [{"type": "function", "function": {"name": "f"}}],
         "documents": [{"title": "t", "text": "x"}]}).encode())


def make_bodies():
    chat = [{"role": "user", "content": "Hi"}]
    bodies = {
        (0, "plain"): {"messages": chat, "max_tokens": 3},
        (0, "stream"): {"messages": chat, "max_completion_tokens": 2, "stream": True, "n": 2,
                        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
                        "logprobs": True, "top_logprobs": 2},
        (0, "sampling"): {"messages": chat, "max_tokens": 2, "temperature": 0.7, "top_p": 0.9, "top_k": 5,
                          "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -1, "seed": 3,
                          "repetition_penalty": 1.1, "logit_bias": {"5": 2.5}, "stop": ["a", "bc"],
                          "stop_token_ids": [7], "min_tokens": 1, "bad_words": ["x"], "priority": 1,
                          "allowed_token_ids": [40, 41], "ignore_eos": True, "cache_salt": "s",
                          "include_stop_str_in_output": True, "skip_special_tokens": False},
        (0, "template"): {"messages": chat, "max_tokens": 1, "chat_template": "{{ messages }}",
                          "chat_template_kwargs": {"a": [1]}, "add_generation_prompt": False,
                          "echo": True, "return_token_ids": True, "user": "u", "metadata": {"k": "v"}},
        (0, "refused"): {"messages": chat, "tools": [{"type": "function", "function": {"name": "f"}}],
                         "response_format": {"type": "json_object"}, "model": "no"},
        (1, "text"): {"prompt": "Once", "max_tokens": 3, "echo": True, "logprobs": 2},
        (1, "ids"): {"prompt": [[1, 2, 3], [4, 5]], "max_tokens": 1, "n": 2, "prompt_logprobs": 1},
        (1, "many"): {"prompt": ["a", "b"], "max_tokens": 2, "stream": True, "suffix": None,
                      "best_of": 1, "truncate_prompt_tokens": 4},
        (2, "text"): {"prompt": "Hello <|eos|>", "add_special_tokens": True, "return_token_strs": True},
        (2, "chat"): {"messages": chat, "add_generation_prompt": True},
        (3, "ids"): {"tokens": [1, 40, 41, 383]},
    }
    for (route, name), body in bodies.items():
        write("request_body", f"{route}-{name}", bytes([route]) + compact(body).encode())
    for number, text in enumerate(['{"a":[1,-2.5e-3,true,null,"\\ud83e\\udd99\\n"]}', "[]", '"x"', "1e999",
                                   '{"a":1,"a":2}', '"\\ud800"', "[" * 120 + "]" * 120,
                                   "\ufeff{}", "18446744073709551616"]):
        write("json", str(number), text)


def make_http():
    body = compact({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2})
    post = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    requests = {
        "get": "GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
        "old": "GET /v1/models HTTP/1.0\r\n\r\n",
        "post": post + f"Content-Length: {len(body)}\r\n\r\n{body}",
        "chunked": post + f"Transfer-Encoding: chunked\r\n\r\n{len(body):x};e=1\r\n{body}\r\n0\r\nA: b\r\n\r\n",
        "pipelined": "GET /version HTTP/1.1\r\nHost: x\r\n\r\nHEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        "expect": post + f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n{body}",
        "preflight": "OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nOrigin: http://y\r\n"
                     "Access-Control-Request-Method: POST\r\n\r\n",
        "smuggling": post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "escapes": "GET /v1/models/a%2Fb%00?x=%zz#f HTTP/1.1\r\nHost: x\r\nX-Request-Id: a b\r\n\r\n",
        "absolute": "GET http://x/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "stream": (lambda text: post + f"Content-Length: {len(text)}\r\n\r\n{text}")(
            body[:-1] + ',"stream":true}'),
    }
    for name, request in requests.items():
        write("http", name, b"\x01\x20\x00" + request.encode())


def make_rest():
    write("stop_matcher", "plain", bytes([2, 0, 2, ord("a"), ord("b"), 1, ord("b")]) + b"\x02xa\x03bab\x01c")
    write("stop_matcher", "included", bytes([1, 1, 3]) + b"aaab" + b"\x05aaaaa\x01b\x02cc")
    write("stop_matcher", "none", b"\x00\x00\x03abc\x02de")
    for number in range(4):
        write("sampling", str(number), struct.pack(
            "<Bfff", 40, 0.7, 0.9, 0.0)[:9] + bytes((number * 37 + i * 11) % 256 for i in range(240)))


if __name__ == "__main__":
    make_gguf()
    make_safetensors()
    make_folders()
    make_tokenizers()
    make_templates()
    make_bodies()
    make_http()
    make_rest()
