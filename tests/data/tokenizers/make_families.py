#!/usr/bin/env python3
"""Write families.json.xz: random strings cut by the pre-tokenizer patterns of the big model families.

The cuts are those of Hugging Face's tokenizers (pip install tokenizers==0.23.3 regex), byte offsets in UTF-8.
Kimi's pattern needs set intersection, which only the `regex` package has of the two.

  make_families.py OUT.json.xz [--count N] [--seed N]
"""
import argparse
import json
import lzma
import random

import regex
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = r"[^\r\n\p{L}\p{N}]?[%s]*[%s]+%s|[^\r\n\p{L}\p{N}]?[%s]+[%s]*%s|"
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "llama3": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,
    "qwen2": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,
    "qwen35": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + TAIL,
    "o200k": CASED % (UPPER, LOWER, CONTRACTIONS + "?", UPPER, LOWER, CONTRACTIONS + "?") + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL,
    "tekken": CASED % (UPPER, LOWER, "", UPPER, LOWER, "") + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL,
    "kimi": r"[\p{Han}]+|" + CASED % ("[%s]&&[^\\p{Han}]" % UPPER, "[%s]&&[^\\p{Han}]" % LOWER, CONTRACTIONS + "?",
                                     "[%s]&&[^\\p{Han}]" % UPPER, "[%s]&&[^\\p{Han}]" % LOWER, CONTRACTIONS + "?")
    + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,
    "deepseek_v3": "[!\"#$%&'()*+," + r"\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + TAIL,
}
ALPHABET = (list("aabzAZsStTmMdDlLrRvVeE") + ["'"] * 8 + [" "] * 10 + list("\n\n\n\r\t\x0b\x0c\x00") + list("0129²½٣Ⅷ一二〇")
            + list("!?.,;:-_/\\()[]{}<>@#$%^&*+=~`\"|") + list("äßéñÅΩωПж漢字かなカー한글אבعـदिंकाำ")
            + ["\u0301", "\u0308", "\u20dd", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028", "\u200b", "\u200d", "\ufeff", "\ufffd"]
            + list("ǅʰªⅠⓐ💩🦙👨\U0001F1E9\U0001F1EA€«»“”…。、「」") + ["\u017f", "\u212a", "\u0130", "\u2e80", "\u3005", "\U00020000", "\ue000", "\U000E0041"])


def cuts(name, text):
    """Byte offsets where the words end, gaps being words."""
    if name == "kimi":
        ends, at = [], 0
        for m in regex.finditer(PATTERNS[name], text, flags=regex.V1):
            ends += [m.start()] if m.start() > at else []
            ends, at = ends + [m.end()], m.end()
        ends += [len(text)] if at < len(text) else []
    else:
        ends = [end for _, (_, end) in Split(Regex(PATTERNS[name]), "isolated").pre_tokenize_str(text)]
    return [len(text[:e].encode("utf-8")) for e in ends]


def strings(seed, count):
    r = random.Random(seed)
    for _ in range(count):
        pool = r.sample(ALPHABET, 12) if r.random() < 0.5 else ALPHABET
        yield "".join(r.choice(pool) * (r.randrange(1, 4) if r.random() < 0.2 else 1) for _ in range(r.randrange(1, 30)))


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--count", type=int, default=400)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    texts = list(strings(a.seed, a.count))
    doc = {"patterns": PATTERNS, "texts": texts, "ends": {n: [cuts(n, t) for t in texts] for n in PATTERNS}}
    with lzma.open(a.out, "wb", preset=9) as f:
        f.write(json.dumps(doc, separators=(",", ":")).encode())
