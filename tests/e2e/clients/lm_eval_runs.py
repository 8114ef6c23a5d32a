"""One lm-eval run over the tasks of lm_eval_tasks/, told as plain numbers and texts."""

import pathlib

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parents[1] / "data/models/llama-f32"
# Shorter than the longest text, so that loglikelihood_rolling has windows. lm-eval's API models take
# one token away for the answer and, in rolling, one more for the context.
WINDOW = 64
API_WINDOW = WINDOW + 2
SCORED = ["kvasir_choice", "kvasir_rolling"]
GENERATED = ["kvasir_generate"]


def evaluate(model, model_args, tasks, chat=False, gen_kwargs=None):
    """Runs `tasks` and returns {task: {"metrics": …, "answers": [one a document]}}."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    results = lm_eval.simple_evaluate(
        model=model, model_args=model_args, tasks=tasks, apply_chat_template=chat,
        gen_kwargs=gen_kwargs,
        task_manager=TaskManager(include_path=str(HERE / "lm_eval_tasks"), include_defaults=False),
        bootstrap_iters=0, log_samples=True)
    told = {}
    for task in tasks:
        samples = sorted(results["samples"][task], key=lambda sample: sample["doc_id"])
        told[task] = {
            "metrics": {name: value for name, value in results["results"][task].items()
                        if isinstance(value, float) and "stderr" not in name},
            "answers": [[plain(answer) for answer in sample["filtered_resps"]] for sample in samples],
        }
    return told


def plain(answer):
    """(log-likelihood, is greedy) as a list, a log-likelihood or a text as it is."""
    return list(answer) if isinstance(answer, (tuple, list)) else answer
