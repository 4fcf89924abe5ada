import test from 'ava';
import { type Connection, listenAt } from '../../../src/base/environment/network.js';
import { applyFault, FAULT_KINDS, type Fault, type FaultKind, scheduleFaults } from '../../../src/sim/world/faults.js';
import { forkedRandom } from '../../../src/sim/world/kernel/seeds.js';
import type { SimProcess } from '../../../src/sim/world/sim-process.js';
import { World } from '../../../src/sim/world/world.js';
import { randomFaults } from '../../_support/sim/world/random-faults.js';

const PORT = 1000;
const NAMES = ['a', 'b', 'c'];

/** Three hosts whose programs send each other a number every 100 ms, and write it to disk; and what they have seen. */
function begin(seed = 1) {
  const world = new World({ seed });
  const heard = new Map<string, number>();
  const troubles: string[] = [];
  const boot = async (process: SimProcess): Promise<void> => {
    const { clock, network, files } = process.environment;
    const { name } = process;
    const fails = (error: NodeJS.ErrnoException): void => void troubles.push(`${name} ${error.code}`);
    const server = network.createServer({}, (connection) => {
      connection.on('error', fails);
      connection.on('data', (bytes) => {
        const key = `${bytes.toString().at(-1)} to ${name}`;
        heard.set(key, (heard.get(key) ?? 0) + 1);
      });
    });
    await listenAt(server, { host: '0.0.0.0', port: PORT }, () => {});
    const connections = new Map<string, Connection>();
    for (;;) {
      await new Promise<void>((resolve) => clock.after(100, resolve));
      for (const peer of NAMES.filter((other) => other !== name)) {
        let connection = connections.get(peer);
        if (connection === undefined || connection.destroyed) {
          connection = network.connect({ host: peer, port: PORT });
          connection.on('error', fails);
          connections.set(peer, connection);
        }
        connection.write(Buffer.from(name.repeat(13)));
      }
      await files.writeFile('/state', String(world.nowMs)).catch(fails);
      await files.readFile('/state').catch(fails);
    }
  };
  for (const name of NAMES) world.host({ name, boot, rack: name === 'c' ? 'second' : 'first' }).boot();
  const count = (from: string, to: string): number => heard.get(`${from} to ${to}`) ?? 0;
  /** Who heard whom within so much time. */
  const hears = async (ms: number): Promise<string[]> => {
    const before = new Map(heard);
    await world.runFor(ms);
    return [...heard]
      .filter(([key, value]) => value > (before.get(key) ?? 0))
      .map(([key]) => key.replace(' to ', ''))
      .sort();
  };
  return { world, heard, troubles, count, hears };
}

const ALL = ['ab', 'ac', 'ba', 'bc', 'ca', 'cb'];

/** Who still hears whom during a fault of host a, whatever else becomes of it. */
const HEARD: Readonly<Partial<Record<FaultKind, readonly string[]>>> = {
  kill: ['bc', 'cb'],
  crash: ['bc', 'cb'],
  replace: ['bc', 'cb'],
  stop: ['bc', 'cb'],
  freeze: ['bc', 'cb'],
  sleep: ['bc', 'cb'],
  partition: ['bc', 'cb'],
  deaf: ['bc', 'cb'],
  mute: ['bc', 'cb'],
  stall: ['bc', 'cb'],
};

for (const kind of Object.keys(FAULT_KINDS) as FaultKind[]) {
  test.serial(`faults: ${kind} has its effect, and is over at its end`, async (t) => {
    const { world, hears } = begin();
    t.deepEqual(await hears(2_000), ALL);
    const fault: Fault = { atMs: world.nowMs, kind, targets: ['a'], durationMs: 5_000 };
    applyFault(world, JSON.parse(JSON.stringify(fault)));
    await world.runFor(1_000);
    const expected = HEARD[kind];
    const heard = await hears(3_500);
    // What was sent before a one-way fault may still be acknowledged, but nothing new gets through.
    if (kind === 'deaf')
      t.deepEqual(
        heard.filter((pair) => pair[1] === 'a'),
        [],
      );
    else if (kind === 'mute')
      t.deepEqual(
        heard.filter((pair) => pair[0] === 'a'),
        [],
      );
    else t.deepEqual(heard, expected ?? ALL);
    await world.runFor(30_000);
    t.deepEqual(await hears(2_000), ALL);
  });
}

