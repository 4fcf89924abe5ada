import test, { type ExecutionContext } from 'ava';
import { seededRandom, systemRandom } from '../../src/base/random.js';
import { DiscoveryClient, type DiscoveryClientOptions } from '../../src/discovery/client.js';
import { EmbeddedMaster } from '../../src/discovery/embedded-master.js';
import { isHostOf } from '../../src/discovery/local-address.js';
import { chooseMasters } from '../../src/discovery/masters.js';
import { decodeAnswer, encodeChanges, encodeRoster, type Roster, rosterAfter } from '../../src/discovery/wire.js';
import { MessageCodec } from '../../src/rpc/message.js';
import type { NodeInfo } from '../../src/types.js';
import { ManualClock } from '../clock.js';
import { CutNetwork } from '../cut-network.js';
import { patientClock } from '../patient-clock.js';
import { newClient, testEnvironment } from '../rpc/support.js';
import { freePort, until } from '../support.js';
import { newMember, nodeOf, startMaster, turnUntil } from './support.js';

const HEARTBEAT_S = 0.2;
const TTL_S = 1;
const listed = [{ host: '10.0.0.1', port: 7 }];

function onHosts(...hosts: [host: string, incarnation: number, isListed?: boolean][]): NodeInfo[] {
  return hosts.map(([controlHost, incarnation, isListed], i) =>
    nodeOf(`n${i}`, { controlHost, incarnation, isListed: isListed ?? false }),
  );
}

const namesOf = (members: Iterable<NodeInfo>, maxMasters = 3, of = listed): string =>
  chooseMasters(members, { listed: of, maxMasters })
    .map(({ host, port }) => `${host}:${port}`)
    .join(' ');

test('masters: the listed ones in order, then hosts by their oldest node, then by name', (t) => {
  const members = onHosts(['10.0.0.1', 5], ['c', 4], ['b', 3], ['a', 3], ['c', 1]);
  t.is(namesOf(members, 2), '10.0.0.1:7 c:7');
  t.is(namesOf(members, 4), '10.0.0.1:7 c:7 a:7 b:7');
  t.is(namesOf(members, 1), '10.0.0.1:7');
  const two = [...listed, { host: 'b', port: 8 }];
  t.is(namesOf(members, 3, two), '10.0.0.1:7 b:8 c:7');
  t.is(namesOf(members, 1, two), '10.0.0.1:7 b:8', 'the listed ones are masters in any case');
});

test('masters: the same members give the same masters in any order, and who joins moves nobody', (t) => {
  const seed = systemRandom.u32();
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  for (let round = 0; round < 200; round++) {
    const nodes = Array.from({ length: 1 + (random.u32() % 20) }, (_, i) =>
      nodeOf(`n${i}`, { controlHost: `h${random.u32() % 8}`, incarnation: random.u32() % 50 }),
    );
    const before = namesOf(nodes);
    t.is(namesOf([...nodes].sort(() => (random.u32() % 2 === 0 ? 1 : -1))), before);
    const later = nodeOf('later', { controlHost: `h${random.u32() % 12}`, incarnation: 50 });
    t.true(namesOf([...nodes, later]).startsWith(before), `seed ${seed}`);
  }
});

test('masters: the host of a listed address has one master, by whatever name its nodes are reached', async (t) => {
  t.is(namesOf(onHosts(['head.example', 1, true], ['head.example', 2], ['b', 3])), '10.0.0.1:7 b:7');
  const names = {
    resolve: async (host: string) => (host === 'head.example' || host === '10.0.0.7' ? ['10.0.0.7'] : []),
    ownAddresses: () => ['10.0.0.7'],
  };
  t.true(await isHostOf('10.0.0.7', 'head.example', names));
  t.true(await isHostOf('head.example', '10.0.0.7', names));
  t.true(await isHostOf('localhost', '127.0.0.1', names));
  t.false(await isHostOf('127.0.0.1', '127.0.0.2', names));
  t.false(await isHostOf('10.0.0.8', '10.0.0.7', names));
});

/** A node as its runtime wires it, on a host of its own. */
class Member {
  readonly host: string;
  readonly master: EmbeddedMaster;
  readonly client: DiscoveryClient;
  self: NodeInfo;
  forgotten = 0;
  expired = 0;
  replaced: boolean[] = [];
  readonly seen: string[][] = [];

