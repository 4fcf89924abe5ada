"""A long test of engines whose weights change in place: what they answer is what their weights of then compute, never what was stored before."""

from __future__ import annotations

import random
import unittest
from collections.abc import Callable
from typing import Any

from harness.long_runs import PROMPTS, SEED, common_lengths

#: Tokens of a prompt: longer than what SGLang asks its storage for at the least.
PROMPT_TOKENS = 448
FIRST_TOKEN, END_TOKEN = 3, 32_000

#: An answer that can be compared, and how many tokens of the prompt were not computed.
Answer = tuple[Any, int]
Ask = Callable[[list[int]], Answer]


def prompts_of_all_prefixes(chance: random.Random, count: int) -> list[list[int]]:
    """Prompts in any order that begin alike: with no token in common, with all, and with all lengths between."""
    tokens = [chance.randrange(FIRST_TOKEN, END_TOKEN) for _ in range(PROMPT_TOKENS)]
    prompts = [
        tokens[:common] + [chance.randrange(FIRST_TOKEN, END_TOKEN) for _ in tokens[common:]]
        for common in common_lengths(count, PROMPT_TOKENS)
    ]
    chance.shuffle(prompts)
    return prompts


class ChangingWeights(unittest.TestCase):
    """Subclasses ask two engines with a cache in common, and one without any, and change their weights between the parts."""

    PARTS = 4

    def setUp(self) -> None:
        print(f"seed {SEED}", flush=True)
        prompts = prompts_of_all_prefixes(random.Random(SEED), PROMPTS)
        size = -(-len(prompts) // self.PARTS)
        self._parts = [prompts[at : at + size] for at in range(0, len(prompts), size)]
        self._before: Any = None

    def ask_part(self, state: str, cached: list[Ask], computed: Ask) -> None:
        """Asks the next part of the prompts, each of one of the engines in turn: every answer must be the computed one."""
        prompts = self._parts.pop(0)
        self._have_changed(computed)
        tokens = 0
        for number, prompt in enumerate(prompts):
            answer, found = cached[number % len(cached)](prompt)
            expected, _ = computed(prompt)
            self.assertTrue(self.is_same(answer, expected), f"seed {SEED}, {state}, prompt {number}: {found} tokens")
            tokens += found
        print(f"{state}: {len(prompts)} answers as computed, {tokens} tokens of prompts from a cache", flush=True)
        self.assertGreater(tokens, 0, f"{state}: no cache was at work")

    def _have_changed(self, computed: Ask) -> None:
        """Without other answers, the change of the weights would show nothing."""
        answer, _ = computed(prompts_of_all_prefixes(random.Random(SEED), 1)[0])
        self.assertFalse(self._before is not None and self.is_same(self._before, answer))
        self._before = answer

    def is_same(self, one: Any, other: Any) -> bool:
        """Whether two answers were computed from one prompt with the same weights."""
        return bool(one == other)
