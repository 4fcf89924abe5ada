import { existsSync } from 'node:fs';
import test from 'ava';
import { AgentLoop, type AgentLoopOptions, type AgentRequest } from '../../src/cli/load/agent-loop.js';
import { AgentPages } from '../../src/cli/load/agent-pages.js';
import { type AgentSession, beginsAgentSessions, readAgentSessions } from '../../src/cli/load/agent-sessions.js';
import { traceLines } from '../../src/cli/load/trace-lines.js';
import { playedRequests } from '../../src/cli/load/trace-requests.js';
import { unless } from '../_support/unless.js';

/** Real recorded sessions, if they are here; they are not part of the project. */
const RECORDING = process.env.MESHCACHE_AGENTS ?? '../shared/data/agentic_sessions.jsonl';
const withRecording = unless(existsSync(RECORDING) ? '' : `no ${RECORDING}, see MESHCACHE_AGENTS`);

const HEADER = { conversation: 1, toolTokens: 128, systemTokens: 64 };
const turnLine = (t: number, more: object = {}) => ({ t, in: 256, out: 9, h: [1, 4], ...more });

async function* linesOf(records: readonly unknown[]) {
  for (const [i, record] of records.entries()) {
    yield { text: typeof record === 'string' ? record : JSON.stringify(record), where: `file line ${i + 1}` };
  }
}

async function sessionsOf(...records: readonly unknown[]): Promise<AgentSession[]> {
  return readAgentSessions(linesOf(records));
}

/** All requests of a loop, answered with no delay unless one is given. */
function played(
  sessions: readonly AgentSession[],
  options: Partial<AgentLoopOptions> = {},
  delayMs: (request: AgentRequest) => number = () => 0,
): AgentRequest[] {
  const loop = new AgentLoop(sessions, { users: 1, maxGapS: 3600, seed: 1, ...options });
  const requests: AgentRequest[] = [];
  for (let request = loop.next(); request !== undefined; request = loop.next()) {
    requests.push(request);
    loop.answered(delayMs(request));
  }
  return requests;
}

/** Seconds between the first request and each one. */
function timesS(requests: readonly AgentRequest[]): number[] {
  return requests.map(({ atMs }) => (atMs - (requests[0]?.atMs ?? 0)) / 1000);
}

test('agent sessions: lines become sessions, their subagents and requests in the order of time', async (t) => {
  const sessions = await sessionsOf(
    HEADER,
    turnLine(10, { api: 2, think: 3, m: 1 }),
    turnLine(0, { api: 5 }),
    { subagent: 1, of: 0, t: 4, toolTokens: 64, systemTokens: 0 },
    turnLine(4, { a: 1, h: [7, 1, 9, 2] }),
    { conversation: 'without requests' },
    { conversation: 2 },
    turnLine(3),
  );
  t.is(sessions.length, 2);
  const [agent, subagent] = sessions[0]?.threads ?? [];
  t.like(agent, { toolTokens: 128, parent: undefined });
  t.deepEqual(agent?.turns, [
    { atS: 0, inputTokens: 256, outputTokens: 9, runs: [1, 4], answerS: 5, thinkS: undefined, model: 0 },
    { atS: 10, inputTokens: 256, outputTokens: 9, runs: [1, 4], answerS: 2, thinkS: 3, model: 1 },
  ]);
  t.like(subagent, { toolTokens: 64, parent: 0 });
  t.deepEqual(subagent?.turns[0]?.runs, [7, 1, 9, 2]);
  t.is(sessions[1]?.threads[0]?.toolTokens, 0);
});

test('agent sessions: the first line tells the format', (t) => {
  for (const [text, is] of [
    [JSON.stringify(HEADER), true],
    ['{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1]}', false],
    ['[{"conversation": 1}]', false],
    ['"conversation"', false],
    ['{"conversation"', false],
  ] as const) {
    t.is(beginsAgentSessions({ text, where: '' }), is, text);
  }
});

const BAD: readonly (readonly [what: string, line: unknown, message: RegExp])[] = [
  ['text that is not JSON', '{"t": ', /line 2: not JSON/],
  ['a line that is no object', '[1]', /line 2: must be an object with conversation, subagent or t/],
  ['a request without time', { in: 1, out: 1, h: [] }, /line 2: t must be a number from 0 on, got nothing/],
  ['a think time that is text', turnLine(1, { think: '3' }), /line 2: think must be a number from 0 on, got "3"/],
  ['a time in the far future', turnLine(1e10), /line 2: t is 10000000000 seconds, allowed are 1000000000/],
  ['half a run', turnLine(1, { h: [1, 2, 3] }), /line 2: h must be a list of pairs of whole numbers/],
  ['a block with a fraction', turnLine(1, { h: [1, 0.5] }), /line 2: h must be a list of pairs of whole numbers/],
  ['more blocks than a call may have', turnLine(1, { h: [1, 1e15] }), /line 2: h has 1000000000000000 blocks/],
  ['an unknown subagent', turnLine(1, { a: 1 }), /line 2: a names a subagent that was not announced/],
  ['an unknown parent', { subagent: 2, of: 1 }, /line 2: of names a subagent that was not announced/],
  ['a subagent with the number of the agent', { subagent: 0 }, /line 2: subagent 0 was announced before/],
];

