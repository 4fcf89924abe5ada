import type { Environment } from '../../base/environment/environment.js';
import type { HttpTls } from '../../base/environment/http-client.js';
import { type Endpoint, formatEndpoint, parseEndpoint } from '../../base/environment/network.js';
import { DISCOVERY_MASTERS_MAX_COUNT, NODE_ENDPOINT_MAX_CHARACTERS } from '../../base/limits.js';

/** Longest wait for an answer. */
const CALL_TIMEOUT_MS = 2_000;
/** Longest answer, and longest message of a stream. */
const ANSWER_MAX_CHARACTERS = 2 ** 20;
/** Errors of etcd after which another server is tried: deadline exceeded, resource exhausted, and unavailable. */
const SERVER_CODES = new Set([4, 8, 14]);
/** Error of etcd for a token that it does not know, or that has expired. */
const UNAUTHENTICATED = 16;
/** Messages of etcd when users have changed since the token was made. */
const OLD_TOKEN = /revision in header is old|invalid auth token/;
/** Message of etcd when it has no users, or has lost them with all its data. It then takes calls without a token. */
const NO_USERS = /authentication is not enabled/;

/** An object of etcd's JSON interface. */
export type EtcdObject = Readonly<Record<string, unknown>>;

export interface EtcdClientOptions {
  /** Addresses of the servers, at least one. */
  readonly endpoints: readonly Endpoint[];
  /** Index of the server that is asked first; default: 0. */
  readonly first?: number;
  readonly tls?: HttpTls | undefined;
  readonly user?: string | undefined;
  readonly password?: string | undefined;
  readonly env: Environment;
}

/** An answer of etcd that is an error. */
class EtcdError extends Error {
  readonly code: number;

  constructor(message: string, code: number) {
    super(message);
    this.name = 'EtcdError';
    this.code = code;
  }
}

/**
 * Calls etcd over its JSON interface, which every server from version 3.4 on has at its client address. If a server
 * does not answer in time, the next one is tried. Every call ends within `CALL_TIMEOUT_MS` for each server; with a
 * user, each authentication, and repeating the call after it, may take as long again.
 */
export class EtcdClient {
  readonly #options: EtcdClientOptions;
  /** Index of the server that answered last. */
  #current: number;
  #token: string | undefined;
  readonly #cancels = new Set<() => void>();
  #isClosed = false;

  constructor(options: EtcdClientOptions) {
    this.#options = options;
    this.#current = options.first ?? 0;
  }

  /**
   * Calls a method such as `kv/range`. Rejects with `EtcdError` if etcd refuses, or with another error if no server
   * answers.
   */
  async call(method: string, params: object): Promise<EtcdObject> {
    const { endpoints } = this.#options;
    const first = this.#current;
    let failure: Error | undefined;
    for (let tries = 0; tries < endpoints.length && !this.#isClosed; tries++) {
      // Concurrent calls try the servers independently of each other.
      const server = (first + tries) % endpoints.length;
      try {
        const answer = await this.#authenticated(server, () => this.#post(server, method, params));
        this.#current = server;
        return answer;
      } catch (error) {
        if (error instanceof EtcdError && !SERVER_CODES.has(error.code)) throw error;
        failure = error as Error;
      }
    }
    throw failure ?? new Error('etcd is not asked any more');
  }

