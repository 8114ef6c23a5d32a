"""Writes lm_eval_expected.json: what lm-eval's `hf` backend gives on the tiny model.

Needs torch, which no test does: pip install torch transformers accelerate 'lm-eval[api]'
"""

import json

import lm_eval_runs as runs


def main():
    arguments = {"pretrained": str(runs.MODEL), "dtype": "float32", "device": "cpu",
                 "max_length": runs.WINDOW, "add_bos_token": False, "batch_size": 1}
    longer = {**arguments, "max_length": 512}
    expected = {
        "scored": runs.evaluate("hf", arguments, runs.SCORED),
        "generated": runs.evaluate("hf", longer, runs.GENERATED),
        "chat": runs.evaluate("hf", longer, runs.GENERATED, chat=True),
    }
    path = runs.HERE / "lm_eval_expected.json"
    path.write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