  constructor(
    readonly id: string,
    addr: string,
    {
      network = new CutNetwork(),
      maxMasters = 3,
      ...init
    }: { network?: CutNetwork; maxMasters?: number; host: string; incarnation?: number },
  ) {
    this.host = init.host;
    const env = testEnvironment({ network: network.of(init.host) });
    const timing = { heartbeatInterval: HEARTBEAT_S, memberTtl: TTL_S };
    const endpoints = addr
      .split(',')
      .map((one) => ({ host: one.split(':')[0] as string, port: Number(one.split(':')[1]) }));
    this.master = new EmbeddedMaster(endpoints, { ...timing, ownHost: this.host, isHostChosen: true, env });
    this.self = nodeOf(id, { controlHost: this.host, incarnation: init.incarnation ?? Date.now() });
    const options: DiscoveryClientOptions = {
      ...timing,
      maxMasters,
      onMembers: (members) => void this.seen.push([...members.keys()].sort()),
      onUnreachable: () => void this.master.tryTakeOver(),
      onMasters: (masters) => void this.master.mastersChanged(masters),
      isOwnMaster: (masterId) => this.master.has(masterId),
      onForgotten: () => void this.forgotten++,
      onExpired: () => {
        this.expired++;
        this.self = nodeOf(id, { controlHost: this.host, incarnation: this.self.incarnation + 1000 });
        return this.self;
      },
      onReplaced: (isReplaced) => void this.replaced.push(isReplaced),
      env,
    };
    this.client = new DiscoveryClient(addr, this.self, options);
  }

  get ids(): string {
    return [...this.client.members().keys()].sort().join();
  }

  async start(): Promise<this> {
    await this.master.start();
    await this.client.start();
    return this;
  }

  async stop(): Promise<void> {
    await this.client.stop();
    await this.master.stop();
  }
}

async function startMembers(
  t: ExecutionContext,
  addr: string,
  hosts: string[],
  options: { network?: CutNetwork; maxMasters?: number } = {},
) {
  const members: Member[] = [];
  for (const [i, host] of hosts.entries()) {
    const member = new Member('abcdefgh'[i] as string, addr, { ...options, host, incarnation: Date.now() + i });
    t.teardown(() => member.stop());
    members.push(await member.start());
  }
  const all = members.map(({ id }) => id).join();
  await until(() => members.every(({ ids }) => ids === all));
  return members;
}

/** The nodes that a master knows, asked from outside; undefined: there is none. */
async function knownAt(t: ExecutionContext, host: string, port: number): Promise<string | undefined> {
  try {
    const answer = await newClient(t).call({ host, port }, 'discovery.members', {});
    const { roster } = decodeAnswer(new MessageCodec(), answer);
    return [...(roster?.members.keys() ?? [])].sort().join();
  } catch {
    return undefined;
  }
}

test('masters: further hosts get masters up to the limit, and every node is with all of them', async (t) => {
  const port = await freePort();
  await startMembers(t, `127.0.0.1:${port}`, ['127.0.0.1', '127.0.0.2', '127.0.0.3', '127.0.0.4', '127.0.0.2']);
  for (const host of ['127.0.0.1', '127.0.0.2', '127.0.0.3']) {
    await until(async () => (await knownAt(t, host, port)) === 'a,b,c,d,e');
  }
  t.is(await knownAt(t, '127.0.0.4', port), undefined);
});

test('masters: when a host goes, the next one gets its master; another node of the host takes the seat before that', async (t) => {
  const port = await freePort();
  const hosts = ['127.0.0.1', '127.0.0.2', '127.0.0.2', '127.0.0.3'];
  const members = await startMembers(t, `127.0.0.1:${port}`, hosts, { maxMasters: 2 });
  const [, b, c] = members as [Member, Member, Member];
  await until(async () => (await knownAt(t, '127.0.0.2', port)) === 'a,b,c,d');
  t.true(b.master.isHead);
  await b.stop();
  await until(async () => c.master.isHead && (await knownAt(t, '127.0.0.2', port)) === 'a,c,d');
  t.is(await knownAt(t, '127.0.0.3', port), undefined);
  await c.stop();
  await until(async () => (await knownAt(t, '127.0.0.3', port)) === 'a,d');
  await until(() => members.filter((one) => one !== b && one !== c).every(({ ids }) => ids === 'a,d'));
});

