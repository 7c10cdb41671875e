"""TRL: credit of `crbc annotate --emit trl` as (B, T) advantages, several turns a completion.

In a subclass of GRPOTrainer, whose loss takes advantages per token as well as per completion:

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        ...                                   # the log hook, then crbc annotate --emit trl
        output["advantages"] = load_advantages(PATH, FILE, output)
        return output

Row i of the output is row i of the log. The numbers are final: nothing is normalised again.
"""

from typing import Any

import pyarrow.parquet as pq


def load_advantages(
    path: str, file: str, output: dict[str, Any], *, mask_null: bool = False
) -> Any:
    """Float32 advantages [B, T] on the completion mask's device, 0 outside the model's tokens.

    A completion with tokens that `file` does not hold is a KeyError. Null credit becomes 0; with
    `mask_null` its tokens leave `output["completion_mask"]` and thereby the loss.
    """
    steps: dict[int, list[Any]] = {}
    for row in pq.read_table(path, filters=[("file", "==", file)]).to_pylist():
        start, length = row.get("response_start"), row.get("response_len")
        span = slice(None) if start is None else slice(start, start + length)
        steps.setdefault(row["row"], []).append((span, row["advantage"]))
    mask = (output["completion_mask"] * output.get("tool_mask", 1)).float()
    advantages = mask * 0
    for i, tokens in enumerate(mask):
        if not tokens.any():
            steps.setdefault(i, [])
        for span, value in steps[i]:
            advantages[i, span] = tokens[span] * (value or 0.0)
            if value is None and mask_null:
                output["completion_mask"][i, span] = 0
    for i, row in enumerate(advantages.tolist()):
        meant = {value or 0.0 for _, value in steps[i]} - {0.0}
        assert set(row) - {0.0} == meant, f"distinct credits of completion {i} got lost: no token"
    return advantages
