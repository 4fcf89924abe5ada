/**
 * `hold FOLDER NODE`: says `held`, or why not, and then keeps it until it is told to end, or its input ends. `forget
 * FOLDER NODE`: takes the lock and has nothing more to do. `churn FOLDER LOG`: takes it and gives it back over and
 * over; each time two lines of the log.
 */
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { DirectoryLock } from '../../../src/disk/folder/directory-lock.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';

const env = systemEnvironment();

const [what, folder = '', argument = ''] = process.argv.slice(2);

if (what === 'churn') {
  for (let turn = 0; ; turn++) {
    const nodeId = `${process.pid}/${turn}`;
    const lock = await DirectoryLock.acquire(folder, { nodeId, env }).catch(() => null);
    if (lock === null) continue;
    appendFileSync(argument, `enter ${nodeId}\n`);
    await sleep(turn % 4);
    appendFileSync(argument, `leave ${nodeId}\n`);
    await lock.release();
  }
}

try {
  const lock = await DirectoryLock.acquire(folder, { nodeId: argument, env });
  console.log('held');
  if (what === 'hold') process.stdin.resume().on('end', () => void lock.release());
} catch (error) {
  console.log((error as Error).message);
}
