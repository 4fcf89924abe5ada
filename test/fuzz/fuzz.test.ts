import test from 'ava';
import { systemRandom } from '../../src/system/system-random.js';
import { readCorpus } from './corpus.js';
import { Coverage } from './coverage.js';
import { Engine, type Failure } from './engine.js';
import type { Fuzzer } from './fuzzer.js';
import { Watchdog } from './watchdog.js';

/** For all targets together, however many there are; longer runs are `npm run fuzz`. */
const SECONDS_IN_ALL = 30;
/** The canaries must be found within this time, however short the others are. */
const CANARY_SECONDS = 60;
const seed = Number(process.env.MESHCACHE_SEED ?? systemRandom.u32());

const coverage = new Coverage();
coverage.start();
// Only now: functions that have run before are seen as a whole only.
const { FUZZERS } = await import('./registry.js');
const { CANARIES } = await import('./canaries.js');
/** For each target. */
const SECONDS = Number(process.env.MESHCACHE_FUZZ_SECONDS ?? SECONDS_IN_ALL / FUZZERS.length);
const watchdog = new Watchdog([...FUZZERS, ...CANARIES].map(({ name }) => name));
test.after.always(async () => {
  coverage.stop();
  await watchdog.close();
});

function describe({ name }: Fuzzer, { error, input }: Failure): string {
  const text = error instanceof Error ? error.stack : String(error);
  return `${text}\nseed ${seed}; npm run fuzz -- --target ${name} --replay ${input.toString('hex')}`;
}

for (const fuzzer of FUZZERS) {
  // One at a time: coverage and allocations are those of the process.
  test.serial(`fuzz: smoke: the corpus of ${fuzzer.name} still holds`, async (t) => {
    const { executions, failure } = await new Engine(fuzzer, { seed, watchdog, corpus: readCorpus(fuzzer) }).run({
      seconds: 0,
    });
    t.is(failure && describe(fuzzer, failure), undefined);
    t.true(executions > 0);
    await fuzzer.close?.();
  });

  test.serial(`fuzz: ${fuzzer.name}: ${fuzzer.what}`, async (t) => {
    const engine = new Engine(fuzzer, { seed, coverage, watchdog, corpus: readCorpus(fuzzer) });
    const { executions, found, failure } = await engine.run({ seconds: SECONDS });
    t.log(`${executions} executions, ${found.length} inputs reached new code, MESHCACHE_SEED=${seed}`);
    t.is(failure && describe(fuzzer, failure), undefined);
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
