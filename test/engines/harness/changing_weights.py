"""A long test of engines whose weights change in place: what they answer is what their weights of then compute, never what was stored before."""

from __future__ import annotations

import random
import unittest
from collections.abc import Callable
from typing import Any

from harness.long_runs import PROMPTS, SEED

#: Tokens of a prompt: longer than what SGLang asks its storage for at the least.
PROMPT_TOKENS = 448
FIRST_TOKEN, END_TOKEN = 3, 32_000

#: An answer that can be compared, and how many tokens of the prompt were not computed.
Answer = tuple[Any, int]


def prompts_of_all_prefixes(seed: int, count: int) -> list[list[int]]:
    """Prompts that begin as the first one does, for no token, for all of them, and for all lengths between."""
    chance = random.Random(seed)
    tokens = [chance.randrange(FIRST_TOKEN, END_TOKEN) for _ in range(PROMPT_TOKENS)]
    prompts = []
    for number in range(count):
        common = round(number / max(1, count - 1) * PROMPT_TOKENS)
        prompts.append(tokens[:common] + [chance.randrange(FIRST_TOKEN, END_TOKEN) for _ in tokens[common:]])
    return prompts


class AnswersOfNow(unittest.TestCase):
    """Subclasses ask two engines with a cache in common, and one without any."""

    def check_answers(
        self, state: str, cached: list[Callable[[list[int]], Answer]], computed: Callable[[list[int]], Answer]
    ) -> list[Any]:
        """Asks each prompt of one of the engines, in turn, and compares; what is not equal to the computed answer is a failure."""
        print(f"seed {SEED}: {state}", flush=True)
        answers, tokens = [], 0
        for number, prompt in enumerate(prompts_of_all_prefixes(SEED, PROMPTS)):
            answer, found = cached[number % len(cached)](prompt)
            expected, _ = computed(prompt)
            self.assertTrue(self.is_same(answer, expected), f"seed {SEED}, {state}, prompt {number}: {found} tokens")
            answers.append(answer)
            tokens += found
        print(f"{state}: {len(answers)} answers as computed, {tokens} tokens of them from a cache", flush=True)
        self.assertGreater(tokens, 0, f"{state}: no cache was at work")
        return answers

    def assert_differ(self, before: list[Any], after: list[Any]) -> None:
        """Without this the change of the weights shows nothing."""
        same = sum(self.is_same(a, b) for a, b in zip(before, after))
        self.assertLess(same, len(before) / 2, "the change of the weights changes too few answers")

    def is_same(self, one: Any, other: Any) -> bool:
        """Whether two answers were computed from one prompt with the same weights."""
        return bool(one == other)
