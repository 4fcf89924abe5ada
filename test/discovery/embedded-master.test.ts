import test from 'ava';
import { systemHost } from '../../src/base/system-host.js';
import { EmbeddedMaster } from '../../src/discovery/embedded-master.js';
import { localAddressOf } from '../../src/discovery/local-address.js';
import { testEnvironment } from '../rpc/support.js';
import { freePort, until } from '../support.js';
import { hostOf, newMember, nodeOf } from './support.js';

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

async function newMaster(t: { teardown(fn: () => Promise<void>): void }, port: number, host = '127.0.0.1') {
  const master = new EmbeddedMaster([{ host, port }], { env: testEnvironment({ host: { ...systemHost, ...names } }) });
  t.teardown(() => master.stop());
  await master.start();
  return master;
}

test('master: whoever gets the port is head, and another one takes over when it stops', async (t) => {
  const port = await freePort();
  const first = await newMaster(t, port);
  const second = await newMaster(t, port);
  t.true(first.isHead);
  t.false(second.isHead);
  await second.tryTakeOver();
  t.false(second.isHead);
  await first.stop();
  t.false(first.isHead);
  await second.tryTakeOver();
  t.true(second.isHead);
});

test('master: nodes elsewhere are never head', async (t) => {
  const master = await newMaster(t, await freePort(), '10.0.0.8');
  t.false(master.isHead);
  await master.tryTakeOver();
  t.false(master.isHead);
});

test('master: one that has been stopped does not come back', async (t) => {
  const port = await freePort();
  const master = await newMaster(t, port);
  await master.stop();
  await master.tryTakeOver();
  t.false(master.isHead);
  t.true((await newMaster(t, port)).isHead);
});

test('master: when the head goes, a client’s node becomes head and everybody stays a member', async (t) => {
  const port = await freePort();
  const nodes: { master: EmbeddedMaster; member: ReturnType<typeof newMember> }[] = [];
  for (const id of ['a', 'b', 'c']) {
    const master = await newMaster(t, port);
    const member = newMember(t, `127.0.0.1:${port}`, nodeOf(id), { onUnreachable: () => void master.tryTakeOver() });
    await member.client.start();
    nodes.push({ master, member });
  }
  const [a, b, c] = nodes as [(typeof nodes)[number], (typeof nodes)[number], (typeof nodes)[number]];
  t.true(a.master.isHead);
  await until(() => nodes.every(({ member }) => member.ids() === 'a,b,c'));
  await a.member.client.stop();
  await a.master.stop();
  await until(() => b.master.isHead || c.master.isHead);
  t.false(b.master.isHead && c.master.isHead);
  await until(() => b.member.ids() === 'b,c' && c.member.ids() === 'b,c');
  const d = newMember(t, `127.0.0.1:${port}`, nodeOf('d'));
  await d.client.start();
  await until(() => [b.member, c.member, d].every((member) => member.ids() === 'b,c,d'));
});