test.serial('faults: of the network between some hosts leave the others alone', async (t) => {
  const { world, hears } = begin();
  await world.runFor(1_000);
  applyFault(world, { atMs: 0, kind: 'partition', targets: ['a'], peers: ['b'], durationMs: 5_000 });
  await world.runFor(500);
  t.deepEqual(await hears(2_000), ['ac', 'bc', 'ca', 'cb']);
});

test.serial('faults: a rack is all of its hosts', async (t) => {
  const { world, hears } = begin();
  await world.runFor(1_000);
  applyFault(world, { atMs: 0, kind: 'crash', targets: ['rack:first'], durationMs: 5_000 });
  await world.runFor(500);
  t.deepEqual(
    [...world.hosts.values()].map(({ isUp }) => isUp),
    [false, false, true],
  );
  t.deepEqual(await hears(2_000), []);
  await world.runFor(10_000);
  t.deepEqual(await hears(2_000), ALL);
});

test.serial('faults: resets and refusals are errors of connections', async (t) => {
  const { world, troubles, hears } = begin();
  await world.runFor(1_000);
  t.deepEqual(troubles, []);
  applyFault(world, { atMs: 0, kind: 'reset', targets: ['a'], peers: ['b'] });
  await world.runFor(1);
  t.deepEqual([...new Set(troubles)].sort(), ['a ECONNRESET', 'b ECONNRESET']);
  troubles.length = 0;
  applyFault(world, { atMs: 0, kind: 'reset', targets: ['a'], peers: ['c'], amount: 40 });
  await world.runFor(150);
  t.deepEqual(troubles, []);
  await world.runFor(400);
  t.true(troubles.includes('c ECONNRESET'));
  troubles.length = 0;
  applyFault(world, { atMs: 0, kind: 'refuse', targets: ['a'], durationMs: 1_000 });
  applyFault(world, { atMs: 0, kind: 'reset', targets: ['a'] });
  await world.runFor(900);
  t.true(troubles.includes('b ECONNREFUSED') && troubles.includes('c ECONNREFUSED'));
  t.false(troubles.includes('a ECONNREFUSED'));
  await world.runFor(200);
  t.deepEqual(await hears(1_000), ALL);
});

test.serial('faults: of overlapping ones of a kind the last ends them', async (t) => {
  const { world } = begin();
  scheduleFaults(world, [
    { atMs: 1_000, kind: 'disk-full', targets: ['a'], durationMs: 2_000 },
    { atMs: 2_000, kind: 'disk-full', targets: ['a'], durationMs: 2_000 },
  ]);
  const { disk } = [...world.hosts.values()][0] as { disk: { isFull: boolean } };
  const seen: boolean[] = [];
  for (const ms of [500, 1_500, 3_500, 4_500]) {
    await world.run({ untilMs: ms });
    seen.push(disk.isFull);
  }
  t.deepEqual(seen, [false, true, true, false]);
});

test.serial(
  'faults: a plan by chance follows from its seed, keeps to its shape, and every run of it is the same',
  async (t) => {
    const shape = { hosts: NAMES, fromMs: 1_000, untilMs: 30_000, count: 40 };
    const plan = randomFaults(forkedRandom(7, 'faults'), shape);
    t.deepEqual(plan, randomFaults(forkedRandom(7, 'faults'), shape));
    t.notDeepEqual(plan, randomFaults(forkedRandom(8, 'faults'), shape));
    t.deepEqual(plan, JSON.parse(JSON.stringify(plan)));
    for (const { atMs, durationMs = 0, targets } of plan) {
      t.true(atMs >= 1_000 && atMs + durationMs <= 30_000 + 1);
      t.is(targets.length, 1);
    }
    const many = randomFaults(forkedRandom(1, 'faults'), { ...shape, count: 2_000 });
    t.is(new Set(many.map(({ kind }) => kind)).size, Object.keys(FAULT_KINDS).length);
    const hashes: string[] = [];
    for (let i = 0; i < 2; i++) {
      const { world, hears } = begin(7);
      scheduleFaults(world, plan);
      await world.run({ untilMs: 60_000 });
      t.deepEqual(await hears(2_000), ALL);
      hashes.push(world.hash);
      world.close();
    }
    t.is(hashes[0], hashes[1]);
  },
);
