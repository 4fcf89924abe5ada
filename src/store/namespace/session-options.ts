import { ArgumentError } from '../../base/errors.js';
import { SESSION_NAME_MAX_BYTES, SESSION_WAITING_MAX_S } from '../../base/limits.js';
import { checkNames } from '../../base/settings/known-names.js';
import { shown } from '../../base/shown.js';
import type { SessionOptions } from '../call/call-options.js';
import type { PageSessionNews } from './namespace-pages.js';

/** Options of `tell`. */
export interface TellOptions extends Omit<SessionOptions, 'session'> {
  /** Keys of pages of the session's present request, its head first. Default: the pages that are known already. */
  readonly keys?: readonly string[] | undefined;
  /** Number of pages at the head of `keys` that other sessions use as well, such as a system prompt. Default: 0. */
  readonly shared?: number | undefined;
  /** Name of the pool of the pages. Default: `kv`, the main one. */
  readonly pool?: string | undefined;
}

export const SESSION_OPTION_NAMES = ['session', 'waiting', 'branched', 'ended'] as const;
const TELL_OPTION_NAMES: ReadonlySet<string> = new Set(['keys', 'shared', 'pool', 'waiting', 'branched', 'ended']);

/** Checks what a call says of its session. Throws `ArgumentError`. */
export function checkSession(method: string, { session, ...news }: SessionOptions): void {
  if (session !== undefined) checkSessionName(method, session);
  else if (SESSION_OPTION_NAMES.some((name) => name !== 'session' && news[name] !== undefined)) {
    throw new ArgumentError(`${method}: waiting, branched and ended are of a session; give its name as \`session\``);
  }
  checkNews(method, news);
}

/** Checks the arguments of `tell`; the keys are checked elsewhere. Throws `ArgumentError`. */
export function tellNews(session: string, options: TellOptions, mainPool: string): PageSessionNews {
  checkSessionName('tell', session);
  if (typeof options !== 'object' || options === null) {
    throw new ArgumentError(`tell: options must be an object, such as { waiting: 30 }; got ${shown(options)}`);
  }
  checkNames('tell', options, TELL_OPTION_NAMES);
  checkNews('tell', options);
  const { pool = mainPool, shared = 0 } = options;
  if (!Number.isSafeInteger(shared) || shared < 0) {
    throw new ArgumentError(`tell: shared must be a number of pages, 0 or more, got ${shown(shared)}`);
  }
  if (typeof pool !== 'string') throw new ArgumentError(`tell: pool must be a string, got ${shown(pool)}`);
  return { ...newsOf(options), shared, pool };
}

/** What a call says of its session, in the units of the store. */
export function newsOf({ waiting, branched, ended }: SessionOptions): Omit<PageSessionNews, 'pool'> {
  return { waitingMs: waiting === undefined ? undefined : 1000 * waiting, branched, ended };
}

/** The milliseconds from now that `prefetch` has for `by`, in seconds. Throws `ArgumentError`. */
export function prefetchMs(by = 0): number {
  if (typeof by === 'number' && by >= 0 && by <= SESSION_WAITING_MAX_S) return 1000 * by;
  throw new ArgumentError(
    `prefetch: by must be a number of seconds from now, 0 to ${SESSION_WAITING_MAX_S}, got ${shown(by)}`,
  );
}

function checkSessionName(method: string, session: string): void {
  const isText = typeof session === 'string' && session !== '' && session.isWellFormed();
  if (isText && Buffer.byteLength(session) <= SESSION_NAME_MAX_BYTES) return;
  throw new ArgumentError(
    `${method}: session must be well-formed text of 1 to ${SESSION_NAME_MAX_BYTES} bytes, got ${shown(session)}`,
  );
}

function checkNews(method: string, { waiting, branched, ended }: SessionOptions): void {
  if (waiting !== undefined && !(typeof waiting === 'number' && waiting >= 0 && waiting <= SESSION_WAITING_MAX_S)) {
    throw new ArgumentError(
      `${method}: waiting must be a number of seconds from 0 to ${SESSION_WAITING_MAX_S}, got ${shown(waiting)}`,
    );
  }
  for (const [name, flag] of Object.entries({ branched, ended })) {
    if (flag === undefined || typeof flag === 'boolean') continue;
    throw new ArgumentError(`${method}: ${name} must be true or false, got ${shown(flag)}`);
  }
}