test('masters: the head dies and comes back; no member is lost, a node joins meanwhile, the head is filled within a heartbeat', async (t) => {
  const port = await freePort();
  const second = await freePort();
  const addr = `127.0.0.1:${port},127.0.0.2:${second}`;
  const members = await startMembers(t, addr, ['127.0.0.1', '127.0.0.2', '127.0.0.3', '127.0.0.4']);
  const [a, b, c, d] = members as [Member, Member, Member, Member];
  await until(async () => (await knownAt(t, '127.0.0.3', port)) === 'a,b,c,d');
  await a.master.stop();
  const joiningMs = patientClock.nowMs();
  const e = await new Member('e', addr, { host: '127.0.0.5' }).start();
  t.teardown(() => e.stop());
  await until(() => [a, b, c, d, e].every(({ ids }) => ids === 'a,b,c,d,e'));
  const joinMs = patientClock.nowMs() - joiningMs;
  t.true(joinMs < 2 * HEARTBEAT_S * 1000, `${joinMs} ms to join`);
  // Longer than the time-to-live, so that the pauses between attempts are as long as they get.
  await until(() => patientClock.nowMs() - joiningMs > 1.5 * TTL_S * 1000);
  const { master } = await startMaster(t, { port, heartbeatInterval: HEARTBEAT_S, memberTtl: TTL_S });
  const backMs = patientClock.nowMs();
  await until(() => master.members().size === 5);
  const fillMs = patientClock.nowMs() - backMs;
  t.true(fillMs < HEARTBEAT_S * 1000 + 100, `${fillMs} ms to fill`);
  await until(() => patientClock.nowMs() - backMs > 1.5 * TTL_S * 1000);
  for (const member of [a, b, c, d]) {
    const complete = member.seen.findIndex((ids) => ids.length === 4);
    t.false(
      member.seen.slice(complete).some((ids) => ids.length < 4),
      member.id,
    );
    t.is(member.ids, 'a,b,c,d,e');
    t.is(member.forgotten + member.expired, 0);
  }
});

test('masters: a host that is cut off is dropped, and comes back as newly started on both sides', async (t) => {
  const port = await freePort();
  const network = new CutNetwork();
  const hosts = ['127.0.0.1', '127.0.0.2', '127.0.0.3'];
  const members = await startMembers(t, `127.0.0.1:${port}`, hosts, { network });
  const [a, b, c] = members as [Member, Member, Member];
  await until(async () => (await knownAt(t, '127.0.0.3', port)) === 'a,b,c');
  network.isolate('127.0.0.3');
  await until(() => a.ids === 'a,b' && b.ids === 'a,b' && c.ids === 'c');
  const before = c.self.incarnation;
  network.heal();
  await until(() => members.every(({ ids }) => ids === 'a,b,c'));
  await until(() => members.every(({ client }) => client.members().get('c')?.incarnation === c.self.incarnation));
  t.true(c.self.incarnation > before);
  t.deepEqual(
    members.map(({ expired }) => expired),
    [0, 0, 1],
  );
});

test('masters: who cannot reach one master of several stays a member everywhere', async (t) => {
  const port = await freePort();
  const network = new CutNetwork();
  const members = await startMembers(t, `127.0.0.1:${port}`, ['127.0.0.1', '127.0.0.2', '127.0.0.3'], { network });
  const [a, b, c] = members as [Member, Member, Member];
  await until(async () => (await knownAt(t, '127.0.0.3', port)) === 'a,b,c');
  network.cutOneWay('127.0.0.2', '127.0.0.1');
  await until(async () => (await knownAt(t, '127.0.0.1', port)) === 'a,c');
  t.deepEqual(
    [a, b, c].map(({ ids }) => ids),
    ['a,b,c', 'a,b,c', 'a,b,c'],
  );
  network.heal();
  await until(async () => (await knownAt(t, '127.0.0.1', port)) === 'a,b,c');
  t.false(
    [a, b, c].some(
      ({ seen, expired }) => expired > 0 || seen.slice(seen.findIndex((ids) => ids.length === 3)).length > 1,
    ),
  );
});

test('masters: the older of two nodes with one id is told, and is the member again when the other has left', async (t) => {
  const port = await freePort();
  const addr = `127.0.0.1:${port}`;
  const [a, b] = (await startMembers(t, addr, ['127.0.0.1', '127.0.0.2'])) as [Member, Member];
  const newer = new Member('b', addr, { host: '127.0.0.3', incarnation: b.self.incarnation + 5000 });
  await newer.start();
  await until(() => b.client.isReplaced && a.client.members().get('b')?.controlHost === '127.0.0.3');
  t.false(newer.client.isReplaced);
  await newer.stop();
  await until(() => !b.client.isReplaced && a.client.members().get('b')?.controlHost === '127.0.0.2');
  // More often when one master hears of it later than another.
  t.is(b.replaced[0], true);
  t.is(b.replaced.at(-1), false);
});

