#!/usr/bin/env python3
"""Speed of our tokenizer beside Hugging Face's tokenizers, one thread, CPU time.

  pip install tokenizers==0.23.3
  cmake -B build/bench -DCMAKE_BUILD_TYPE=Release -DKVASIR_BUILD_BENCH=ON && cmake --build build/bench --target tokenizer_speed
  bench/tokenizer_speed.py build/bench/bench/tokenizer_speed TOKENIZERS_DIR CORPUS.json.xz [--runs 4] [--only NAME]

TOKENIZERS_DIR holds NAME/tokenizer.json[.xz]; CORPUS is a list of {name, text}. The text is 4 MB of documents of about
4 kB: 70 % English prose, the rest the corpus' short texts (code, CJK, other scripts, digits, URLs). The two sides take
turns; the best and the worst of the runs are printed. The ids of both must be equal.
"""
import argparse
import glob
import json
import lzma
import os
import random
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer

KINDS = ("basic", "contractions", "cjk", "scripts", "code", "web", "math", "mixed", "digits")
ENGLISH = ("In the year 1878 I took my degree of Doctor of Medicine of the University of London, and proceeded to Netley to go "
           "through the course prescribed for surgeons in the army. Having completed my studies there, I was duly attached. ")


def documents(corpus, size):
    r = random.Random(1)
    short = [c["text"] for c in corpus if 20 <= len(c["text"]) <= 400 and c["name"].split("_")[0] in KINDS]
    words = ENGLISH.split()
    docs, total = [], 0
    while total < size:
        d, n = [], 0
        while n < 4000:
            t = " ".join(r.choice(words) for _ in range(r.randrange(20, 80))) + ".\n" if r.random() < 0.7 else r.choice(short) + "\n"
            d.append(t)
            n += len(t.encode("utf-8"))
        docs.append("".join(d))
        total += len(docs[-1].encode("utf-8"))
    return docs, total


def theirs(raw, docs):
    t0 = time.process_time()
    tk = Tokenizer.from_str(raw.decode("utf-8"))
    tk.no_padding()
    tk.no_truncation()
    t1 = time.process_time()
    ids = [tk.encode(d, add_special_tokens=False).ids for d in docs]
    t2 = time.process_time()
    for i in ids:
        tk.decode(i)
    return {"load_s": t1 - t0, "encode_s": t2 - t1, "decode_s": time.process_time() - t2, "ids": ids}


def ours(binary, path, docs):
    out = subprocess.run([binary, path], input=json.dumps(docs), capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("binary")
    p.add_argument("tokenizers")
    p.add_argument("corpus")
    p.add_argument("--runs", type=int, default=4)
    p.add_argument("--only")
    p.add_argument("--megabytes", type=float, default=4)
    a = p.parse_args()
    docs, total = documents(json.load(lzma.open(a.corpus)), int(a.megabytes * 1e6))
    print("%.1f MB in %d documents, %d runs each, in turns: best (worst)" % (total / 1e6, len(docs), a.runs))
    print("| tokenizer | encode MB/s, ours | theirs | x | decode MB/s, ours | theirs | load s, ours | theirs |")
    print("|---|---|---|---|---|---|---|---|")
    for path in sorted(glob.glob(os.path.join(a.tokenizers, "*", "tokenizer.json*"))):
        name = os.path.basename(os.path.dirname(path))
        if a.only and name != a.only:
            continue
        raw = lzma.open(path).read() if path.endswith(".xz") else open(path, "rb").read()
        with tempfile.NamedTemporaryFile(suffix=".json") as f:
            f.write(raw)
            f.flush()
            runs = [(ours(a.binary, f.name, docs), theirs(raw, docs)) for _ in range(a.runs)]
        assert all(o["ids"] == t["ids"] for o, t in runs), name + ": the ids differ"

        def rate(side, what):
            speeds = [total / 1e6 / run[side][what] for run in runs]
            return max(speeds), "%.1f (%.1f)" % (max(speeds), min(speeds))

        def load(side):
            return "%.2f" % min(run[side]["load_s"] for run in runs)

        print("| %s | %s | %s | %.0f | %s | %s | %s | %s |" % (
            name, rate(0, "encode_s")[1], rate(1, "encode_s")[1], rate(0, "encode_s")[0] / rate(1, "encode_s")[0],
            rate(0, "decode_s")[1], rate(1, "decode_s")[1], load(0), load(1)), flush=True)


if __name__ == "__main__":
    main()
