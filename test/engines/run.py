"""Runs the tests with real engines: `npm run test:engines -- [--only NAME] [--nightly] [--install] [--resolve NAME]`."""

from __future__ import annotations

import argparse
import os
import sys
import time

from harness.environments import ENVIRONMENTS, is_installed, registry_problem, resolve, timed_install
from harness.model import make_model
from harness.suites import OF_ENGINE, ROOT, Step, run_engine


def main() -> int:
    options = arguments()
    if options.resolve:
        resolve(ENVIRONMENTS[options.resolve])
        return 0
    if not (ROOT / "build" / "dist" / "cli.js").exists():
        print("build/dist is missing: run npm run build", file=sys.stderr)
        return 2
    missing = [name for name in wanted(options.only) if not is_installed(ENVIRONMENTS[name])]
    problem = registry_problem() if missing else None
    if problem:
        print(f"SKIPPED: tests with real engines; {', '.join(missing)} cannot be installed: {problem}")
        return 1 if os.environ.get("MESHCACHE_TEST_ENGINES") == "required" else 0
    began = time.monotonic()
    steps = install_all() if options.install else []
    for engine in [] if options.install else OF_ENGINE:
        if not options.only or engine in options.only or set(OF_ENGINE[engine]) & set(options.only):
            steps += run_engine(engine, options.only, options.nightly)
    print(summary(steps, time.monotonic() - began))
    return 1 if any(step.result.startswith("failed") for step in steps) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="npm run test:engines --")
    names = [*OF_ENGINE, *ENVIRONMENTS]
    parser.add_argument("--only", action="append", choices=names, default=[], help="an engine, or one environment")
    parser.add_argument("--nightly", action="store_true", help="the long tests instead of those of CI")
    parser.add_argument("--install", action="store_true", help="install environments and model, and print their paths")
    parser.add_argument("--resolve", choices=list(ENVIRONMENTS), help="make the list of an environment's packages anew")
    return parser.parse_args()


def wanted(only: list[str]) -> list[str]:
    """The environments that these engines and environments mean; all, if none is named."""
    if not only:
        return list(ENVIRONMENTS)
    of_engines = {name for engine in only for name in OF_ENGINE.get(engine, ())}
    return [name for name in ENVIRONMENTS if name in of_engines or name in only]


def install_all() -> list[Step]:
    steps = []
    for environment in ENVIRONMENTS.values():
        python, seconds = timed_install(environment)
        steps.append(Step(f"{environment.name} {python}", seconds, "ok"))
    began = time.monotonic()
    steps.append(Step(f"model {make_model()}", time.monotonic() - began, "ok"))
    return steps


def summary(steps: list[Step], seconds: float) -> str:
    width = max((len(step.name) for step in steps), default=0)
    rows = [f"{step.name:{width}}  {step.seconds:6.1f} s  {step.result}" for step in steps]
    return "\n".join(["", *rows, f"{'all':{width}}  {seconds:6.1f} s"])


if __name__ == "__main__":
    sys.exit(main())
