import type { AuditEvent, AuditSink } from '../../base/audit/audit.js';
import { SparseAudit } from '../../base/audit/sparse-audit.js';
import { within } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import { AuditFile } from './audit-file.js';
import { auditLine } from './audit-line.js';

/** Bytes of lines that wait while the file cannot be written; further ones are lost. */
const WAITING_MAX_BYTES = 1024 * 1024;
const RETRY_MS = 1000;
/** Time that the last lines have when the node closes. */
const LAST_LINES_TIMEOUT_MS = 1000;

export interface AuditLogOptions {
  readonly path: string;
  readonly nodeId: string;
  readonly env: Pick<Environment, 'clock' | 'files' | 'log' | 'metrics'>;
}

/** The audit log of a node: who has done what at its doors, and who was refused, one line each. Nothing waits for its file. */
export class AuditLog implements AuditSink {
  readonly #options: AuditLogOptions;
  readonly #file: AuditFile;
  readonly #events: SparseAudit;
  readonly #lines: SparseLog;
  #waiting: string[] = [];
  #waitingBytes = 0;
  #lastSeq = 0;
  /** Lines that were lost and are not mentioned in the file yet. */
  #lostCount = 0;
  #isFailing = false;
  #isWriting = false;
  #writing: Promise<void> | undefined;
  #endPause: () => void = () => {};
  #isClosing = false;

  /** Opens the file. Throws `ConfigError` unless this node can write to it. */
  static async open(options: AuditLogOptions): Promise<AuditLog> {
    const { path, env } = options;
    return new AuditLog(options, await AuditFile.open(path, env.files));
  }

  private constructor(options: AuditLogOptions, file: AuditFile) {
    const { env } = options;
    this.#options = options;
    this.#file = file;
    this.#events = new SparseAudit(env.clock, (event, count) => this.#add(event, count));
    this.#lines = new SparseLog(env);
    env.metrics.setGaugeProvider('meshcache_audit_failing', () => Number(this.#isFailing));
    this.record({ action: 'start', door: 'node', outcome: 'done' });
  }

  record(event: AuditEvent, count?: number): void {
    this.#events.record(event, count);
  }

  /** Writes what waits, if the file answers soon, and closes it. Idempotent. */
  async close(): Promise<void> {
    if (this.#isClosing) return;
    this.#isClosing = true;
    this.#events.end();
    this.#add({ action: 'stop', door: 'node', outcome: 'done' }, 1);
    this.#endPause();
    await within(this.#options.env.clock, LAST_LINES_TIMEOUT_MS, this.#ended());
  }

  async #ended(): Promise<void> {
    await this.#writing;
    await this.#file.close().catch(() => {});
  }

  #add(event: AuditEvent, count: number): void {
    const { nodeId, env } = this.#options;
    const line = auditLine(event, { seq: ++this.#lastSeq, wallMs: env.clock.wallMs(), nodeId, count });
    if (this.#waitingBytes + line.length > WAITING_MAX_BYTES) {
      this.#lostCount++;
      env.metrics.count('meshcache_audit_lines_total', 1, { result: 'lost' });
      return;
    }
    this.#waiting.push(line);
    this.#waitingBytes += line.length;
    if (!this.#isWriting) this.#writing = this.#write();
  }

  /** Writes lines until none wait. When the log closes, it gives up at the first failure. */
  async #write(): Promise<void> {
    this.#isWriting = true;
    while (this.#waiting.length > 0) {
      const batch = this.#waiting;
      const bytes = Buffer.from(batch.join(''), 'latin1');
      this.#waiting = [];
      for (let done = 0; done < bytes.length; ) {
        try {
          done = await this.#file.append(bytes, done);
        } catch (error) {
          this.#failed(error);
          if (this.#isClosing) return;
          await this.#pause();
        }
      }
      this.#waitingBytes -= bytes.length;
      this.#written(batch.length);
    }
    this.#isWriting = false;
  }

  #written(count: number): void {
    const { env, path } = this.#options;
    env.metrics.count('meshcache_audit_lines_total', count, { result: 'written' });
    if (this.#isFailing) env.log.log('warn', 'the audit log is written again', { path, lost: this.#lostCount });
    this.#isFailing = false;
    const lost = this.#lostCount;
    if (lost === 0) return;
    this.#lostCount = 0;
    this.#add({ action: 'audit', door: 'node', outcome: 'failed', reason: 'lines lost' }, lost);
  }

  #failed(error: unknown): void {
    this.#isFailing = true;
    const fields = { path: this.#options.path, error: (error as Error).message, lost: this.#lostCount || undefined };
    this.#lines.log('error', 'the audit log cannot be written; lines wait, and are lost when too many do', fields);
  }

  async #pause(): Promise<void> {
    await new Promise<void>((resolve) => {
      const cancel = this.#options.env.clock.after(RETRY_MS, resolve);
      this.#endPause = () => {
        cancel();
        resolve();
      };
    });
  }
}
