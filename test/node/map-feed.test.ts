import test from 'ava';
import { MAP_BATCH_MS, MAP_KEPT_MAX_BATCHES, MAP_KEPT_MAX_MARKS } from '../../src/base/limits.js';
import { MARK_ABSENT, MARK_SURE, PageMap } from '../../src/core/map/page-map.js';
import { asFields, type Fields } from '../../src/directory/messages/wire.js';
import { MapFeed } from '../../src/node/map/map-feed.js';
import { type MapAnswer, type MapQuestion, mapQuestionFields, readMapAnswer } from '../../src/node/map/map-messages.js';
import type { RpcServer } from '../../src/rpc/server.js';
import { simulated } from '../_support/simulated.js';

/** A feed of pages that the test sets, and what its follower asks. */
function feedOf(clock: ConstructorParameters<typeof MapFeed>[1]) {
  const present = new Set<string>();
  const feed = new MapFeed(
    {
      start: () => 1,
      marksOf: (keys) => keys.map((key) => (present.has(key) ? MARK_SURE : MARK_ABSENT)),
      *keysInSlices() {
        const keys = [...present];
        for (let start = 0; start < keys.length; start += 1000) yield keys.slice(start, start + 1000);
      },
    },
    clock,
  );
  let handle: (params: unknown) => unknown = () => undefined;
  feed.attach({ handle: (_: string, handler: typeof handle) => (handle = handler) } as unknown as RpcServer);
  const ask = async (place: { list: number } | { after: string }): Promise<MapAnswer> => {
    const question = { follower: 'node-1', waitMs: 100, ...place } as MapQuestion;
    return readMapAnswer(asFields(await handle(mapQuestionFields(question))) as Fields);
  };
  return { feed, present, ask };
}

const keysOf = (count: number, name = 'page'): string[] => Array.from({ length: count }, (_, i) => `${name}-${i}`);

simulated('map feed: a list comes in parts, then what has happened since it began', async (t, world) => {
  const { feed, present, ask } = feedOf(world.operator.environment.clock);
  const map = new PageMap();
  map.rank(0, 0);
  for (const key of keysOf(40_000)) present.add(key);
  let answer = await ask({ list: 1 });
  map.note(0, answer.marks);
  t.is(answer.position, undefined);
  // A page that has been told goes, and one comes, before the list is complete.
  present.delete('page-0');
  present.add('new');
  feed.note(['page-0', 'new']);
  for (let part = 0; answer.position === undefined; part++) {
    t.true(part < 4);
    answer = await ask({ list: 1 });
    map.note(0, answer.marks);
  }
  answer = await ask({ after: answer.position });
  map.note(0, answer.marks);
  t.is(map.stats().entries, 40_000);
  t.is(map.nodesOf(['page-0', 'new']).filter((node) => node === 2047).length, 1);
  const { position = '' } = answer;
  t.deepEqual((await ask({ after: position })).marks.length, 0, 'an answer without changes');
  t.is((await ask({ after: '2.0' })).isLost, true, 'a position of another start');
  map.free();
  feed.close();
  await t.throwsAsync(ask({ after: position }), { code: 'ERR_PROTOCOL' });
});

simulated('map feed: who falls behind further than it keeps is told so', async (t, world) => {
  const { feed, ask } = feedOf(world.operator.environment.clock);
  const { position = '' } = await ask({ list: 1 });
  const keys = keysOf(8_192);
  for (let done = 0; done <= MAP_KEPT_MAX_MARKS; done += keys.length) feed.note(keys.map((key) => `${key} ${done}`));
  t.is((await ask({ after: position })).isLost, true);
  const between = await ask({ list: 2 });
  for (let time = 0; time <= MAP_KEPT_MAX_BATCHES; time++) {
    feed.note([`page-${time}`]);
    await world.sleep(MAP_BATCH_MS + 1);
    if (time === 1) t.is((await ask({ after: between.position ?? '' })).isLost, false);
  }
  t.is((await ask({ after: between.position ?? '' })).isLost, true, 'few pages, but at many times');
  const again = await ask({ list: 3 });
  t.is((await ask({ after: again.position ?? '' })).isLost, false);
  await world.sleep(61_000);
  t.is((await ask({ after: again.position ?? '' })).isLost, true, 'nothing was kept while nobody asked');
  feed.close();
});

test('map feed: questions that are none are refused', async (t) => {
  const { feed, ask } = feedOf({} as ConstructorParameters<typeof MapFeed>[1]);
  for (const place of [{}, { list: -1 }, { list: 'one' }, { after: 7 }, { after: 'x'.repeat(65) }]) {
    await t.throwsAsync(ask(place as { list: number }), { code: 'ERR_PROTOCOL' });
  }
  await t.throwsAsync(ask({ list: 1, waitMs: 601 } as { list: number }), { code: 'ERR_PROTOCOL' });
  t.truthy(feed);
});
