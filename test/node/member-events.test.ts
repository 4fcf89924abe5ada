import test from 'ava';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { MEMBER_EVENTS_MAX_COUNT } from '../../src/base/limits.js';
import {
  type DepartedNode,
  type MemberEvent,
  mergeDeparted,
  mergeMemberEvents,
} from '../../src/metrics/node-report.js';
import { MemberEvents } from '../../src/node/reporting/member-events.js';
import { NodeInfo } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';

const HOUR_MS = 3_600_000;

/** What one node, called `me`, sees and remembers. */
class Observer {
  readonly clock = new ManualClock();
  readonly events = new MemberEvents(this.clock, noMetrics);
  #members = membersOf({ me: 1 });

  see(incarnations: Readonly<Record<string, number>>, left: readonly string[] = []): void {
    const before = this.#members;
    this.#members = membersOf({ me: 1, ...incarnations });
    const changed = [...new Set([...before.keys(), ...this.#members.keys()])];
    this.events.note({ before, after: this.#members, changed }, (nodeId) => left.includes(nodeId));
  }

  get departed(): string[] {
    return this.events.departed().map(({ node_id, how }) => `${node_id} ${how}`);
  }

  get changes(): string[] {
    return this.events.list().map(({ node_id, change }) => `${node_id} ${change}`);
  }
}

function membersOf(incarnations: Readonly<Record<string, number>>): Map<string, NodeInfo> {
  return new Map(
    Object.entries(incarnations).map(([nodeId, incarnation]) => [
      nodeId,
      new NodeInfo({ nodeId, controlHost: '10.0.0.1', controlPort: 7, incarnation }),
    ]),
  );
}

function gone(node_id: string, how: DepartedNode['how'], more: Partial<DepartedNode> = {}): DepartedNode {
  return { node_id, incarnation: 1, control_endpoint: '10.0.0.1:7', how, time_ms: 100, ...more };
}

test('member events: a lost node and one that left are two things, and are remembered', (t) => {
  const me = new Observer();
  me.see({ a: 1, b: 1 });
  t.deepEqual(me.changes, [], 'those were there before this node');
  me.see({ a: 1, b: 1, c: 1 });
  me.see({ b: 1, c: 1 }, ['a']);
  me.clock.advance(10);
  me.see({ c: 2 });
  t.deepEqual(me.changes, ['c joined', 'a left', 'b lost', 'c restarted']);
  t.deepEqual(me.departed, ['a left', 'b lost']);
  const [, lost] = me.events.departed();
  t.deepEqual(lost, gone('b', 'lost', { time_ms: me.clock.wallMs() }));
});

test('member events: who comes back is not gone any more, and nobody is remembered for ever', (t) => {
  const me = new Observer();
  me.see({ a: 1, b: 1, c: 1 });
  me.see({}, ['a']);
  me.see({ b: 2 });
  t.deepEqual(me.departed, ['a left', 'c lost']);
  me.clock.advance(HOUR_MS);
  t.deepEqual(me.departed, ['c lost']);
  me.clock.advance(23 * HOUR_MS);
  t.deepEqual(me.departed, []);
});

test('member events: however many nodes go, the lost ones are remembered longest', (t) => {
  const me = new Observer();
  const many = Object.fromEntries(Array.from({ length: MEMBER_EVENTS_MAX_COUNT + 20 }, (_, i) => [`n${i}`, 1]));
  me.see({ crashed: 1, ...many });
  me.see(many);
  me.see({}, Object.keys(many));
  t.is(me.departed.length, MEMBER_EVENTS_MAX_COUNT);
  t.is(me.departed[0], 'crashed lost');
  t.is(me.events.list().length, MEMBER_EVENTS_MAX_COUNT);
});

test('member events: what several nodes have seen is told once, as the first of them noticed it', (t) => {
  const reports = [
    { departed: [gone('a', 'lost', { time_ms: 105 }), gone('b', 'lost')] },
    { departed: [gone('a', 'lost', { time_ms: 103 }), gone('b', 'left', { time_ms: 110 }), gone('back', 'lost')] },
    { departed: [gone('a', 'lost', { time_ms: 90, incarnation: 0 })] },
    {},
  ];
  t.deepEqual(mergeDeparted(reports, new Set(['me', 'back'])), [
    gone('a', 'lost', { time_ms: 103 }),
    gone('b', 'left', { time_ms: 100 }),
  ]);
});

test('member events: of n nodes that each saw n changes, n are left', (t) => {
  const nodes = ['a', 'b', 'c', 'd'];
  const seenBy = (observer: number): MemberEvent[] =>
    nodes.map((node_id, i) => ({ node_id, incarnation: 1, change: 'joined', time_ms: 10 * i + observer }));
  const reports = [3, 1, 2].map((observer) => ({ member_events: seenBy(observer) }));
  t.deepEqual(
    mergeMemberEvents(reports).map(({ node_id, time_ms }) => [node_id, time_ms]),
    nodes.map((node_id, i) => [node_id, 10 * i + 1]),
  );
  const lost: MemberEvent = { node_id: 'a', incarnation: 1, change: 'lost', time_ms: 50 };
  const merged = mergeMemberEvents([{ member_events: [lost] }, { member_events: [{ ...lost, change: 'left' }] }]);
  t.deepEqual(merged, [{ ...lost, change: 'left' }]);
});
