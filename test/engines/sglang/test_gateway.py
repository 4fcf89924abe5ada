"""The guide for gateways names pages as SGLang does."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import unittest
from pathlib import Path

import lab  # noqa: F401  # imports SGLang as the other tests do
from harness.suites import ROOT
from meshcache.sglang import framework

#: Of the guide.
PAGE_TOKENS = 4
#: With MESHCACHE_TEST_SEED a run is repeated.
SEED = int(os.environ.get("MESHCACHE_TEST_SEED", random.randrange(1 << 32)))


def keys_of_the_guide(tokens: list[int]) -> list[str]:
    guide = Path(ROOT, "docs", "guides", "gateway.md").read_text(encoding="utf8")
    (module,) = re.findall(r"^`keys\.mjs`:\n\n```js\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    program = f"{module}\nconsole.log(JSON.stringify(keysOf({tokens})));"
    command = ["node", "--input-type=module", "--eval", program]
    return list(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


@unittest.skipUnless(framework.names_pages(), "skipped: this SGLang has no function that names pages")
class Gateway(unittest.TestCase):
    def test_the_keys_of_a_prompt_are_those_of_sglang(self) -> None:
        chance = random.Random(SEED)
        for length in (0, 3, 4, 9, 400):
            tokens = [chance.randrange(1 << 31) for _ in range(length)]
            theirs = framework.page_keys(tokens, None, None, page_size=PAGE_TOKENS, is_bigram=False)
            self.assertEqual(keys_of_the_guide(tokens), theirs, f"seed {SEED}")
            self.assertEqual(len(theirs), length // PAGE_TOKENS)


if __name__ == "__main__":
    unittest.main()
