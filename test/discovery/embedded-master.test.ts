import test from 'ava';
import { DiscoveryClient } from '../../src/discovery/client.js';
import { EmbeddedMaster } from '../../src/discovery/embedded-master.js';
import { localAddressOf } from '../../src/net/loopback.js';
import type { SimProcess } from '../../src/sim/world/sim-process.js';
import { hostOf, nodeOf } from '../_support/discovery/masters.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { verifiedEnd } from '../_support/verified.js';

const HOST = '10.0.0.7';
const PORT = 18_515;

const names = hostOf(
  ['10.0.0.7', 'fd00::7'],
  (name) => ({ 'head.example': ['10.1.1.1', '10.0.0.7'], 'other.example': ['10.1.1.1'] })[name] ?? [],
);

test('master: which listed hosts are this machine', async (t) => {
  const expected: Record<string, string | undefined> = {
    '127.0.0.1': '127.0.0.1',
    '127.8.9.1': '127.8.9.1',
    '::1': '::1',
    localhost: '127.0.0.1',
    '10.0.0.7': '10.0.0.7',
    'fd00::7': 'fd00::7',
    'head.example': '10.0.0.7',
    '10.0.0.8': undefined,
    'other.example': undefined,
    'unknown.example': undefined,
    '127.evil.example': undefined,
  };
  for (const [host, address] of Object.entries(expected)) t.is(await localAddressOf(host, names), address, host);
});

test('master: a name that is loopback here is listened on beyond loopback, an address or localhost is not', async (t) => {
  // Cause: /etc/hosts of Debian has 127.0.1.1 for the machine's own name, so that the head was alone on its loopback.
  const of = (resolved: string[], own: string[]) => hostOf(own, () => resolved);
  t.is(await localAddressOf('me', of(['127.0.1.1'], ['127.0.0.1', '10.0.0.7'])), '0.0.0.0');
  t.is(await localAddressOf('me', of(['::1'], ['127.0.0.1', '::1', 'fd00::7'])), '::');
  t.is(await localAddressOf('me', of(['127.0.1.1', '10.0.0.7'], ['127.0.0.1', '10.0.0.7'])), '10.0.0.7');
  t.is(await localAddressOf('me', of(['127.0.1.1'], ['127.0.0.1', '::1'])), '127.0.1.1');
  t.is(await localAddressOf('localhost', of(['127.0.0.1'], ['127.0.0.1', '10.0.0.7'])), '127.0.0.1');
  t.is(await localAddressOf('127.0.1.1', of([], ['127.0.0.1', '10.0.0.7'])), '127.0.1.1');
});

const idsOf = (member: DiscoveryClient): string => [...member.members().keys()].sort().join();

async function startMember(world: TestWorld, process: SimProcess, id: string, onUnreachable = () => {}) {
  const options = { env: process.environment, onUnreachable };
  const member = new DiscoveryClient(`${HOST}:${PORT}`, nodeOf(id), options);
  world.atEnd(process, () => verifiedEnd([member], () => member.stop()));
  await member.start();
  return member;
}

/** In a process of `HOST`, where the master is to be at `host`; stopped with the world. */
async function newMaster(world: TestWorld, host = HOST) {
  const process = world.process(HOST);
  const master = new EmbeddedMaster([{ host, port: PORT }], { env: process.environment });
  world.atEnd(process, () => master.stop());
  await master.start();
  return { process, master };
}

simulated('master: whoever gets the port is head, and another one takes over when it stops', async (t, world) => {
  const { master: first } = await newMaster(world);
  const { master: second } = await newMaster(world);
  t.true(first.isHead);
  t.false(second.isHead);
  await second.tryTakeOver();
  t.false(second.isHead);
  await first.stop();
  t.false(first.isHead);
  await second.tryTakeOver();
  t.true(second.isHead);
});

simulated('master: nodes elsewhere are never head', async (t, world) => {
  const { master } = await newMaster(world, '10.0.0.8');
  t.false(master.isHead);
  await master.tryTakeOver();
  t.false(master.isHead);
});

simulated('master: one that has been stopped does not come back', async (t, world) => {
  const { master } = await newMaster(world);
  await master.stop();
  await master.tryTakeOver();
  t.false(master.isHead);
  t.true((await newMaster(world)).master.isHead);
});

simulated('master: when the head goes, a client’s node becomes head and everybody stays a member', async (t, world) => {
  const nodes: { master: EmbeddedMaster; member: DiscoveryClient }[] = [];
  for (const id of ['a', 'b', 'c']) {
    const { process, master } = await newMaster(world);
    const member = await startMember(world, process, id, () => void master.tryTakeOver());
    nodes.push({ master, member });
  }
  const [a, b, c] = nodes as [(typeof nodes)[number], (typeof nodes)[number], (typeof nodes)[number]];
  t.true(a.master.isHead);
  await world.until(() => nodes.every(({ member }) => idsOf(member) === 'a,b,c'));
  await a.member.stop();
  await a.master.stop();
  await world.until(() => b.master.isHead || c.master.isHead);
  t.false(b.master.isHead && c.master.isHead);
  await world.until(() => idsOf(b.member) === 'b,c' && idsOf(c.member) === 'b,c');
  const d = await startMember(world, world.process('10.0.0.9'), 'd');
  await world.until(() => [b.member, c.member, d].every((member) => idsOf(member) === 'b,c,d'));
});

simulated('master: an address that comes to this machine after the start is taken', async (t, world) => {
  // Cause: the system does not name addresses of a link without carrier, so the only listed host of a cluster, started
  // before its switch, never ran a master.
  const process = world.process(HOST);
  const { environment } = process;
  let hasCarrier = false;
  const addresses = () => (hasCarrier ? environment.host.addresses() : []);
  const env = { ...environment, host: { ...environment.host, addresses } };
  const master = new EmbeddedMaster([{ host: HOST, port: PORT }], { env });
  world.atEnd(process, () => master.stop());
  await master.start();
  await master.tryTakeOver();
  t.false(master.isHead);
  hasCarrier = true;
  void master.tryTakeOver();
  await world.until(() => master.isHead);
});
