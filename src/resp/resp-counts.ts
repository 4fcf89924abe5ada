import type { MetricsSink } from '../base/environment/metrics-sink.js';
import { countLookup } from '../metrics/metric-catalogue.js';
import type { CommandResult, CommandSpec } from './commands/command.js';

/** Name under which commands that do not exist are counted. */
const UNKNOWN = 'unknown';

/** Counts what Redis clients do. */
export class RespCounts {
  readonly #metrics: MetricsSink;
  commands = 0;
  refusedConnections = 0;

  /** `commands`: the names to count. Their series begin at 0, so that their first increase is visible. */
  constructor(metrics: MetricsSink, commands: Iterable<string>) {
    this.#metrics = metrics;
    for (const command of [...commands, UNKNOWN]) {
      for (const result of ['ok', 'nil', 'error']) {
        metrics.count('meshcache_resp_commands_total', 0, { command, result });
      }
    }
    for (const direction of ['in', 'out']) metrics.count('meshcache_resp_bytes_total', 0, { direction });
    metrics.count('meshcache_resp_refused_connections_total', 0, {});
  }

  /** Counts an ended command; undefined stands for one that does not exist. */
  command(spec: CommandSpec | undefined, result: CommandResult): void {
    this.commands++;
    this.#metrics.count('meshcache_resp_commands_total', 1, { command: spec?.name ?? UNKNOWN, result });
  }

  /** Counts keys that were looked up, and how many of them have a value. */
  lookup(asked: number, found: number): void {
    countLookup(this.#metrics, asked, found);
  }

  received(bytes: number): void {
    this.#metrics.count('meshcache_resp_bytes_total', bytes, { direction: 'in' });
  }

  sent(bytes: number): void {
    if (bytes > 0) this.#metrics.count('meshcache_resp_bytes_total', bytes, { direction: 'out' });
  }

  refused(): void {
    this.refusedConnections++;
    this.#metrics.count('meshcache_resp_refused_connections_total', 1, {});
  }
}
