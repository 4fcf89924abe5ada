/*
 * The RDMA tests, in a virtual machine with Soft-RoCE devices, and those with two such machines; or any command in one:
 *   node build/test/rdma-vm-run.js [--exec COMMAND] [--memory-mib 4096] [TEST_FILE_NAME...]
 * Ends with status 0 when all is well, and all tests have run; with the command's own one after --exec.
 */
import { spawn } from 'node:child_process';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { projectFolder, startMachine } from './machines.js';
import { type Summary, tapSummary } from './tap-summary.js';

const EXEC_TIMEOUT_MS = 1_200_000;

const testFolder = fileURLToPath(new URL('.', import.meta.url));
const AVA = ['node_modules/ava/entrypoints/cli.mjs', '--tap', ...['--config', 'test/rdma-vm/ava.config.js']] as const;

/** Runs a shell command in a machine of its own, showing what it writes. */
async function execute(command: string, options: { folder: string; memoryMiB: number }) {
  const machine = await startMachine({ memoryMiB: options.memoryMiB });
  try {
    const onOutput = (text: string) => process.stdout.write(text);
    return await machine.exec(`cd ${quoted(options.folder)}\n${command}`, { timeoutMs: EXEC_TIMEOUT_MS, onOutput });
  } finally {
    await machine.close();
  }
}

/** Tests that use the devices of the machine that they run on. */
async function testInMachine(memoryMiB: number, files: string): Promise<Summary> {
  const command = `MESHCACHE_TEST_FILES=${quoted(files)} ${quoted(process.execPath)} ${AVA.map(quoted).join(' ')}`;
  const { status, output } = await execute(command, { folder: projectFolder, memoryMiB });
  return judged('in the virtual machine', status, tapSummary(output));
}

/** Tests that start machines themselves. */
async function testMachines(files: string): Promise<Summary> {
  const env = { ...process.env, MESHCACHE_TEST_FILES: files, MESHCACHE_TEST_MACHINES: '1' };
  const child = spawn(process.execPath, AVA, { cwd: projectFolder, env, stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk;
    process.stdout.write(chunk);
  });
  const status = await new Promise<number>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => resolve(code ?? 1));
  });
  return judged('with two virtual machines', status, tapSummary(output));
}

/** A run that says that it failed, skipped or ran nothing did not do what it is for. */
function judged(where: string, status: number, summary: Summary): Summary {
  const { passed, failed, skipped } = summary;
  console.log(`# ${where}: ${passed} passed, ${failed} failed, ${skipped} skipped`);
  const isWell = status === 0 && failed === 0 && skipped === 0 && passed > 0;
  return isWell ? summary : { ...summary, failed: Math.max(failed, 1) };
}

async function test(memoryMiB: number, names: readonly string[]): Promise<number> {
  const startedMs = performance.now();
  const pattern = (stem: string): string => `${testFolder.slice(projectFolder.length)}${stem}`;
  const summaries: Summary[] = [];
  if (names.length === 0) {
    summaries.push(await testInMachine(memoryMiB, `${pattern('rdma-*.test.js')} !${pattern('rdma-vm-*')}`));
    summaries.push(await testMachines(pattern('rdma-vm-*.test.js')));
  }
  for (const name of names.map((each) => basename(each))) {
    const run = name.startsWith('rdma-vm-') ? testMachines(pattern(name)) : testInMachine(memoryMiB, pattern(name));
    summaries.push(await run);
  }
  const sum = (pick: (summary: Summary) => number): number => summaries.reduce((total, each) => total + pick(each), 0);
  const [passed, failed, skipped] = [sum((s) => s.passed), sum((s) => s.failed), sum((s) => s.skipped)];
  const seconds = Math.round((performance.now() - startedMs) / 1000);
  console.log(`rdma: ${passed} passed, ${failed} failed, ${skipped} skipped in ${seconds} s`);
  return failed === 0 ? 0 : 1;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { exec: { type: 'string' }, 'memory-mib': { type: 'string', default: '4096' } },
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(1));
const memoryMiB = Number(values['memory-mib']);
process.exitCode =
  values.exec === undefined
    ? await test(memoryMiB, positionals)
    : (await execute(values.exec, { folder: process.cwd(), memoryMiB })).status;
