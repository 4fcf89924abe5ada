import test from 'ava';
import { conversationWorkload, uniquePages } from '../../src/cli/load/workload.js';

test('workload: the same seed gives the same requests, another seed others', (t) => {
  const first = conversationWorkload({ seed: 7, conversations: 30 });
  t.deepEqual(conversationWorkload({ seed: 7, conversations: 30 }), first);
  const other = new Set(conversationWorkload({ seed: 8, conversations: 30 }).flatMap((request) => request.keys));
  t.false(first.some((request) => request.keys.some((key) => other.has(key))));
});

test('workload: more conversations leave the earlier ones as they are', (t) => {
  const few = conversationWorkload({ seed: 3, conversations: 5 });
  const many = conversationWorkload({ seed: 3, conversations: 50 });
  const ofFirst = (requests: typeof few): typeof few => requests.filter((request) => request.conversation < 5);
  t.deepEqual(ofFirst(many), few);
});

test('workload: turns come in order and each prompt starts with the one before it', (t) => {
  const histories = new Map<number, readonly string[]>();
  const turns = new Map<number, number>();
  for (const { conversation, turn, keys } of conversationWorkload({ seed: 1, conversations: 60 })) {
    const before = histories.get(conversation) ?? [];
    t.is(turn, turns.get(conversation) ?? 0);
    t.deepEqual(keys.slice(0, before.length), before);
    t.true(keys.length > before.length);
    t.true(keys.every((key) => /^[0-9a-f]{64}$/.test(key)));
    t.is(new Set(keys).size, keys.length);
    histories.set(conversation, keys);
    turns.set(conversation, turn + 1);
  }
  t.is(histories.size, 60);
});

test('workload: keys are chained, so that equal keys have equal prefixes', (t) => {
  const parents = new Map<string, string>();
  for (const { keys } of conversationWorkload({ seed: 2, conversations: 60 })) {
    keys.forEach((key, i) => {
      const parent = i === 0 ? '' : (keys[i - 1] as string);
      t.is(parents.get(key) ?? parent, parent);
      parents.set(key, parent);
    });
  }
});

test('workload: conversations share their openings', (t) => {
  const requests = conversationWorkload({ seed: 1, conversations: 60 });
  const openings = new Map<string, number>();
  for (const { turn, keys } of requests) {
    const first = keys[0] as string;
    if (turn === 0) openings.set(first, (openings.get(first) ?? 0) + 1);
  }
  t.true(openings.size >= 2 && openings.size <= 6);
  t.true(Math.max(...openings.values()) > 60 / 4);
  const asked = requests.reduce((sum, request) => sum + request.keys.length, 0);
  t.true(uniquePages(requests) < asked / 3);
});