test('masters: one that could not run drops nobody for that, and starts over when that was too long', async (t) => {
  // Cause: it looked only at what its next timer was late by, and took silence before it for that of the members.
  const clock = new ManualClock();
  const env = testEnvironment({ clock });
  const { master, addr } = await startMaster(t, { env });
  let forgotten = 0;
  const a = newMember(t, addr, nodeOf('a'), { env, onForgotten: () => forgotten++ });
  const b = newMember(t, addr, nodeOf('b'), { env, onForgotten: () => forgotten++ });
  await Promise.all([a.client.start(), b.client.start()]);
  await turnUntil(clock, () => a.ids() === 'a,b' && b.ids() === 'a,b');
  const oldMs = clock.nowMs() + 7_000;
  await turnUntil(clock, () => clock.nowMs() >= oldMs);
  const { masterId } = master;
  for (const stallMs of [4_500, 5_900]) {
    clock.stall(stallMs);
    await clock.yield();
    await clock.yield();
    t.deepEqual([...master.members().keys()].sort(), ['a', 'b'], `${stallMs} ms`);
  }
  t.is(master.masterId, masterId);
  await turnUntil(clock, () => clock.nowMs() >= oldMs + 12_000);
  clock.stall(20_000);
  t.not(master.masterId, masterId);
  t.is(master.members().size, 0);
  await turnUntil(clock, () => master.members().size === 2);
  t.is(a.ids() + b.ids(), 'a,ba,b');
  t.is(forgotten, 0);
});

test('masters: one that is listed by two names is spoken to once', async (t) => {
  const env = testEnvironment();
  const { port } = await startMaster(t, { env, heartbeatInterval: HEARTBEAT_S, memberTtl: TTL_S });
  const a = newMember(t, `127.0.0.1:${port},localhost:${port}`, nodeOf('a'), {
    heartbeatInterval: HEARTBEAT_S,
    memberTtl: TTL_S,
  });
  await a.client.start();
  const startedMs = patientClock.nowMs();
  const calls = () => env.counts.get('meshcache_rpc_served_calls_total') ?? 0;
  const before = calls();
  await until(() => patientClock.nowMs() - startedMs > 1500);
  const perInterval = (calls() - before) / ((patientClock.nowMs() - startedMs) / 1000 / HEARTBEAT_S);
  t.true(perInterval < 3, `${perInterval} calls a heartbeat interval`);
});

test('roster: what has changed since a version leads to the same list as the list itself', (t) => {
  const codec = new MessageCodec();
  const before: Roster = { members: new Map(['a', 'b', 'c'].map((id) => [id, nodeOf(id)])), gone: [] };
  const after: Roster = {
    members: new Map([nodeOf('a'), nodeOf('c', { incarnation: 2 }), nodeOf('d')].map((info) => [info.nodeId, info])),
    gone: [{ nodeId: 'b', incarnation: 1 }],
  };
  const changed = new Set(['b', 'c', 'd']);
  const answer = { status: 'ok', master_id: 'm', version: 9, age_ms: 0 };
  const newsOf = (roster: Uint8Array) => {
    const news = decodeAnswer(codec, { ...answer, roster }).roster;
    if (news === undefined) throw new Error('no news');
    return news;
  };
  const changes = newsOf(encodeChanges(codec, after, { base: 5, changed }));
  const whole = rosterAfter(undefined, newsOf(encodeRoster(codec, after)), 0);
  const plain = (roster: Roster | undefined) => ({
    members: [...(roster?.members.values() ?? [])].map((info) => JSON.stringify(info.toDict())).sort(),
    gone: roster?.gone,
  });
  t.deepEqual(plain(rosterAfter(before, changes, 5)), plain(whole));
  t.is(rosterAfter(before, changes, 4), undefined);
  t.is(rosterAfter(undefined, changes, 5), undefined);
});

test('roster: a change among many members is told in a few hundred bytes', async (t) => {
  const { port } = await startMaster(t);
  const rpc = newClient(t);
  const endpoint = { host: '127.0.0.1', port };
  const codec = new MessageCodec();
  const register = async (id: string) =>
    decodeAnswer(codec, await rpc.call(endpoint, 'discovery.register', { node: nodeOf(id).toDict() }));
  for (let i = 0; i < 100; i++) await register(`n${i}`);
  const ask = async (known: object, wait_ms = 1000) =>
    (await rpc.call(endpoint, 'discovery.heartbeat', { node_id: 'n1', incarnation: 1, wait_ms, ...known })) as {
      roster: Uint8Array | null;
      version: number;
      master_id: string;
    };
  const all = await ask({ master_id: '', version: 0 }, 0);
  let known = { master_id: all.master_id, version: all.version };
  // What was not spread yet when the first answer was given.
  for (;;) {
    const next = await ask({ ...known, changes: true }, 200);
    if (next.roster === null) break;
    known = { ...known, version: next.version };
  }
  await register('one more');
  const change = await ask({ ...known, changes: true });
  t.true((change.roster?.length ?? 0) > 0 && (change.roster?.length ?? 0) < 500, `${change.roster?.length} bytes`);
  const whole = await ask(known);
  t.true((whole.roster?.length ?? 0) > 10_000, 'who does not ask for changes gets the list');
});
