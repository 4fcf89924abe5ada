// The engine and the addon's other native parts under AddressSanitizer (with undefined behaviour) and ThreadSanitizer,
// against the fault-injecting fake in native/tests: `node test/native/run-sanitizers.mjs [seed]`. Needs cmake, g++ and
// libibverbs' and librdmacm's headers; no RDMA. The seed is printed; the same one draws the same faults.
import { execFileSync, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const CYCLES = 100_000;
// ThreadSanitizer of GCC 12 cannot place its shadow when addresses are more random than this.
const THREAD_SANITIZER_RANDOM_BITS_MAX = 28;

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const seed = process.argv[2] ?? String(Math.floor(Math.random() * 2 ** 32));

function build(sanitizer) {
  const folder = join(root, 'build/native-tests', sanitizer);
  execFileSync('cmake', ['-S', join(root, 'native/tests'), '-B', folder, `-DSANITIZE=${sanitizer}`], {
    stdio: 'ignore',
  });
  execFileSync('cmake', ['--build', folder, '--parallel', String(availableParallelism())], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  return join(folder, 'engine_test');
}

function randomBits() {
  try {
    return Number(readFileSync('/proc/sys/vm/mmap_rnd_bits', 'utf8'));
  } catch {
    return 0;
  }
}

/** Resolves to whether it passed; its output is printed in one piece. */
function run(title, command, args) {
  return new Promise((resolve) => {
    const started = Date.now();
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const output = [];
    child.stdout.on('data', (chunk) => output.push(chunk));
    child.stderr.on('data', (chunk) => output.push(chunk));
    child.on('error', (error) => output.push(Buffer.from(String(error))));
    child.on('close', (code, signal) => {
      console.log(
        `\n${title}: ${code === 0 ? 'passed' : `FAILED (${signal ?? `exit code ${code}`})`} in ${(Date.now() - started) / 1000} s`,
      );
      console.log(Buffer.concat(output).toString());
      resolve(code === 0);
    });
  });
}

const address = build('address');
const thread = build('thread');
const wrapper = randomBits() > THREAD_SANITIZER_RANDOM_BITS_MAX ? ['setarch', '-R', thread] : [thread];
const passed = await Promise.all([
  (async () => [
    await run('AddressSanitizer', address, ['--seed', seed]),
    await run(`AddressSanitizer, ${CYCLES} connections`, address, ['--seed', seed, '--cycles', String(CYCLES)]),
  ])(),
  run('ThreadSanitizer', wrapper[0], [...wrapper.slice(1), '--seed', seed]),
]);
process.exitCode = passed.flat().every(Boolean) ? 0 : 1;
