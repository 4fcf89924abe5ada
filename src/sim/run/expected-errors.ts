import type { FaultKind } from '../scenario/faults.js';
import { nodesOfHosts, type Scenario } from '../scenario/scenario.js';
import type { JournalLine } from '../world/journal.js';
import { nodeName } from './node-settings.js';

/** Messages of errors that nodes log correctly when their host has one of these faults. */
const EXPECTED: readonly (readonly [message: RegExp, kinds: readonly FaultKind[], reason?: RegExp])[] = [
  [/^disk tier: reading or writing fails/, ['diskfull', 'diskerror', 'diskreadonly', 'bitrot', 'diskslow']],
  [/^disk tier: .* set aside/, ['bitrot', 'diskerror', 'diskreadonly', 'diskfull']],
  // Blocks of the index that were not flushed may be lost while later ones are not.
  [/^disk tier: .* set aside/, ['power', 'rack'], /^the index is damaged/],
  // A node whose clock went back looks older than its own last start, until that start is forgotten.
  [/^another node with the same node_id has started later/, ['clockjump', 'clockdrift', 'clockstop']],
];

/** Tells which logged errors of a run mean that the program is wrong. */
export class ExpectedErrors {
  readonly #scenario: Scenario;
  readonly #startMs: () => number;

  /** `startMs` returns when the scenario's times began. */
  constructor(scenario: Scenario, startMs: () => number) {
    this.#scenario = scenario;
    this.#startMs = startMs;
  }

  has({ process, message, fields, atMs }: JournalLine): boolean {
    return EXPECTED.some(
      ([pattern, kinds, reason = /^/]) =>
        pattern.test(message) &&
        reason.test(String(fields.reason)) &&
        this.#scenario.faults.some(
          (fault) =>
            kinds.includes(fault.kind) &&
            fault.atMs + this.#startMs() <= atMs &&
            nodesOfHosts(this.#scenario, fault.nodes).some((node) => nodeName(node) === process),
        ),
    );
  }
}
