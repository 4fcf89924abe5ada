import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { InvariantError } from '../../src/base/errors.js';
import { FILLED, LocalPages, type PageContent, type PageState, READABLE } from '../../src/pool/slots/local-pages.js';

const CONTENT: PageContent = { length: 4096, checksum: 7, version: 1, kind: 'computed', expires: 0, setBy: 0 };
const COPY: PageContent = { ...CONTENT, setBy: 9 };

test('local pages: a page goes from state to state as its table says, and nowhere else', (t) => {
  const states: readonly PageState[] = ['filling', 'earlier', 'unconfirmed', 'live', 'stated'];
  const next: Record<PageState, readonly PageState[]> = {
    filling: ['unconfirmed', 'live'],
    earlier: ['live'],
    unconfirmed: ['live', 'stated'],
    live: ['stated'],
    stated: ['live'],
  };
  for (const from of states) {
    for (const to of states) {
      const local = new LocalPages();
      local.set(3, COPY, from === 'stated' ? 'live' : from);
      if (from === 'stated') local.move(3, 'stated');
      const isAllowed = from === to || next[from].includes(to);
      const move = () => local.move(3, to);
      if (isAllowed) t.notThrows(move, `${from} to ${to}`);
      else t.throws(move, { instanceOf: InvariantError, message: new RegExp(`slot 3 goes from ${from} to ${to}`) });
      t.is(local.stateOf(3), isAllowed ? to : from);
      local.freed(3);
      t.deepEqual([local.isIn(3, FILLED), local.countOf(from), local.countOf(to)], [false, 0, 0]);
    }
  }
  t.throws(() => new LocalPages().set(0, CONTENT, 'stated'), { message: /slot 0 goes from gone to stated/ });
});

test('local pages: what is read back is what was set, in any order of pages that come and go', (t) => {
  const seed = Math.floor(Math.random() * 2 ** 32);
  t.log(`seed ${seed}`);
  const source = seededRandom(seed);
  const random = () => source.u32() / 2 ** 32;
  const local = new LocalPages();
  const model = new Map<number, readonly [PageContent, PageState]>();
  for (let step = 0; step < 5_000; step++) {
    const slot = Math.floor(random() * 3_000);
    const here = model.get(slot);
    if (here !== undefined && random() < 0.4) {
      local.freed(slot);
      model.delete(slot);
    } else if (here === undefined) {
      const state = (['filling', 'earlier', 'unconfirmed', 'live'] as const)[Math.floor(random() * 4)] as PageState;
      const [kind, expires] = [random() < 0.5 ? 'named' : 'computed', Math.floor(random() * 3)] as const;
      const setBy = state === 'unconfirmed' ? 1 + step : Math.floor(random() * 2);
      const content = { length: step, checksum: step + 1, version: step + 2, kind, expires, setBy };
      local.set(slot, content, state);
      model.set(slot, [content, state]);
    } else {
      local.move(slot, 'live');
      model.set(slot, [here[0], 'live']);
    }
  }
  const filled = new Set([...model].filter(([, [, state]]) => state !== 'filling').map(([slot]) => slot));
  local.verify(filled);
  for (const [slot, [content, state]] of model) {
    const { length, checksum, version, kind, expires, setBy } = content;
    const found = [local.lengthOf(slot), local.checksumOf(slot), local.versionOf(slot), local.kindOf(slot)];
    t.deepEqual(
      [...found, local.expiring.expiresOf(slot), local.setByAt(slot), local.stateOf(slot)],
      [length, checksum, version, kind, expires, setBy, state],
    );
    t.is(local.isIn(slot, READABLE), state === 'live');
  }
  const isFilling = (slot: number) => model.get(slot)?.[1] === 'filling';
  t.deepEqual(
    [...local.slotsIn('filling')],
    [...model.keys()].filter(isFilling).sort((a, b) => a - b),
  );
});

test('local pages: a page without bytes, a count that is off, and an own page that waits for an owner are found', (t) => {
  const local = new LocalPages();
  local.set(0, CONTENT, 'live');
  t.notThrows(() => local.verify(new Set([0])));
  t.throws(() => local.verify(new Set()), { instanceOf: InvariantError, message: /slot 0 is live, and has no page/ });
  local.set(1, CONTENT, 'unconfirmed');
  t.throws(() => local.verify(new Set([0, 1])), { message: /slot 1 is unconfirmed, and no copy/ });
});
