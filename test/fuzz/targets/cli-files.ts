import { ConfigError } from '../../../src/base/errors.js';
import { CALL_MAX_KEYS } from '../../../src/base/limits.js';
import { readAgentSessions } from '../../../src/cli/load/agent-sessions.js';
import { readTrace, type TraceRequest } from '../../../src/cli/load/trace.js';
import { traceLines } from '../../../src/cli/load/trace-lines.js';
import { playedRequests } from '../../../src/cli/load/trace-requests.js';
import { parseConfiguration, readConfiguration } from '../../../src/cli/settings/configuration.js';
import { sourceConfig } from '../../../src/cli/settings/endpoints.js';
import { CommandFailure } from '../../../src/command/context.js';
import { CONFIG_KEYS } from '../../../src/config.js';
import { check, type Fuzzer, unlessRefused, unlessRejected } from '../fuzzer.js';
import { Scratch } from '../scratch-file.js';
import { checkSecrecy } from '../secrecy.js';
import { inputValue, valueInput } from '../values.js';

const scratch = new Scratch();
const LINE = '{"timestamp": 27, "input_length": 6758, "output_length": 500, "hash_ids": [0, 14, 15]}';

export const traceFiles: Fuzzer = {
  name: 'trace-files',
  what: 'trace files',
  form: 'bytes',
  tokens: [
    '"timestamp"',
    '"hash_ids"',
    '[]',
    'null',
    '1e999',
    '-1',
    '9007199254740993',
    '\r\n',
    '\n',
    '{}',
    '"__proto__"',
    '\u2028',
  ].map((text) => Buffer.from(text)),
  seeds: () => [`${LINE}\n`, `${LINE}\r\n\r\n${LINE}`, ''].map((text) => Buffer.from(text)),
  async run(input) {
    const path = scratch.write('trace.jsonl', input);
    const requests = await unlessRejected([CommandFailure], async () => {
      const all: TraceRequest[] = [];
      for await (const request of readTrace(path)) all.push(request);
      return all;
    });
    for (const { timestampMs, inputTokens, outputTokens, hashIds } of requests?.value ?? []) {
      for (const amount of [timestampMs, inputTokens, outputTokens])
        check(Number.isFinite(amount) && amount >= 0, `${amount}`);
      check(hashIds.length <= CALL_MAX_KEYS && hashIds.every((id) => Number.isSafeInteger(id) && id >= 0), 'hash_ids');
    }
  },
  async close() {
    scratch.remove();
  },
};

const SESSION = [
  '{"conversation":1,"toolTokens":128}',
  '{"t":0.0,"in":320,"out":9,"h":[1,5],"api":7.34}',
  '{"subagent":1,"of":0,"t":8,"toolTokens":64}',
  '{"t":8,"in":128,"out":9,"h":[1,1,7,1],"a":1,"m":2,"think":1}',
  '{"t":19.0,"in":384,"out":9,"h":[1,6],"api":9.19,"think":12.0}',
].join('\n');
/** Runs whose pages are numbered; a short line may have a million blocks. */
const FUZZED_MAX_BLOCKS = 10_000;

export const agentFiles: Fuzzer = {
  name: 'agent-files',
  what: 'files of recorded agent sessions',
  form: 'bytes',
  tokens: ['"conversation"', '"subagent"', '"of"', '"think"', '"h":[]', 'null', '1e999', '1e308', '-1', '\n', '{}'].map(
    (text) => Buffer.from(text),
  ),
  seeds: () => [SESSION, `${SESSION}\n${SESSION}\n`, ''].map((text) => Buffer.from(text)),
  async run(input) {
    const path = scratch.write('agents.jsonl', input);
    const read = await unlessRejected([CommandFailure], () => readAgentSessions(traceLines(path)));
    const sessions = read?.value ?? [];
    const turns = sessions.flatMap(({ threads }) => threads.flatMap((thread) => thread.turns));
    const blocks = turns.reduce((sum, { runs }) => sum + runs.reduce((all, n, i) => all + (i % 2) * n, 0), 0);
    if (blocks > FUZZED_MAX_BLOCKS) return;
    let lastMs = 0;
    let requests = 0;
    for (const request of playedRequests(sessions, { users: 2, block: 64, maxGap: 60, sharedTools: true, seed: 1 })) {
      const { timestampMs, hashIds, nextInMs = Number.NaN } = request;
      check(Number.isFinite(timestampMs) && timestampMs >= lastMs, `at ${timestampMs} after ${lastMs}`);
      check(nextInMs >= 0, `next in ${nextInMs}`);
      check(hashIds.length > 0 && hashIds.every((id) => Number.isSafeInteger(id) && id >= 0), 'page numbers');
      lastMs = timestampMs;
      requests++;
    }
    const filled = turns.filter(({ runs }) => runs.some((n, i) => i % 2 === 1 && n > 0)).length;
    check(requests === filled, `${requests} requests of ${filled}`);
  },
  async close() {
    scratch.remove();
  },
};

const SECRET = 'fuzz-secret-0123456789';

export const configFiles: Fuzzer = {
  name: 'config-files',
  what: 'configuration files of the command line',
  form: 'value',
  tokens: CONFIG_KEYS.map((key) => Buffer.from(`"${key}"`)),
  seeds: () => [
    valueInput({ discovery_addr: 'h:1', metrics_token: SECRET }),
    valueInput({ discoveryAddr: 'h:1', cluster_secret: SECRET, disk_enabled: true, disk_path: '/d', vnodes: null }),
    // Cause: the address was made text before it was checked.
    valueInput({ discovery_addr: { toString: '' } }),
  ],
  async run(input) {
    const path = scratch.write('node.json', input);
    const said: string[] = [];
    const isRefused = (error: unknown): boolean => {
      if (!(error instanceof CommandFailure || error instanceof ConfigError)) return false;
      said.push(error.message);
      return true;
    };
    try {
      const read = await readConfiguration({ config: path }, {});
      said.push(...read.warnings);
      const prototype: unknown = Object.getPrototypeOf(read.mapping);
      check(prototype === null || prototype === Object.prototype, 'a key that became the prototype');
      if (read.mapping.discovery_addr !== undefined) unlessRefused([CommandFailure], () => sourceConfig(read));
      parseConfiguration(read);
    } catch (error) {
      if (!isRefused(error)) throw error;
    }
    checkSecrecy(inputValue(input)?.value, said);
  },
  async close() {
    scratch.remove();
  },
};
