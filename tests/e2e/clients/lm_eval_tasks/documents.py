"""The documents of the three tasks, in code: nothing is fetched."""

import datasets

CHOICES = [
    ("The sky on a clear day is", [" blue", " made of cheese", " under the sea"], 0),
    ("Two and two make", [" five hundred", " four", " a"], 1),
    ("A cat is an", [" animal", " equation in two unknowns", " idea"], 0),
    ("Water at one hundred degrees", [" sleeps.", " boils.", " sings a very long song of the sea."], 1),
    ("Größe heißt auf Englisch", [" size", " naïve café", " 東京"], 0),
    ("x", [" y", "y", "\n"], 2),
]
TEXTS = [
    "A short line.",
    "The quick brown fox jumps over the lazy dog, and the dog, which is lazy, lets it; so the fox "
    "jumps again, and again, until the sun goes down over the field and both of them sleep.",
    "Ünïcödé — naïve café, 東京, 🙂 — and a line\nthat breaks\n\ntwice.",
]
PROMPTS = [
    "Once upon a time",
    "def add(a, b):\n    return",
    "Der schnelle braune Fuchs",
    "1, 2, 3,",
    "What is the capital of France?",
]


def _set(rows):
    return {"test": datasets.Dataset.from_list(rows)}


def choices(**_):
    return _set([{"context": context, "choices": list(choices_), "answer": answer}
                 for context, choices_, answer in CHOICES])


def texts(**_):
    return _set([{"text": text} for text in TEXTS])


def prompts(**_):
    return _set([{"prompt": prompt, "answer": ""} for prompt in PROMPTS])