  /**
   * Begins a call with a stream of answers. Calls `onMessage` with each answer, and `onEnd` once when no more will
   * come. Returns a function that ends the stream.
   */
  stream(
    method: string,
    params: object,
    { onMessage, onEnd }: { onMessage(message: EtcdObject): void; onEnd(): void },
  ): () => void {
    let text = '';
    const decoder = new TextDecoder();
    let cancel = (): void => {};
    const end = (): void => {
      this.#cancels.delete(cancel);
      cancel();
      onEnd();
    };
    const stop = this.#options.env.http.post(this.#request(this.#current, method, params), {
      onHead: (status) => void (status === 200 || end()),
      onData: (bytes) => {
        text += decoder.decode(bytes, { stream: true });
        const lines = text.split('\n');
        text = lines.pop() ?? '';
        if (text.length > ANSWER_MAX_CHARACTERS) return end();
        for (const line of lines) {
          const message = parsed(line);
          if (message === undefined || message.error !== undefined) return end();
          onMessage(message);
        }
      },
      onEnd: end,
    });
    cancel = stop;
    this.#cancels.add(cancel);
    return () => {
      this.#cancels.delete(cancel);
      stop();
    };
  }

  /** Ends everything that is under way; pending calls reject. */
  close(): void {
    this.#isClosed = true;
    for (const cancel of [...this.#cancels]) cancel();
    this.#cancels.clear();
  }

  async #authenticated(server: number, call: () => Promise<EtcdObject>): Promise<EtcdObject> {
    const { user: name, password } = this.#options;
    if (name === undefined) return call();
    const isFresh = this.#token === undefined;
    if (isFresh) await this.#authenticate(server, { name, password: password ?? '' });
    try {
      return await call();
    } catch (error) {
      const isOld = error instanceof EtcdError && (error.code === UNAUTHENTICATED || OLD_TOKEN.test(error.message));
      if (!isOld || isFresh) throw error;
      await this.#authenticate(server, { name, password: password ?? '' });
      return call();
    }
  }

  async #authenticate(server: number, user: { readonly name: string; readonly password: string }): Promise<void> {
    this.#token = undefined;
    try {
      const { token } = await this.#post(server, 'auth/authenticate', user);
      if (typeof token !== 'string' || !/^[\x21-\x7e]{1,8192}$/.test(token)) throw new Error('etcd gives no token');
      this.#token = token;
    } catch (error) {
      if (!(error instanceof EtcdError && NO_USERS.test(error.message))) throw error;
    }
  }

  #post(server: number, method: string, params: object): Promise<EtcdObject> {
    const { clock, http } = this.#options.env;
    const request = this.#request(server, method, params);
    const where = formatEndpoint(request.endpoint);
    return new Promise((resolve, reject) => {
      let text = '';
      let status = 0;
      const decoder = new TextDecoder();
      const settle = (error?: Error): void => {
        cancelTimer();
        this.#cancels.delete(cancel);
        const answer = error === undefined ? parsed(text) : undefined;
        if (answer === undefined) reject(new Error(`${where}: ${error?.message ?? `status ${status}, no JSON`}`));
        else if (status === 200 && answer.error === undefined) resolve((answer.result as EtcdObject) ?? answer);
        else reject(new EtcdError(`${where}: ${answer.message ?? answer.error ?? status}`, Number(answer.code ?? 0)));
      };
      const stop = http.post(request, {
        onHead: (given) => {
          status = given;
        },
        onData: (bytes) => {
          text += decoder.decode(bytes, { stream: true });
          if (text.length > ANSWER_MAX_CHARACTERS) cancel('its answer is too long');
        },
        onEnd: settle,
      });
      const cancel = (reason = 'not asked any more'): void => {
        stop();
        settle(new Error(reason));
      };
      const cancelTimer = clock.after(CALL_TIMEOUT_MS, () => cancel(`no answer within ${CALL_TIMEOUT_MS / 1000} s`));
      this.#cancels.add(cancel);
    });
  }

  #request(server: number, method: string, params: object) {
    const { endpoints, tls } = this.#options;
    return {
      endpoint: endpoints[server] as Endpoint,
      path: `/v3/${method}`,
      body: JSON.stringify(params),
      ...(this.#token === undefined ? {} : { headers: { authorization: this.#token } }),
      tls,
    };
  }
}

/** Parses an object; undefined: the text is not one. */
function parsed(text: string): EtcdObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as EtcdObject) : undefined;
  } catch {
    return undefined;
  }
}

/*
 * Contents of etcd: one key for each node that runs a master, `/NAME/masters/NUMBER` with the numbers 00 to 15. The
 * value is `{"addr":"host:port","node_id":"…"}`; the key has the lease of the node. Other keys and values are ignored,
 * and left as they are.
 */

/** Most keys that are read. There are more only if other programs have written there. */
const KEYS_MAX_COUNT = 2 * DISCOVERY_MASTERS_MAX_COUNT;

/** One key of a master. */
interface EtcdSeat {
  readonly key: string;
  readonly endpoint: Endpoint;
  /** Id of the lease that the key ends with; '0': the key has none. */
  readonly lease: string;
}

/** All keys of masters, in the order of their numbers, and the revision at which they were read. */
export interface EtcdSeats {
  readonly seats: readonly EtcdSeat[];
  /** Keys whose values name no master, in order: other programs have written them. Their numbers are not free. */
  readonly foreign: readonly string[];
  readonly revision: number;
}

/** The range of all keys of a cluster's masters, for calls of etcd. */
export function seatRange(name: string): { readonly key: string; readonly range_end: string } {
  // The byte after the slash ends the range.
  return { key: base64(`/${name}/masters/`), range_end: base64(`/${name}/masters0`) };
}

