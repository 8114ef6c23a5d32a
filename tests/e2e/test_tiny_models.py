"""Every dense tiny model through HTTP: logprobs and greedy tokens against HF transformers."""

import json

import pytest
from conftest import TINY, Server, run_cli

FOLDERS = sorted(path.parent for path in TINY.glob("**/expected.json"))
# Quantized weights on fast kernels see int8 activations; reference kernels see floats.
FLOAT_TOLERANCE = 2e-3
GREEDY_MARGIN = 0.01

# Rope scalings that depend on the whole sequence's length agree with transformers where these say
# (docs/models.md): folder -> [(flags, shortest prompt, longest prompt and continuation)].
LENGTHS = {
    "llama-rope-dynamic": [(["--max-model-len", 64], 1, 64)],
    "phi3-longrope": [(["--max-model-len", 96], 1, 96), ([], 97, 512)],
}


def settings():
    for folder in FOLDERS:
        name = str(folder.relative_to(TINY))
        for i, setting in enumerate(LENGTHS.get(name, [([], 1, 512)])):
            yield pytest.param(folder, *setting, id=f"{name}-{i}" if i else name)


def model_of(folder):
    gguf = folder / "model.gguf"
    return gguf if gguf.exists() else folder


@pytest.mark.parametrize("folder,flags,prompt_min,total_max", list(settings()))
def test_against_transformers(folder, flags, prompt_min, total_max):
    expected = json.loads((folder / "expected.json").read_text())
    cases_run = 0
    with Server(model_of(folder), "--kernels", "ref", "--kv-cache-dtype", "f32",
                "--kv-cache-memory-bytes", "64MiB", *flags) as server:
        for case in expected["cases"]:
            ids = case["prompt_ids"]
            greedy = case.get("greedy")
            length = len(ids) + (len(greedy["ids"]) if greedy else 1)
            if len(ids) < prompt_min or length > total_max:
                continue
            cases_run += 1
            answer = server.complete(ids, max_tokens=len(greedy["ids"]) if greedy else 1,
                                     temperature=0, echo=True, logprobs=1, ignore_eos=True,
                                     return_token_ids=True)
            logprobs = answer["choices"][0]["logprobs"]["token_logprobs"]
            assert logprobs[0] is None
            got = logprobs[1:len(ids)]
            assert len(got) == len(case["prompt_logprobs"])
            worst = max((abs(a - b) for a, b in zip(got, case["prompt_logprobs"])), default=0)
            assert worst < FLOAT_TOLERANCE, (case.get("name"), worst)
            if not greedy:
                continue
            tokens = answer["choices"][0]["token_ids"]
            for i, (token, logprob, margin) in enumerate(
                    zip(greedy["ids"], greedy["logprobs"], greedy["margins"])):
                if margin < GREEDY_MARGIN:
                    break
                assert tokens[i] == token, (case.get("name"), i)
                assert abs(logprobs[len(ids) + i] - logprob) < FLOAT_TOLERANCE
    assert cases_run > 0


def test_text_tokenizes_as_expected():
    folder = TINY / "llama"
    case = next(c for c in json.loads((folder / "expected.json").read_text())["cases"] if "text" in c)
    shown = run_cli("tokenize", folder, case["text"], "--ids")
    assert json.loads(shown.stdout) == case["prompt_ids"]
