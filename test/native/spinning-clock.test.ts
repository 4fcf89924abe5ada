import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { availableParallelism } from 'node:os';
import { performance } from 'node:perf_hooks';
import test from 'ava';
import { spinningClock } from '../../src/native/spinning-clock.js';
import { systemClock } from '../../src/system/system-clock.js';
import { addon, serialWithAddon } from '../_support/native/addon.js';
import { listenAlone } from '../_support/support.js';

const SPIN_US = 1_000;
const spins = availableParallelism() > 1;

test.serial('without a time to spin it is the clock of the system', (t) => {
  t.is(spinningClock(0), systemClock);
});

serialWithAddon(
  'after a word that input is expected, the thread is busy for the whole time, and only then sleeps',
  async (t) => {
    const clock = spinningClock(SPIN_US);
    if (!spins) return t.is(clock, systemClock);
    const busyMs = async (expects: boolean): Promise<number> => {
      const before = performance.eventLoopUtilization();
      if (expects) clock.expectInput?.();
      await new Promise((resolve) => setTimeout(resolve, 20));
      return performance.eventLoopUtilization(before).active;
    };
    // A time in which another process has taken the processor ends early.
    let tries = 0;
    while ((await busyMs(true)) < SPIN_US / 1000) if (++tries === 100) return t.fail('it slept each time');
    // Nothing goes on afterwards, whatever was expected before: no immediate is left that keeps the loop awake.
    t.false(process.getActiveResourcesInfo().includes('Immediate'));
  },
);

serialWithAddon('repeated words make one look at a time', async (t) => {
  const clock = spinningClock(SPIN_US);
  if (!spins) return t.is(clock, systemClock);
  for (let i = 0; i < 100; i++) clock.expectInput?.();
  t.is(process.getActiveResourcesInfo().filter((name) => name === 'Immediate').length, 1);
  await new Promise((resolve) => setTimeout(resolve, 20));
  t.false(process.getActiveResourcesInfo().includes('Immediate'));
});

serialWithAddon('after it looked in vain, it sleeps at once for a while', async (t) => {
  const clock = spinningClock(SPIN_US);
  if (!spins) return t.is(clock, systemClock);
  const isSpinning = () => process.getActiveResourcesInfo().includes('Immediate');
  for (let tries = 0; tries < 100; tries++) {
    clock.expectInput?.();
    while (isSpinning()) await new Promise((resolve) => setTimeout(resolve, 0));
    clock.expectInput?.();
    if (!isSpinning()) return t.pass();
  }
  return t.fail('it looked each time');
});

serialWithAddon('a look ends when there is input, and else when its time is over', async (t) => {
  for (const us of [0, 200]) t.is(typeof addon.waitForInput(us), 'boolean');
  const server = createServer();
  const port = await listenAlone(server);
  const accepted = once(server, 'connection');
  const socket = connect(port, '127.0.0.1');
  const [[served]] = (await Promise.all([accepted, once(socket, 'connect')])) as [[Socket], unknown];
  served.resume();
  // A first exchange, so that the loop watches the connection.
  socket.write('input');
  await once(served, 'data');
  socket.write('input');
  const seen = addon.waitForInput(10_000);
  served.destroy();
  socket.destroy();
  server.close();
  t.true(seen);
  t.throws(() => addon.waitForInput(10_001), { message: /at most 10000/ });
});
