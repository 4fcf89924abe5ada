import test from 'ava';
import { systemRandom } from '../../src/system/system-random.js';
import { readCorpus } from './corpus.js';
import { Coverage } from './coverage.js';
import { Engine, type Failure } from './engine.js';
import type { Fuzzer } from './fuzzer.js';
import { Watchdog } from './watchdog.js';

/** The same inputs at each run, so that a test fails only for what has changed; `npm run fuzz` looks for new ones. */
const SEED = 1;
/** Inputs of each target, made from its seeds and its corpus; fewer on a machine that is too slow for them. */
const EXECUTIONS = 3_000;
const MAX_SECONDS = 5;
/** The canaries must be found within this time, however short the others are. */
const CANARY_SECONDS = 60;
/** Of the canaries, which any seed must find. */
const seed = Number(process.env.MESHCACHE_SEED ?? systemRandom.u32());

const coverage = new Coverage();
coverage.start();
// Only now: functions that have run before are seen as a whole only.
const { FUZZERS } = await import('./registry.js');
const { CANARIES } = await import('./canaries.js');
const watchdog = new Watchdog([...FUZZERS, ...CANARIES].map(({ name }) => name));
test.after.always(async () => {
  coverage.stop();
  await watchdog.close();
});

function describe({ name }: Fuzzer, { error, input }: Failure): string {
  const text = error instanceof Error ? error.stack : String(error);
  return `${text}\nnpm run fuzz -- --target ${name} --replay ${input.toString('hex')}`;
}

for (const fuzzer of FUZZERS) {
  // One at a time: allocations are those of the process.
  test.serial(`fuzz: ${fuzzer.name}: ${fuzzer.what}`, async (t) => {
    const engine = new Engine(fuzzer, { seed: SEED, watchdog, corpus: readCorpus(fuzzer) });
    const { executions, failure } = await engine.run({ seconds: MAX_SECONDS, executions: EXECUTIONS });
    t.log(`${executions} executions`);
    t.is(failure && describe(fuzzer, failure), undefined);
    t.true(executions > 0);
    await fuzzer.close?.();
  });
}

for (const canary of CANARIES) {
  test.serial(`fuzz: canary: ${canary.what} is found`, async (t) => {
    const outcome = await new Engine(canary, { seed, coverage, watchdog }).run({ seconds: CANARY_SECONDS });
    const { executions, failure } = outcome;
    t.log(`${executions} executions, ${failure?.input.toString('hex')}, MESHCACHE_SEED=${seed}`);
    t.truthy(failure, `not found in ${executions} executions, seed ${seed}`);
  });
}
