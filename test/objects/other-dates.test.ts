// Clusters that share an object store, of which one has a wrong date: honest nodes lose nothing, and the wrong one is
// named.
import test, { type ExecutionContext } from 'ava';
import { DatedCluster, type DatedNode, type DatedNodeOptions } from '../_support/node/dated-nodes.js';
import { OtherDate, otherDateMissing } from '../_support/node/other-date.js';
import { TestHostPool } from '../_support/node/store-fixture.js';
import { all, getPages, type HostPages, PAGE, setPages } from '../_support/objects/object-nodes.js';
import { S3Server } from '../_support/objects/s3-server.js';
import { PATIENCE_MS, until } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const MINUTES_S = 120;
const MONTHS_S = 210 * 86_400;
const serialTest = unless(otherDateMissing, test.serial);
/** Pages of the honest cluster, and those of the wrong one. */
const HONEST = [0, 4] as const;
const WRONG = [4, 8] as const;
const ALL = all(4, true);
const NONE = all(4, false);

/** A store, and what the clusters of an honest node and of one with a wrong date have there. */
interface Scene {
  readonly t: ExecutionContext;
  readonly s3: S3Server;
  readonly date: OtherDate;
  readonly cluster: DatedCluster;
  readonly node: DatedNode;
  readonly pages: HostPages;
}

/** What nodes need to use the store: what is secret is not for a command line. */
function storeOptions(s3: S3Server): DatedNodeOptions {
  const { object_store, object_store_endpoint, ...secrets } = s3.settings();
  return {
    settings: [`object_store=${object_store}`, `object_store_endpoint=${object_store_endpoint}`],
    env: Object.fromEntries(
      Object.entries(secrets).map(([key, value]) => [`MESHCACHE_${key.toUpperCase()}`, `${value}`]),
    ),
  };
}

async function pagesOf({ client }: DatedNode): Promise<HostPages> {
  const host = new TestHostPool(4, PAGE, 1);
  await client.registerMemPoolHost(host);
  return { store: client, host };
}

/** Pages of a cluster of honest nodes that has nothing yet, and knows the date because two nodes have it. */
async function newCluster({ t, s3 }: Pick<Scene, 't' | 's3'>): Promise<HostPages> {
  const { nodes } = await DatedCluster.start(t, 2, storeOptions(s3));
  return pagesOf(nodes[1] as DatedNode);
}

/** Sets pages and uses them until each has been sent to the store. */
async function store(pages: HostPages, s3: S3Server, [from, to]: readonly [number, number]): Promise<void> {
  const sent = s3.count('PUT', /pages/);
  await setPages(pages, from, to);
  await until(async () => {
    await getPages(pages, from, to);
    return s3.count('PUT', /pages/) >= sent + to - from;
  });
}

/** Waits until these pages are read, and no others: a node that has just joined reads nothing yet. */
function reads(pages: HostPages, [from, to]: readonly [number, number], expected: readonly boolean[]): Promise<void> {
  return until(async () => (await getPages(pages, from, to)).join() === expected.join());
}

/** An honest node has pages in the store, and then a node comes whose date is wrong, in a cluster of its own. */
async function makeScene(t: ExecutionContext, aheadS: number, { comparesDates = true } = {}): Promise<Scene> {
  t.timeout(PATIENCE_MS * 5);
  const s3 = await S3Server.start(t);
  s3.comparesDates = comparesDates;
  const honest = await DatedCluster.start(t, 1, storeOptions(s3));
  await store(await pagesOf(honest.nodes[0] as DatedNode), s3, HONEST);
  const cluster = await DatedCluster.start(t, 0);
  const date = new OtherDate(t, aheadS);
  const node = cluster.node('wrong', { date, ...storeOptions(s3) });
  t.is(await node.start(), undefined);
  return { t, s3, date, cluster, node, pages: await pagesOf(node) };
}

for (const sign of [1, -1]) {
  const side = sign > 0 ? 'ahead' : 'behind';

  serialTest(
    `objects: a date that is minutes ${side} costs no page of the store, whoever reads and writes it`,
    async (t) => {
      const scene = await makeScene(t, sign * MINUTES_S);
      await reads(scene.pages, HONEST, ALL);
      await store(scene.pages, scene.s3, WRONG);
      const others = await newCluster(scene);
      await reads(others, HONEST, ALL);
      await reads(others, WRONG, ALL);
    },
  );

  serialTest(
    `objects: a store refuses a date that is months ${side}: it is named once, and nothing is lost`,
    async (t) => {
      const scene = await makeScene(t, sign * MONTHS_S);
      const { s3, node, pages, cluster } = scene;
      t.deepEqual(await getPages(pages, ...HONEST), NONE);
      await setPages(pages, ...WRONG);
      t.deepEqual(await getPages(pages, ...WRONG), ALL);
      const said = new RegExp(
        `RequestTimeTooSkewed \\(status 403\\): the clock of this machine is 181\\d{5} s ${sign > 0 ? 'ahead of' : 'behind'} that of the store; set it by NTP`,
      );
      await until(() => said.test(node.log));
      t.is(node.log.split('object store failing').length, 2, node.log);
      t.true((await node.metric('meshcache_object_errors_total', 'reason="clock"')) >= 1);
      t.regex((await cluster.status()).replace(/\s+/g, ' '), said);
      t.is(s3.count('PUT', /pages/), 4);
      scene.date.set(0);
      await reads(pages, HONEST, ALL);
      // A node that is alone goes on with the versions of a date that was ahead, which others refuse, until it starts
      // again.
      if (sign > 0) await node.stop();
      if (sign > 0) t.is(await node.start(), undefined);
      await store(sign > 0 ? await pagesOf(node) : pages, s3, WRONG);
      const others = await newCluster(scene);
      await reads(others, HONEST, ALL);
      await reads(others, WRONG, ALL);
    },
  );

  serialTest(`objects: in a store that takes any date, a node that is months ${side} spoils nothing`, async (t) => {
    const scene = await makeScene(t, sign * MONTHS_S, { comparesDates: false });
    const { s3, pages } = scene;
    await reads(pages, HONEST, ALL);
    await store(pages, s3, WRONG);
    const others = await newCluster(scene);
    await reads(others, HONEST, ALL);
    // What is far ahead is a miss, and is replaced by the page of a node that is right.
    await reads(others, WRONG, sign > 0 ? NONE : ALL);
    if (sign > 0) await store(others, s3, WRONG);
    await reads(await newCluster(scene), WRONG, ALL);
  });
}
