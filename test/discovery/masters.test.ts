import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { DiscoveryClient, type DiscoveryClientOptions } from '../../src/discovery/client.js';
import { EmbeddedMaster } from '../../src/discovery/embedded-master.js';
import { chooseMasters, seatsOf } from '../../src/discovery/masters/masters.js';
import {
  decodeAnswer,
  encodeChanges,
  encodeRoster,
  type OwnRoster,
  type Roster,
  rosterAfter,
} from '../../src/discovery/messages/wire.js';
import { DiscoveryServer } from '../../src/discovery/server.js';
import { isHostOf } from '../../src/net/loopback.js';
import { RpcClient } from '../../src/rpc/client.js';
import { MessageCodec } from '../../src/rpc/message.js';
import type { SimProcess } from '../../src/sim/world/sim-process.js';
import { systemRandom } from '../../src/system/system-random.js';
import { NamespaceFingerprint, type NodeInfo } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { hostOf, newMember, nodeOf, startMaster, turnUntil } from '../_support/discovery/masters.js';
import { newClient, testEnvironment } from '../_support/rpc/server.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { verifiedEnd } from '../_support/verified.js';

const HEARTBEAT_S = 0.2;
const TTL_S = 1;
const PORT = 18_515;
const SECOND_PORT = 18_516;
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
  const names = hostOf(['10.0.0.7'], (name) => (name === 'head.example' || name === '10.0.0.7' ? ['10.0.0.7'] : []));
  t.true(await isHostOf('10.0.0.7', 'head.example', names));
  t.true(await isHostOf('head.example', '10.0.0.7', names));
  t.true(await isHostOf('localhost', '127.0.0.1', names));
  t.false(await isHostOf('127.0.0.1', '127.0.0.2', names));
  t.false(await isHostOf('10.0.0.8', '10.0.0.7', names));
});

/** A node as its runtime wires it, in a process of its own on a host; stopped with the world. */
class Member {
  readonly host: string;
  readonly process: SimProcess;
  readonly master: EmbeddedMaster;
  readonly client: DiscoveryClient;
  self: NodeInfo;
  forgotten = 0;
  expired = 0;
  masterChanges = 0;
  replaced: boolean[] = [];
  readonly seen: string[][] = [];

