import { type Command, Option } from 'commander';
import { decimalNumber, type OptionNeeds, pageBytes, poolBytes } from '../../command/options.js';
import type { Shape, StorageSpeed } from '../../sim/scenario/scenario.js';
import { SESSIONS, type SessionRequest, type SessionsWorkload, TOLD, type Told } from '../../sim/scenario/workload.js';
import { AGENT_OPTIONS, addAgentOptions, type GivenAgentOptions } from '../load/trace-requests.js';

/** Options of `sim cluster` for recorded agent sessions, and for the speeds of storage. */
export interface SimSessionsOptions extends GivenAgentOptions {
  readonly told: Told;
  readonly toldWrong: number;
  readonly toldError: number;
  readonly standsFor?: number;
  readonly diskRate?: number;
  readonly diskLatencyMs: number;
  readonly objectRate?: number;
  readonly objectLatencyMs: number;
  readonly networkRate?: number;
}

/** Names of all these options, besides the seed. */
export const SESSIONS_OPTIONS: readonly (keyof SimSessionsOptions)[] = [
  ...(['users', 'sessions', 'block', 'maxGap', 'sharedTools', 'told', 'toldWrong', 'toldError'] as const),
  ...(['standsFor', 'diskRate', 'diskLatencyMs', 'objectRate', 'objectLatencyMs', 'networkRate'] as const),
];

/** Options that change nothing without others. */
export const SESSIONS_NEEDS: OptionNeeds = {
  toldWrong: ['told'],
  toldError: ['told'],
  diskLatencyMs: ['diskRate'],
  diskRate: ['diskPages'],
  objectLatencyMs: ['objectRate'],
};

/** Adds the options of {@link SimSessionsOptions} to the command. */
export function addSessionsOptions(command: Command): Command {
  const share = decimalNumber(0, 1, 'of them all');
  const latency = decimalNumber(0, 10_000, 'milliseconds');
  const rate = (text: string) => poolBytes(text, ', the bytes of a second');
  command
    .option('--stands-for <size>', 'bytes that a page stands for: data takes the time of so many', pageBytes)
    .option('--network-rate <size>', 'bytes a second of each host, in each direction (default: 3gb)', rate)
    .option('--disk-rate <size>', 'bytes a second of each disk (default: 3gb read, 1.5gb written)', rate)
    .option('--disk-latency-ms <ms>', 'with --disk-rate: latency of a disk', latency, 0.08)
    .option('--object-rate <size>', 'there is an object store, to which each host has so many bytes a second', rate)
    .option('--object-latency-ms <ms>', 'with --object-rate: time until it answers', latency, 30);
  addAgentOptions(command);
  for (const option of [
    new Option('--told <what>', 'what agents tell after each answer: when they go on, and what to bring back by then')
      .choices([...TOLD])
      .default('nothing'),
    new Option('--told-wrong <share>', 'part of the told times that are those of another request')
      .argParser(share)
      .default(0),
    new Option('--told-error <share>', 'largest error of the others: 0.3 tells from 70 to 130 % of the time')
      .argParser(share)
      .default(0),
  ]) {
    command.addOption(option.helpGroup(AGENT_OPTIONS));
  }
  return command;
}

/** The workload of planned sessions. */
export function sessionsWorkload(
  requests: readonly SessionRequest[],
  { told, toldWrong, toldError }: SimSessionsOptions,
): Omit<SessionsWorkload, 'routing'> {
  return { ...SESSIONS, requests, told, toldWrong, toldError };
}

/** Latest time at which all requests have been answered, if each of them is held up for ten seconds at most. */
export function sessionsMs(requests: readonly SessionRequest[]): number {
  const answeredMs: number[] = [];
  let lastMs = 0;
  for (const { after, waitMs, answerMs } of requests) {
    const fromMs = after === undefined ? 0 : (answeredMs[after] as number);
    answeredMs.push(fromMs + waitMs + answerMs + HELD_UP_MS);
    lastMs = Math.max(lastMs, fromMs + waitMs + answerMs + HELD_UP_MS);
  }
  return lastMs;
}

/** Longest mean time for which a request is expected to wait for its pages. */
const HELD_UP_MS = 10_000;

/** The shape of nodes whose storage has the given speeds. */
export function storageShape({
  standsFor,
  diskRate,
  diskLatencyMs,
  objectRate,
  objectLatencyMs,
}: SimSessionsOptions): Pick<Shape, 'standsForBytes' | 'disk' | 'objectStore'> {
  const speed = (bytesPerS: number, latencyMs: number): StorageSpeed => ({ bytesPerS, latencyMs });
  return {
    ...(standsFor === undefined ? {} : { standsForBytes: standsFor }),
    ...(diskRate === undefined ? {} : { disk: speed(diskRate, diskLatencyMs) }),
    ...(objectRate === undefined ? {} : { objectStore: speed(objectRate, objectLatencyMs) }),
  };
}
