import { dirname } from 'node:path';
import { reduced } from '../../base/assert.js';
import { type AuditActor, type AuditEvent, type AuditSink, SparseAudit } from '../../base/environment/audit.js';
import { within } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import { type Files, isWritableByAll, type OpenFile } from '../../base/environment/files.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import { ConfigError } from '../../base/errors.js';
import { distrustOfFolder } from '../../disk/folder/directory-lock.js';

/** Only the user of this process, and root, may read the audit log. */
const FILE_MODE = 0o600;

const LINE_FEED = 10;

interface Opened {
  readonly file: OpenFile;
  readonly identity: string;
  /** Whether the file ends within a line, for example after a crash on a full disk. */
  isWithinLine: boolean;
}

/** Longest text in a line, in characters; the rest is cut off. */
const TEXT_MAX_CHARACTERS = 128;

const DETAIL_MAX_CHARACTERS = 256;

/** Fields of a line in addition to those of its event. */
interface AuditLineFacts {
  /**
   * Sequence number of the line since this start of the node: a missing number means a lost or removed line, a repeated
   * one means a line that was written again after a failure.
   */
  readonly seq: number;
  /** Milliseconds since 1970. */
  readonly wallMs: number;
  readonly nodeId: string;
  /** Number of events of this kind that the line stands for; it describes the last one. */
  readonly count: number;
}

/** Bytes of lines that wait while the file cannot be written; further lines are lost. */
const WAITING_MAX_BYTES = 1024 * 1024;
const RETRY_MS = 1000;
/** Time to write the last lines when the node closes. */
const LAST_LINES_TIMEOUT_MS = 1000;

export interface AuditLogOptions {
  readonly path: string;
  readonly nodeId: string;
  readonly env: Pick<Environment, 'clock' | 'files' | 'log' | 'metrics'>;
}

/**
 * The audit log of a node: who did what at its doors, and who was refused, one line per event or group of events.
 * Nothing waits for its file.
 */
export class AuditLog implements AuditSink {
  readonly #options: AuditLogOptions;
  readonly #file: AuditFile;
  readonly #events: SparseAudit;
  readonly #lines: SparseLog;
  #waiting: string[] = [];
  #waitingBytes = 0;
  #lastSeq = 0;
  /** Lost lines that the file does not mention yet. */
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

  /** Writes waiting lines, if the file answers soon, and closes it. Idempotent. */
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

  /** Writes lines until none wait. While the log closes, it gives up at the first failure. */
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
      this.#waitingBytes = reduced('audit log: waiting bytes', this.#waitingBytes, bytes.length);
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

/** Formats one line: a JSON object in ASCII, so that no text in it can end the line. */
function auditLine(
  { action, door, outcome, actor, namespace, reason, detail }: AuditEvent,
  facts: AuditLineFacts,
): string {
  const { seq, wallMs, nodeId, count } = facts;
  const { user, uid, pid, address, client }: AuditActor = actor ?? {};
  const json = JSON.stringify({
    seq,
    time: new Date(wallMs).toISOString(),
    node: short(nodeId),
    door,
    action,
    outcome,
    reason: short(reason),
    user: short(user),
    uid,
    pid,
    address: short(address),
    client: short(client),
    namespace: short(namespace),
    count: count > 1 ? count : undefined,
    detail: short(detail, DETAIL_MAX_CHARACTERS),
  });
  return `${json.replaceAll(/[\x7f-\uffff]/g, escaped)}\n`;
}

function short(text: string | undefined, maxCharacters = TEXT_MAX_CHARACTERS): string | undefined {
  return text !== undefined && text.length > maxCharacters ? `${text.slice(0, maxCharacters)}…` : text;
}

/**
 * Escapes a character, because terminals and line-based programs also know line ends and text directions beyond ASCII.
 */
function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/**
 * The file of an audit log, to which lines are appended. If the file at the path was renamed or removed, a new one is
 * created there, which is all that log rotation needs.
 */
class AuditFile {
  readonly #path: string;
  readonly #files: Files;
  #opened: Opened;

  /**
   * Opens the file; creates it and its folder if they are missing. Throws {@link ConfigError} unless this node can
   * append to it, and only the user of this process or root can have put it there.
   */
  static async open(path: string, files: Files): Promise<AuditFile> {
    try {
      return new AuditFile(path, files, await opened(path, files));
    } catch (cause) {
      if (cause instanceof ConfigError) throw cause;
      throw refusal(
        `${path} cannot be opened: ${(cause as Error).message}; choose a path that this user may write`,
        cause,
      );
    }
  }

  private constructor(path: string, files: Files, first: Opened) {
    this.#path = path;
    this.#files = files;
    this.#opened = first;
  }

  /**
   * Appends lines from the offset `from`; those before it were appended earlier. Resolves with the offset up to which
   * they are in the file now. A new file always begins with a complete line. Rejects with the error of the system, or
   * with the reason why the file at the path cannot be used.
   */
  async append(lines: Buffer, from: number): Promise<number> {
    let start = from;
    if (await this.#hasMoved()) {
      const next = await opened(this.#path, this.#files);
      void this.#opened.file.close().catch(() => {});
      this.#opened = next;
      start = from === 0 ? 0 : lines.lastIndexOf(LINE_FEED, from - 1) + 1;
    }
    const { file, isWithinLine } = this.#opened;
    if (isWithinLine) await file.write([Buffer.of(LINE_FEED)], 0);
    this.#opened.isWithinLine = false;
    return start + (await file.write([lines.subarray(start)], 0));
  }

  close(): Promise<void> {
    return this.#opened.file.close();
  }

  async #hasMoved(): Promise<boolean> {
    try {
      return (await this.#files.status(this.#path)).identity !== this.#opened.identity;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return true;
      throw error;
    }
  }
}

async function opened(path: string, files: Files): Promise<Opened> {
  const folder = dirname(path);
  await files.mkdir(folder, { recursive: true });
  const distrust = distrustOfFolder(folder, await files.status(folder));
  if (distrust !== undefined) throw refusal(`${distrust.why}; choose a path in a folder of this user`);
  const file = await files.open(path, { write: true, create: true, append: true, mode: FILE_MODE });
  try {
    const status = await file.status();
    const { isFile, isForeign, identity, sizeBytes } = status;
    if (!isFile) throw refusal(`${path} is no file; choose another path`);
    if (isForeign || isWritableByAll(status)) {
      throw refusal(`${path} belongs to another user, or others may write to it; remove it, or choose another path`);
    }
    const last = Buffer.of(LINE_FEED);
    if (sizeBytes > 0) await file.read([last], sizeBytes - 1);
    return { file, identity, isWithinLine: last[0] !== LINE_FEED };
  } catch (error) {
    await file.close();
    throw error;
  }
}

function refusal(reason: string, cause?: unknown): ConfigError {
  return new ConfigError(`configuration key "audit_log_path": ${reason}`, { cause });
}