  constructor(
    world: TestWorld,
    readonly id: string,
    addr: string,
    {
      maxMasters = 3,
      ttlS = TTL_S,
      ...init
    }: { maxMasters?: number; ttlS?: number; host: string; incarnation?: number },
  ) {
    this.host = init.host;
    this.process = world.process(init.host);
    world.atEnd(this.process, () => verifiedEnd([this.client], () => this.stop()));
    const env = this.process.environment;
    const timing = { heartbeatInterval: HEARTBEAT_S, memberTtl: ttlS };
    const endpoints = addr
      .split(',')
      .map((one) => ({ host: one.split(':')[0] as string, port: Number(one.split(':')[1]) }));
    this.master = new EmbeddedMaster(endpoints, { ...timing, ownHost: this.host, isHostChosen: true, env });
    const own = endpoints.find(({ host }) => host === this.host);
    const seat = { isListed: own !== undefined, masterAddr: `${this.host}:${(own ?? endpoints[0])?.port}` };
    this.self = nodeOf(id, { controlHost: this.host, incarnation: init.incarnation ?? env.clock.wallMs(), ...seat });
    const options: DiscoveryClientOptions = {
      ...timing,
      maxMasters,
      onMembers: (members) => void this.seen.push([...members.keys()].sort()),
      onUnreachable: () => void this.master.tryTakeOver(),
      onMasters: (masters) => {
        this.masterChanges++;
        void this.master.mastersChanged(masters);
      },
      isOwnMaster: (masterId) => this.master.has(masterId),
      onForgotten: () => void this.forgotten++,
      onExpired: () => {
        this.expired++;
        this.self = nodeOf(id, { controlHost: this.host, incarnation: this.self.incarnation + 1000, ...seat });
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

  get seats(): string {
    return this.client
      .seats()
      .map(({ host }) => host)
      .join();
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
  world: TestWorld,
  addr: string,
  hosts: string[],
  options: { maxMasters?: number; ttlS?: number } = {},
) {
  const members: Member[] = [];
  for (const [i, host] of hosts.entries()) {
    const incarnation = world.operator.clock.wallMs() + i;
    const member = new Member(world, 'abcdefgh'[i] as string, addr, { ...options, host, incarnation });
    members.push(await member.start());
  }
  const all = members.map(({ id }) => id).join();
  await world.until(() => members.every(({ ids }) => ids === all));
  return members;
}

/** A master without a node; stopped with the world. */
function newMaster(world: TestWorld, process: SimProcess, port: number): DiscoveryServer {
  const timing = { heartbeatInterval: HEARTBEAT_S, memberTtl: TTL_S };
  const master = new DiscoveryServer(process.host.address, port, { ...timing, env: process.environment });
  world.atEnd(process, () => verifiedEnd([master], () => master.stop()));
  return master;
}

/** The nodes that a master knows, asked from outside; undefined: there is none. */
async function knownAt({ operator }: TestWorld, host: string, port: number): Promise<string | undefined> {
  const rpc = new RpcClient({ env: operator.environment });
  try {
    const answer = await rpc.call({ host, port }, 'discovery.members', {});
    const { roster } = decodeAnswer(new MessageCodec(), answer);
    return [...(roster?.members.keys() ?? [])].sort().join();
  } catch {
    return undefined;
  } finally {
    await rpc.close();
  }
}

simulated(
  'masters: further hosts get masters up to the limit, and every node is with all of them',
  async (t, world) => {
    await startMembers(world, `10.0.0.1:${PORT}`, ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.2']);
    for (const host of ['10.0.0.1', '10.0.0.2', '10.0.0.3']) {
      await world.until(async () => (await knownAt(world, host, PORT)) === 'a,b,c,d,e');
    }
    t.is(await knownAt(world, '10.0.0.4', PORT), undefined);
  },
);

simulated(
  'masters: when a host goes, the next one gets its master; another node of the host takes the seat before that',
  async (t, world) => {
    const hosts = ['10.0.0.1', '10.0.0.2', '10.0.0.2', '10.0.0.3'];
    const members = await startMembers(world, `10.0.0.1:${PORT}`, hosts, { maxMasters: 2 });
    const [, b, c] = members as [Member, Member, Member];
    await world.until(async () => (await knownAt(world, '10.0.0.2', PORT)) === 'a,b,c,d');
    t.true(b.master.isHead);
    await b.stop();
    await world.until(async () => c.master.isHead && (await knownAt(world, '10.0.0.2', PORT)) === 'a,c,d');
    t.is(await knownAt(world, '10.0.0.3', PORT), undefined);
    await c.stop();
    await world.until(async () => (await knownAt(world, '10.0.0.3', PORT)) === 'a,d');
    await world.until(() => members.filter((one) => one !== b && one !== c).every(({ ids }) => ids === 'a,d'));
  },
);

simulated(
  'masters: the head dies and comes back; no member is lost, a node joins meanwhile, the head is filled within a heartbeat',
  async (t, world) => {
    const addr = `10.0.0.1:${PORT},10.0.0.2:${SECOND_PORT}`;
    const members = await startMembers(world, addr, ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4']);
    const [a, b, c, d] = members as [Member, Member, Member, Member];
    await world.until(async () => (await knownAt(world, '10.0.0.3', PORT)) === 'a,b,c,d');
    await a.master.stop();
    const joiningMs = world.nowMs;
    const e = await new Member(world, 'e', addr, { host: '10.0.0.5' }).start();
    await world.until(() => [a, b, c, d, e].every(({ ids }) => ids === 'a,b,c,d,e'));
    const joinMs = world.nowMs - joiningMs;
    t.true(joinMs < 2 * HEARTBEAT_S * 1000, `${joinMs} ms to join`);
    // Longer than the time-to-live, so that the pauses between attempts are as long as they get.
    await world.until(() => world.nowMs - joiningMs > 1.5 * TTL_S * 1000);
    const master = newMaster(world, a.process, PORT);
    await master.start();
    const backMs = world.nowMs;
    await world.until(() => master.members().size === 5);
    const fillMs = world.nowMs - backMs;
    t.true(fillMs < HEARTBEAT_S * 1000, `${fillMs} ms to fill`);
    await world.until(() => world.nowMs - backMs > 1.5 * TTL_S * 1000);
    for (const member of [a, b, c, d]) {
      const complete = member.seen.findIndex((ids) => ids.length === 4);
      t.false(
        member.seen.slice(complete).some((ids) => ids.length < 4),
        member.id,
      );
      t.is(member.ids, 'a,b,c,d,e');
      t.is(member.forgotten + member.expired, 0);
    }
  },
);

simulated(
  'masters: a host that is cut off is dropped, and comes back as newly started on both sides',
  async (t, world) => {
    const hosts = ['10.0.0.1', '10.0.0.2', '10.0.0.3'];
    const members = await startMembers(world, `10.0.0.1:${PORT}`, hosts);
    const [a, b, c] = members as [Member, Member, Member];
    await world.until(async () => (await knownAt(world, '10.0.0.3', PORT)) === 'a,b,c');
    world.isolate('10.0.0.3');
    await world.until(() => a.ids === 'a,b' && b.ids === 'a,b' && c.ids === 'c');
    const before = c.self.incarnation;
    world.heal();
    await world.until(() => members.every(({ ids }) => ids === 'a,b,c'));
    await world.until(() =>
      members.every(({ client }) => client.members().get('c')?.incarnation === c.self.incarnation),
    );
    t.true(c.self.incarnation > before);
    t.deepEqual(
      members.map(({ expired }) => expired),
      [0, 0, 1],
    );
  },
);

simulated('masters: who cannot reach one master of several stays a member everywhere', async (t, world) => {
  const members = await startMembers(world, `10.0.0.1:${PORT}`, ['10.0.0.1', '10.0.0.2', '10.0.0.3']);
  const [a, b, c] = members as [Member, Member, Member];
  await world.until(async () => (await knownAt(world, '10.0.0.3', PORT)) === 'a,b,c');
  world.cutOneWay('10.0.0.2', '10.0.0.1');
  await world.until(async () => (await knownAt(world, '10.0.0.1', PORT)) === 'a,c');
  t.deepEqual(
    [a, b, c].map(({ ids }) => ids),
    ['a,b,c', 'a,b,c', 'a,b,c'],
  );
  world.heal();
  await world.until(async () => (await knownAt(world, '10.0.0.1', PORT)) === 'a,b,c');
  t.false(
    [a, b, c].some(
      ({ seen, expired }) => expired > 0 || seen.slice(seen.findIndex((ids) => ids.length === 3)).length > 1,
    ),
  );
});

test('masters: the seats of dead hosts go to living ones, and come back with a listed host', (t) => {
  const two = [...listed, { host: '10.0.0.2', port: 8 }];
  const [a, b, c, d, e] = onHosts(['10.0.0.1', 9, true], ['10.0.0.2', 8, true], ['c', 3], ['d', 4], ['e', 5]);
  const seats = (...members: (NodeInfo | undefined)[]): string =>
    seatsOf(members as NodeInfo[], { listed: two, maxMasters: 3 })
      .map(({ host, port }) => `${host}:${port}`)
      .join(' ');
  t.is(seats(a, b, c, d, e), '10.0.0.2:8 10.0.0.1:7 c:7');
  t.is(seats(b, c, d, e), '10.0.0.2:8 c:7 d:7');
  t.is(seats(c, d, e), 'c:7 d:7 e:7');
  t.is(seats(a, c, d, e), '10.0.0.1:7 c:7 d:7');
  t.is(namesOf([c, d, e] as NodeInfo[], 3, two), '10.0.0.1:7 10.0.0.2:8 c:7 d:7 e:7', 'the dead are still tried');
});

test('masters: nodes with different discovery addresses choose the same seats', (t) => {
  const seat = (host: string, port: number, incarnation: number, isListed = false) =>
    nodeOf(host, { controlHost: host, incarnation, isListed, masterAddr: `${host}:${port}` });
  const members = [seat('a', 7, 9, true), seat('b', 8, 8, true), seat('c', 7, 1), seat('d', 7, 2), seat('e', 9, 3)];
  const rules = [
    [
      { host: 'a', port: 7 },
      { host: 'b', port: 8 },
    ], //
    [{ host: 'd', port: 7 }],
    [{ host: 'b', port: 8 }],
  ];
  for (const listed of rules) {
    t.deepEqual(seatsOf(members, { listed, maxMasters: 4 }), [
      { host: 'b', port: 8 },
      { host: 'a', port: 7 },
      { host: 'c', port: 7 },
      { host: 'd', port: 7 },
    ]);
  }
});

/** The connections of these hosts end, and nobody hears a word of them any more. */
async function lose(world: TestWorld, ...members: Member[]): Promise<void> {
  const hosts = members.map(({ host }) => world.hosts.get(host));
  for (const host of hosts) host?.killAll();
  await world.sleep(1);
  for (const host of hosts) host?.crash();
}

async function isMasterOf(world: TestWorld, host: string, port: number, members: readonly Member[]) {
  const all = members.map(({ id }) => id).sort();
  return (await knownAt(world, host, port)) === all.join();
}

simulated(
  'masters: both listed hosts are lost; the living fill the seats, and nodes join by any of them and by a listed one that is back',
  async (t, world) => {
    const addr = `10.0.0.1:${PORT},10.0.0.2:${SECOND_PORT}`;
    const hosts = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5', '10.0.0.6'];
    const [a, b, ...living] = (await startMembers(world, addr, hosts)) as [Member, Member, ...Member[]];
    await world.until(() => isMasterOf(world, '10.0.0.3', PORT, [a, b, ...living]));
    t.true(living.every(({ seats }) => seats === '10.0.0.1,10.0.0.2,10.0.0.3'));
    const lostMs = world.nowMs;
    await lose(world, a, b);
    for (const host of ['10.0.0.3', '10.0.0.4', '10.0.0.5']) {
      await world.until(() => isMasterOf(world, host, PORT, living));
    }
    const filledMs = world.nowMs - lostMs;
    t.true(filledMs < 2 * TTL_S * 1000, `${filledMs} ms to fill the seats`);
    t.true(living.every(({ seats }) => seats === '10.0.0.3,10.0.0.4,10.0.0.5'));
    t.is(await knownAt(world, '10.0.0.6', PORT), undefined);

    for (const [i, host] of ['10.0.0.4', '10.0.0.5'].entries()) {
      const newcomer = new Member(world, `n${i}`, `${host}:${PORT}`, { host: `10.0.0.${7 + i}` });
      living.push(await newcomer.start());
      await world.until(() => living.every(({ ids }) => ids === living[0]?.ids && ids.includes(newcomer.id)));
    }
    world.hosts.get('10.0.0.2')?.restart();
    const back = new Member(world, 'b2', addr, { host: '10.0.0.2' });
    living.push(await back.start());
    await world.until(() => living.every(({ seats }) => seats === '10.0.0.2,10.0.0.3,10.0.0.4'));
    await world.until(async () => (await knownAt(world, '10.0.0.5', PORT)) === undefined);
    const last = new Member(world, 'last', `10.0.0.2:${SECOND_PORT}`, { host: '10.0.0.10' });
    living.push(await last.start());
    await world.until(() => living.every(({ ids, seats }) => ids === living[0]?.ids && seats === back.seats));
    t.is(last.ids.split(',').length, living.length);
    t.is(
      living.reduce((sum, { expired }) => sum + expired, 0),
      0,
    );
  },
);

simulated(
  'masters: all masters are lost at once; the next hosts take the seats, and nobody is lost',
  async (t, world) => {
    const addr = `10.0.0.1:${PORT}`;
    const hosts = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5'];
    const members = await startMembers(world, addr, hosts, { maxMasters: 2 });
    const [a, b, ...living] = members as [Member, Member, ...Member[]];
    await world.until(() => isMasterOf(world, '10.0.0.2', PORT, members));
    // With heartbeats under way, nodes notice at once that connections end.
    await world.sleep(100);
    const lostMs = world.nowMs;
    await lose(world, a, b);
    for (const host of ['10.0.0.3', '10.0.0.4']) await world.until(() => isMasterOf(world, host, PORT, living));
    const filledMs = world.nowMs - lostMs;
    t.true(filledMs < 2 * TTL_S * 1000, `${filledMs} ms to fill the seats`);
    await world.until(() => living.every(({ ids, seats }) => ids === 'c,d,e' && seats === '10.0.0.3,10.0.0.4'));
    t.false(
      living.some(({ seen }) => seen.slice(seen.findIndex((ids) => ids.length === 5)).some((ids) => ids.length < 3)),
    );
    t.is(await knownAt(world, '10.0.0.5', PORT), undefined);
  },
);

simulated('masters: a listed one that is silent for less than the time-to-live keeps its seat', async (t, world) => {
  const hosts = ['10.0.0.1', '10.0.0.2', '10.0.0.3'];
  // Longer than an attempt to connect, which does not notice that the network is back.
  const ttlS = 3;
  // With one seat nobody else can say that the master lives.
  for (const maxMasters of [1, 2]) {
    const members = await startMembers(world, `10.0.0.1:${PORT}`, hosts, { maxMasters, ttlS });
    await world.until(() => maxMasters === 1 || isMasterOf(world, '10.0.0.2', PORT, members));
    const before = members.map(({ masterChanges }) => masterChanges);
    const cutMs = world.nowMs;
    world.isolate('10.0.0.1');
    await world.until(() => world.nowMs - cutMs > (ttlS * 1000) / 3);
    world.heal();
    await world.until(() => isMasterOf(world, '10.0.0.1', PORT, members));
    await world.until(() => world.nowMs - cutMs > 1.3 * ttlS * 1000);
    t.deepEqual(
      members.map(({ masterChanges }) => masterChanges),
      before,
    );
    t.is(await knownAt(world, '10.0.0.3', PORT), undefined);
    for (const member of members) await member.stop();
  }
});

simulated(
  'masters: both sides of a partition fill the seats, and agree again after it although no listed address lives',
  async (t, world) => {
    const addr = `10.0.0.1:${PORT}`;
    const hosts = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5'];
    const members = await startMembers(world, addr, hosts, { maxMasters: 2 });
    const [a, ...living] = members as [Member, ...Member[]];
    await lose(world, a);
    await world.until(() => living.every(({ ids, seats }) => ids === 'b,c,d,e' && seats === '10.0.0.2,10.0.0.3'));
    const [b, c, d, e] = living as [Member, Member, Member, Member];
    for (const host of ['10.0.0.2', '10.0.0.3']) await world.until(() => isMasterOf(world, host, PORT, living));
    // The side of the masters, and one that has none.
    world.isolate('10.0.0.4', '10.0.0.5');
    await world.until(() => b.ids + c.ids === 'b,cb,c' && d.ids + e.ids === 'd,ed,e');
    for (const host of ['10.0.0.4', '10.0.0.5']) await world.until(() => isMasterOf(world, host, PORT, [d, e]));
    world.heal();
    await world.until(() => living.every(({ ids, seats }) => ids === 'b,c,d,e' && seats === b.seats));
    const seats = b.seats.split(',');
    t.is(seats.length, 2);
    for (const host of seats) await world.until(() => isMasterOf(world, host, PORT, living));
    for (const { host } of living) {
      if (!seats.includes(host)) await world.until(async () => (await knownAt(world, host, PORT)) === undefined);
    }
  },
);

simulated('masters: a node that has never heard of a master does not become one', async (t, world) => {
  const alone = new Member(world, 'a', `10.0.0.1:${PORT}`, { host: '10.0.0.2' });
  void alone.start();
  const startedMs = world.nowMs;
  await world.until(() => world.nowMs - startedMs > 2 * TTL_S * 1000);
  t.false(alone.master.isHead);
  t.false(alone.client.isReachable);
});

simulated(
  'masters: the older of two nodes with one id is told, and is the member again when the other has left',
  async (t, world) => {
    const addr = `10.0.0.1:${PORT}`;
    const [a, b] = (await startMembers(world, addr, ['10.0.0.1', '10.0.0.2'])) as [Member, Member];
    const newer = new Member(world, 'b', addr, { host: '10.0.0.3', incarnation: b.self.incarnation + 5000 });
    await newer.start();
    await world.until(() => b.client.isReplaced && a.client.members().get('b')?.controlHost === '10.0.0.3');
    t.false(newer.client.isReplaced);
    await newer.stop();
    await world.until(() => !b.client.isReplaced && a.client.members().get('b')?.controlHost === '10.0.0.2');
    // More often when one master hears of it later than another.
    t.is(b.replaced[0], true);
    t.is(b.replaced.at(-1), false);
  },
);

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

simulated('masters: one that is listed by two names is spoken to once', async (t, world) => {
  const process = world.process('10.0.0.1');
  await newMaster(world, process, PORT).start();
  const options = { heartbeatInterval: HEARTBEAT_S, memberTtl: TTL_S, env: process.environment };
  const a = new DiscoveryClient(`10.0.0.1:${PORT},head:${PORT}`, nodeOf('a'), options);
  world.atEnd(process, () => verifiedEnd([a], () => a.stop()));
  await a.start();
  const startedMs = world.nowMs;
  const calls = () => process.metrics.value('meshcache_rpc_served_calls_total');
  const before = calls();
  await world.until(() => world.nowMs - startedMs > 1500);
  const perInterval = (calls() - before) / ((world.nowMs - startedMs) / 1000 / HEARTBEAT_S);
  t.true(perInterval > 0 && perInterval < 3, `${perInterval} calls a heartbeat interval`);
});

for (const form of ['maps', 'rows'] as const) {
  test(`roster: what has changed since a version leads to the same list as the list itself (${form})`, (t) => {
    const codec = new MessageCodec();
    const before = (): OwnRoster => ({ members: new Map(['a', 'b', 'c'].map((id) => [id, nodeOf(id)])), gone: [] });
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
    const changes = newsOf(encodeChanges(codec, after, { base: 5, changed, form }));
    const whole = rosterAfter(undefined, newsOf(encodeRoster(codec, after, form)), 0);
    const plain = (roster: Roster | undefined) => ({
      members: [...(roster?.members.values() ?? [])].map((info) => JSON.stringify(info.toDict())).sort(),
      gone: roster?.gone,
    });
    t.deepEqual(plain(rosterAfter(before(), changes, 5)), plain(whole));
    t.is(rosterAfter(before(), changes, 4), undefined);
    t.is(rosterAfter(undefined, changes, 5), undefined);
  });
}

test('roster: rows say what maps say, in a third of the bytes', (t) => {
  const codec = new MessageCodec();
  const infos = [
    nodeOf('plain'),
    nodeOf('full', {
      rdmaHost: '192.0.2.7',
      rdmaPort: 7,
      tcpHost: '192.0.2.8',
      tcpPort: 8,
      protocols: ['rdma', 'tcp'],
      metricsHost: '192.0.2.9',
      metricsPort: 9,
      isListed: true,
      masterAddr: 'elsewhere:18515',
      zone: 'rack-7',
    }),
    nodeOf('no zone', { zone: '' }),
    nodeOf('printed', { fingerprint: new NamespaceFingerprint('0123456789abcdef'.repeat(2), 'sha256:5eed') }),
    nodeOf('v6', { controlHost: 'fe80::1', masterAddr: '[fe80::1]:18515', protocols: [] }),
    nodeOf('odd', { controlHost: '127.0.0.1', masterAddr: '127.0.0.1:0185', tcpPort: 65535 }),
  ];
  const roster = { members: new Map(infos.map((info) => [info.nodeId, info])), gone: [] };
  const [maps, rows] = (['maps', 'rows'] as const).map((form) => encodeRoster(codec, roster, form)) as [
    Uint8Array,
    Uint8Array,
  ];
  t.true(rows.length < maps.length / 3, `${rows.length} and ${maps.length} bytes`);
  const answer = { status: 'ok', master_id: 'm', version: 9, age_ms: 0 };
  const read = (bytes: Uint8Array) => decodeAnswer(codec, { ...answer, roster: bytes }).roster?.members;
  t.deepEqual(read(rows), roster.members);
  t.deepEqual(read(maps), roster.members);
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
