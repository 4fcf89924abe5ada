import { join } from 'node:path';
import test from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { ArgumentError, ClosedError, MeshCacheError } from '../../src/base/errors.js';
import { MeshCacheClient } from '../../src/client/meshcache-client.js';
import type { ClientFollowOptions, ClientPageEvent } from '../../src/client/page-event-feed.js';
import { Capability } from '../../src/clients/wire/messages.js';
import { attach, NodeProcess } from '../_support/client/attached-nodes.js';
import { folder, startNode, startNodes } from '../_support/clients/client-fixture.js';
import { content, until } from '../_support/support.js';

/** A list of pages that is kept from the events of a client. */
class KeptList {
  readonly pages = new Map<string, string>();
  readonly kinds: string[] = [];
  position: string | undefined;
  readonly #stop = new AbortController();
  readonly ended: Promise<void>;

  constructor(client: MeshCacheClient, options: ClientFollowOptions = {}) {
    this.ended = this.#follow(client.pageEvents({ signal: this.#stop.signal, ...options }));
  }

  stop(): Promise<void> {
    this.#stop.abort();
    return this.ended;
  }

  /** Resolves when the list has these pages; each is its key, after its pool where that is not the main one. */
  has(...names: string[]): Promise<void> {
    return until(() => [...this.pages.keys()].toSorted().join() === names.toSorted().join());
  }

  async #follow(events: AsyncIterable<ClientPageEvent>): Promise<void> {
    for await (const event of events) {
      this.kinds.push(event.kind);
      if (event.kind === 'reset') this.pages.clear();
      if (event.kind === 'complete' || event.kind === 'changed') this.position = event.position;
      if (event.kind !== 'listed' && event.kind !== 'changed') continue;
      for (const { key, pool, tier } of event.changes) {
        const name = pool === 'kv' ? key : `${pool}:${key}`;
        if (tier === null) this.pages.delete(name);
        else this.pages.set(name, tier);
      }
    }
  }
}

test.serial('client events: a program keeps the list of its pages, of one node and by pools', async (t) => {
  const [a, b] = await startNodes(t, 2);
  const namespace = { modelName: 'm' };
  const client = await attach(t, a?.clientSocket ?? '', { namespace });
  const far = await attach(t, b?.clientSocket ?? '', { namespace });
  t.true(await client.set('here', content(1, 100)));
  t.true(await far.set('there', content(2, 100)));
  t.true(await a?.set('of-another-namespace', content(3, 100)));
  const [list, farList] = [new KeptList(client), new KeptList(far)];
  await list.has('here');
  await farList.has('there');
  t.true(await client.set('more', content(4, 100)));
  t.deepEqual(await client.delete(['here']), [true]);
  await list.has('more');
  t.deepEqual(list.kinds.slice(0, 3), ['reset', 'listed', 'complete']);
  // Each stream has a connection of its own, and frees it.
  t.is(a?.clients().length, 2);
  await list.stop();
  await until(() => a?.clients().length === 1);
  await far.close();
  await farList.ended;
});

test.serial('client events: whoever comes back with a position gets what has been missed', async (t) => {
  const store = await startNode(t);
  const first = await attach(t, store.clientSocket);
  t.true(await first.set('a', content(1, 100)));
  const list = new KeptList(first);
  await list.has('a');
  await until(() => list.position !== undefined);
  await list.stop();
  t.true(await first.set('b', content(2, 100)));
  const second = await attach(t, store.clientSocket, { name: 'another' });
  const later = new KeptList(second, { after: list.position });
  await later.has('b');
  t.deepEqual(later.kinds, ['changed']);
  await later.stop();
});

test.serial('client events: a restart of the node is told as a new list', async (t) => {
  const node = await NodeProcess.start(t);
  const client = await attach(t, node.socket);
  t.true(await client.set('before', content(1, 100)));
  const list = new KeptList(client);
  await list.has('before');
  await node.kill();
  await node.start();
  await until(() => client.set('after', content(2, 100)));
  await list.has('after');
  t.is(list.kinds.filter((kind) => kind === 'reset').length, 2);
  await list.stop();
});

test.serial('client events: a node that is frozen for a while loses no change', async (t) => {
  const node = await NodeProcess.start(t);
  const client = await attach(t, node.socket);
  const list = new KeptList(client);
  await until(() => list.kinds.includes('complete'));
  await node.freeze();
  const setting = client.set('a', content(1, 100));
  node.signal('SIGCONT');
  t.true(await setting);
  await list.has('a');
  await list.stop();
});

test.serial('client events: without a node the stream waits for one; closing the client ends it', async (t) => {
  const path = join(folder(t), 'node.sock');
  const client = await MeshCacheClient.connect({ socket: path }, { log: silentLogger });
  const list = new KeptList(client);
  const store = await startNode(t, { client_socket: path });
  t.true(await store.set('a', content(1, 100)));
  await list.has('a');
  await client.close();
  await list.ended;
  t.throws(() => client.pageEvents(), { instanceOf: ClosedError });
});

test.serial('client events: arguments that cannot be are refused', async (t) => {
  const client = await attach(t, (await startNode(t)).clientSocket);
  const wrong: readonly (readonly [unknown, RegExp])[] = [
    [null, /^pageEvents: options must be an object/],
    [{ after: 7 }, /^pageEvents: after must be the position/],
    [{ after: 'x'.repeat(1000) }, /^pageEvents: after/],
    [{ pools: [] }, /^pageEvents: pools must be 1 to 16/],
    [{ pools: 'kv' }, /^pageEvents: pools/],
    [{ pools: ['x'.repeat(300)] }, /^the name of a pool/],
  ];
  for (const [options, message] of wrong) {
    t.throws(() => client.pageEvents(options as never), { instanceOf: ArgumentError, message }, String(message));
  }
});

test.serial('client events: a node that has none is named', async (t) => {
  const store = await startNode(t);
  const client = await attach(t, store.clientSocket);
  const events = Capability.events;
  Object.assign(Capability, { events: 0 });
  try {
    const message = /^pageEvents: node .* has version .*, which has no page events for clients; update the node/;
    await t.throwsAsync(client.pageEvents().next(), { instanceOf: MeshCacheError, code: 'ERR_REMOTE', message });
  } finally {
    Object.assign(Capability, { events });
  }
});