for (const [what, line, message] of BAD) {
  test(`agent sessions: ${what} is refused with the line's number`, async (t) => {
    await t.throwsAsync(sessionsOf(HEADER, line, turnLine(5)), { message });
  });
}

test('agent sessions: a request before the first session is refused', async (t) => {
  await t.throwsAsync(sessionsOf(turnLine(1)), { message: /line 1: comes before the first line with conversation/ });
});

test('agent pages: equal numbers have equal prefixes, and only full pages have one', async (t) => {
  const [session] = await sessionsOf(
    HEADER,
    turnLine(0, { h: [1, 9] }),
    turnLine(1, { h: [1, 7, 20, 2] }),
    turnLine(2, { h: [1, 9], m: 1 }),
    turnLine(3, { h: [10, 4, 5, 4] }),
    turnLine(4, { h: [1, 4, 5, 2, 5, 2] }),
  );
  const [agent] = session!.threads;
  const pages = new AgentPages({ pageTokens: 256, isToolShared: false });
  const numbers = agent!.turns.map((turn) => pages.pagesOf(turn, agent!, 0));
  t.deepEqual(numbers[0], [0, 1]);
  t.deepEqual(numbers[1], [0, 2], 'the second page ends in other blocks');
  t.deepEqual(numbers[2], [3, 4], 'another model');
  t.deepEqual(numbers[3], [5, 6], 'the blocks of the first request’s second page, after another page');
  t.deepEqual(numbers[4], [0, 7], 'the second page begins as that of the first request');
  t.deepEqual(pages.pagesOf({ ...agent!.turns[0]!, runs: [1, 3] }, agent!, 0), []);
});

test('agent pages: sessions share tool prompts of one length, as far as they fill pages', async (t) => {
  const [first, second, longer] = await sessionsOf(
    { conversation: 1, toolTokens: 600 },
    turnLine(0, { h: [1, 16] }),
    { conversation: 2, toolTokens: 600 },
    turnLine(0, { h: [1, 16] }),
    { conversation: 3, toolTokens: 601 },
    turnLine(0, { h: [1, 16] }),
  );
  const numbersOf = (isToolShared: boolean) => {
    const pages = new AgentPages({ pageTokens: 256, isToolShared });
    const numbers = (session: AgentSession | undefined, i: number) =>
      session!.threads.flatMap((thread) => thread.turns.flatMap((turn) => pages.pagesOf(turn, thread, i)));
    return [first, second, longer].map(numbers);
  };
  // 600 tokens are nine whole blocks: two pages of four.
  t.deepEqual(numbersOf(true), [
    [0, 1, 2, 3],
    [0, 1, 4, 5],
    [6, 7, 8, 9],
  ]);
  t.deepEqual(numbersOf(false)[1], [4, 5, 6, 7]);
});

test('agent loop: a request begins after the answer and the think time, not at the recorded time', async (t) => {
  const sessions = await sessionsOf(
    HEADER,
    turnLine(0, { api: 2.5 }),
    turnLine(30, { api: 4, think: 10 }),
    // Without a think time, or without the time of the answer, the times of the requests say it.
    turnLine(50, {}),
    turnLine(57, { api: 1, think: 100 }),
  );
  const requests = played(sessions);
  t.deepEqual(timesS(requests), [0, 12.5, 12.5 + 20, 12.5 + 20 + 7]);
  t.deepEqual(
    requests.map(({ nextInMs }) => nextInMs),
    [12_500, 20_000, 7_000, Number.POSITIVE_INFINITY],
  );
});

test('agent loop: pauses are cut, but not while a subagent runs', async (t) => {
  const sessions = await sessionsOf(
    HEADER,
    turnLine(0, { api: 1 }),
    turnLine(1001, { api: 1, think: 1000 }),
    { subagent: 1, of: 0 },
    turnLine(1005, { a: 1, api: 300 }),
    turnLine(1305, { a: 1, api: 300, think: 0 }),
    turnLine(1610, { api: 1, think: 608 }),
  );
  t.deepEqual(timesS(played(sessions)), [0, 1001, 1005, 1305, 1610]);
  // The 1,000 seconds become 60; the agent goes on 5 seconds after the subagent's last answer, as before.
  t.deepEqual(timesS(played(sessions, { maxGapS: 60 })), [0, 61, 65, 365, 670]);
  // A pause of 2 seconds is left of the 1,000, of the 3 before the subagent, and of the 5 after it.
  t.deepEqual(timesS(played(sessions, { maxGapS: 2 })), [0, 3, 6, 306, 608]);
});