/** Reads all keys of masters. Rejects as `EtcdClient.call` does. */
export async function readSeats(client: EtcdClient, name: string): Promise<EtcdSeats> {
  const answer = await client.call('kv/range', { ...seatRange(name), limit: KEYS_MAX_COUNT });
  const records = Array.isArray(answer.kvs) ? (answer.kvs as EtcdObject[]) : [];
  const revision = Number((answer.header as EtcdObject | undefined)?.revision ?? 0);
  const seats = records.flatMap((record) => parseSeat(record) ?? []);
  const foreign = records.flatMap((record) => (parseSeat(record) === undefined ? (keyIn(record) ?? []) : []));
  return { seats, foreign, revision };
}

/**
 * Returns the keys after the events of a watch. Events that are not newer than `known` are skipped: a list and a watch
 * use two connections, and report the same change at different times.
 */
export function afterEvents(known: EtcdSeats, events: unknown): EtcdSeats {
  if (!Array.isArray(events)) return known;
  const byKey = new Map<string, EtcdSeat | undefined>([
    ...known.foreign.map((key) => [key, undefined] as const),
    ...known.seats.map((seat) => [seat.key, seat] as const),
  ]);
  let { revision } = known;
  for (const event of events as readonly EtcdObject[]) {
    const record = (event?.kv ?? {}) as EtcdObject;
    const eventRevision = Number(record.mod_revision ?? 0);
    const key = keyIn(record);
    if (!(eventRevision > known.revision) || key === undefined) continue;
    revision = Math.max(revision, eventRevision);
    if (event.type === 'DELETE') byKey.delete(key);
    else if (byKey.size < KEYS_MAX_COUNT || byKey.has(key)) byKey.set(key, parseSeat(record));
  }
  if (revision === known.revision) return known;
  const sorted = [...byKey].sort(([a], [b]) => (a < b ? -1 : 1));
  const seats = sorted.flatMap(([, seat]) => seat ?? []);
  return { seats, foreign: sorted.flatMap(([key, seat]) => (seat === undefined ? key : [])), revision };
}

/** The first free key for a master; undefined: none is free. */
export function freeKey(name: string, { seats, foreign }: Pick<EtcdSeats, 'seats' | 'foreign'>): string | undefined {
  const taken = new Set([...seats.map(({ key }) => key), ...foreign]);
  const keys = Array.from({ length: DISCOVERY_MASTERS_MAX_COUNT }, (_, i) => keyOf(name, i));
  return keys.find((each) => !taken.has(each));
}

/** Takes a key with a lease; resolves with false if another node was faster. */
export async function takeSeat(
  client: EtcdClient,
  key: string,
  seat: { readonly addr: string; readonly nodeId: string; readonly lease: string },
): Promise<boolean> {
  const value = base64(JSON.stringify({ addr: seat.addr, node_id: seat.nodeId }));
  const answer = await client.call('kv/txn', {
    compare: [{ key: base64(key), target: 'CREATE', result: 'EQUAL', create_revision: '0' }],
    success: [{ request_put: { key: base64(key), value, lease: seat.lease } }],
  });
  return answer.succeeded === true;
}

/**
 * Rejects if this user may not write keys of masters. The transaction does nothing, but etcd checks its rights as well.
 */
export async function checkRights(client: EtcdClient, name: string): Promise<void> {
  const key = base64(keyOf(name, 0));
  const compare = [{ key, target: 'VERSION', result: 'LESS', version: '0' }];
  await client.call('kv/txn', { compare, success: [{ request_put: { key, value: base64('{}') } }] });
}

function keyOf(name: string, number: number): string {
  return `/${name}/masters/${String(number).padStart(2, '0')}`;
}

function keyIn({ key }: EtcdObject): string | undefined {
  return typeof key === 'string' ? Buffer.from(key, 'base64').toString() : undefined;
}

function parseSeat({ key, value, lease = '0' }: EtcdObject): EtcdSeat | undefined {
  if (typeof key !== 'string' || typeof value !== 'string' || value.length > 2 * NODE_ENDPOINT_MAX_CHARACTERS + 1024) {
    return undefined;
  }
  try {
    const { addr } = JSON.parse(Buffer.from(value, 'base64').toString()) as { readonly addr?: unknown };
    const endpoint =
      typeof addr === 'string' && addr.length <= NODE_ENDPOINT_MAX_CHARACTERS ? parseEndpoint(addr) : undefined;
    if (endpoint === undefined || endpoint.port === 0) return undefined;
    return { key: Buffer.from(key, 'base64').toString(), endpoint, lease: String(lease) };
  } catch {
    return undefined;
  }
}

/** Whether one of the keys is for the master at this address. */
export function hasAddress(seats: readonly EtcdSeat[], addr: string): boolean {
  return seats.some(({ endpoint }) => formatEndpoint(endpoint) === addr);
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}
