/**
 * `npm run fuzz -- [--seconds N] [--target NAME] [--seed N] [--save] [--replay HEX]`: all targets one after the other,
 * each for its part of the time. Prints what was run and what was found; ends with 1 when something was. `--save` adds
 * the inputs that have reached new code to the corpus. `--replay` runs one input, given in hexadecimal, on one target.
 */
import { parseArgs } from 'node:util';
import { systemRandom } from '../../src/system/system-random.js';
import { readCorpus, writeCorpus } from './corpus.js';
import { Coverage } from './coverage.js';
import { Engine, type Failure } from './engine.js';
import type { Fuzzer } from './fuzzer.js';
import { Watchdog } from './watchdog.js';

/** Of a target's inputs in the corpus: more would only make reading and running it longer. */
const CORPUS_MAX_COUNT = 150;

const { values: options } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    target: { type: 'string' },
    seed: { type: 'string' },
    save: { type: 'boolean', default: false },
    replay: { type: 'string' },
  },
});
const seed = options.seed === undefined ? systemRandom.u32() : Number(options.seed);
const coverage = new Coverage();
coverage.start();
// Only now: functions that have run before are seen as a whole only.
const { FUZZERS } = await import('./registry.js');
const chosen = FUZZERS.filter(({ name }) => options.target === undefined || name === options.target);
if (chosen.length === 0) {
  throw new Error(`no target ${options.target}; there are ${FUZZERS.map(({ name }) => name).join(', ')}`);
}

if (options.replay !== undefined) {
  const [fuzzer] = chosen as [Fuzzer];
  await fuzzer.run(Buffer.from(options.replay, 'hex'));
  await fuzzer.close?.();
  console.log(`${fuzzer.name}: nothing wrong with this input`);
} else {
  process.exitCode = (await fuzzAll()) === 0 ? 0 : 1;
}
coverage.stop();

/** Returns how many targets have failed. */
async function fuzzAll(): Promise<number> {
  console.log(`seed ${seed}`);
  const watchdog = new Watchdog(chosen.map(({ name }) => name));
  let [executions, failures] = [0, 0];
  for (const fuzzer of chosen) {
    const corpus = readCorpus(fuzzer);
    const engine = new Engine(fuzzer, { seed, coverage, watchdog, corpus });
    const outcome = await engine.run({ seconds: Number(options.seconds) / chosen.length });
    await fuzzer.close?.();
    executions += outcome.executions;
    const perSecond = Math.round(outcome.executions / outcome.seconds);
    const found = `corpus ${corpus.length} + ${outcome.found.length}`;
    console.log(
      `${fuzzer.name.padEnd(18)} ${String(outcome.executions).padStart(9)} executions ${String(perSecond).padStart(7)} /s  ${found}`,
    );
    if (options.save)
      writeCorpus(
        fuzzer,
        [...corpus, ...outcome.found.toSorted((a, b) => a.length - b.length)].slice(0, CORPUS_MAX_COUNT),
      );
    if (outcome.failure !== undefined) {
      failures++;
      report(fuzzer, outcome.failure);
    }
  }
  await watchdog.close();
  console.log(`${executions} executions, ${failures} of ${chosen.length} targets failed, seed ${seed}`);
  return failures;
}

function report({ name, form }: Fuzzer, { error, input }: Failure): void {
  console.log(`  ${error instanceof Error ? error.stack : String(error)}`);
  if (form === 'value') console.log(`  input: ${input.toString()}`);
  console.log(`  replay: npm run fuzz -- --target ${name} --replay ${input.toString('hex')}`);
}