test('agent loop: a delay moves what follows from the answer, and the next session', async (t) => {
  const sessions = await sessionsOf(
    HEADER,
    turnLine(0, { api: 1 }),
    { subagent: 1, of: 0 },
    turnLine(0.5, { a: 1, api: 1 }),
    turnLine(11, { api: 2, think: 10 }),
    { conversation: 2 },
    turnLine(0, { api: 1 }),
    { subagent: 1, of: 0 },
    turnLine(0.5, { a: 1, api: 1 }),
    turnLine(11, { api: 2, think: 10 }),
  );
  t.deepEqual(timesS(played(sessions)), [0, 0.5, 11, 13, 13.5, 24]);
  const delayed = played(sessions, {}, ({ turn }) => (turn.atS === 0 ? 1500 : turn.atS === 11 ? 500 : 0));
  t.deepEqual(timesS(delayed), [0, 0.5, 12.5, 15, 15.5, 27.5]);
});

test('agent loop: users play each session once, one at a time; the seed says in which order', async (t) => {
  const records = Array.from({ length: 30 }, (_, i) => [
    { conversation: i },
    turnLine(0, { api: 1 + i }),
    turnLine(60, { api: 1, think: 5 }),
  ]).flat();
  const sessions = await sessionsOf(...records);
  const requests = played(sessions, { users: 4 });
  t.is(requests.length, 60);
  t.is(new Set(requests.map(({ session }) => session)).size, 30);
  const times = requests.map(({ atMs }) => atMs);
  t.deepEqual(
    times,
    times.toSorted((a, b) => a - b),
  );
  for (const user of [0, 1, 2, 3]) {
    const own = requests.filter((request) => request.user === user).map(({ session }) => session);
    t.true(own.length > 4);
    for (let i = 0; i < own.length; i += 2) t.is(own[i], own[i + 1], 'the sessions of a user do not overlap');
  }
  t.deepEqual(played(sessions, { users: 4 }), requests);
  t.notDeepEqual(
    played(sessions, { users: 4, seed: 2 }).map(({ session }) => session),
    requests.map(({ session }) => session),
  );
  t.is(new Set(played(sessions, { users: 4, sessions: 7 }).map(({ session }) => session)).size, 7);
});

withRecording('agent sessions: the recording is played whole, each request after the answer before it', async (t) => {
  const sessions = await readAgentSessions(traceLines(RECORDING));
  const requests = played(sessions, { users: 32 });
  t.is(requests.length, 30_138);
  const endOf = new Map<object, number>();
  for (const { atMs, thread, turn } of requests) {
    t.true(atMs >= (endOf.get(thread) ?? 0));
    endOf.set(thread, atMs + Math.floor(1000 * (turn.answerS ?? 0)));
  }
  const seen = new Set<number>();
  let [asked, found] = [0, 0];
  const options = { users: 32, block: 512, maxGap: 3600, sharedTools: false, seed: 1 };
  for (const { hashIds } of playedRequests(sessions, options)) {
    const firstMiss = hashIds.findIndex((id) => !seen.has(id));
    asked += hashIds.length;
    found += firstMiss < 0 ? hashIds.length : firstMiss;
    for (const id of hashIds) seen.add(id);
  }
  // With blocks of 64 tokens 96.3 % of all recorded sessions are found within the sessions alone.
  t.true(found / asked > 0.94 && found / asked < 0.97, `${found / asked}`);
});

test('agent sessions: the causes of requests lead to the times at which they are made', async (t) => {
  const sessions = await sessionsOf(
    HEADER,
    turnLine(0, { api: 5 }),
    turnLine(9, { api: 2, think: 4 }),
    { subagent: 1, of: 0, t: 4, toolTokens: 64, systemTokens: 0 },
    turnLine(7, { a: 1, api: 30 }),
    turnLine(50, { a: 1, api: 1, think: 13 }),
    { ...HEADER, conversation: 2 },
    turnLine(0, { api: 3 }),
    turnLine(8, { api: 3, think: 5 }),
  );
  for (const users of [1, 2]) {
    const requests = played(sessions, { users });
    t.is(requests.length, 6);
    for (const [i, { atMs, cause }] of requests.entries()) {
      const { after = -1, isAnswered, waitMs } = cause;
      t.true(after < i);
      const before = requests[after];
      const fromMs = before === undefined ? 0 : before.atMs + (isAnswered ? before.answerMs : 0);
      t.is(atMs, fromMs + waitMs, `${users} users, request ${i}`);
    }
    t.is(requests.filter(({ cause }) => cause.after === undefined).length, users);
  }
});
