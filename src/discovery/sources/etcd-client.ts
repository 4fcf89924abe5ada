import type { Environment } from '../../base/environment/environment.js';
import type { HttpTls } from '../../base/environment/http-client.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';

/** Longest time that an answer is waited for. */
const CALL_TIMEOUT_MS = 2_000;
/** Longest answer, and longest message of a stream. */
const ANSWER_MAX_CHARACTERS = 2 ** 20;
/** Codes of etcd for what another server may do better: too late, too much to do, and no leader. */
const SERVER_CODES = new Set([4, 8, 14]);
/** Code of etcd for a token that it does not know, or that has expired. */
const UNAUTHENTICATED = 16;
/** What etcd says when users have changed since the token was made. */
const OLD_TOKEN = /revision in header is old|invalid auth token/;
/** What etcd says when it has no users, or has lost them with all its data. It takes calls without a token then. */
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
  readonly env: Pick<Environment, 'clock' | 'http'>;
}

/** An answer of etcd that is an error. */
export class EtcdError extends Error {
  readonly code: number;

  constructor(message: string, code: number) {
    super(message);
    this.name = 'EtcdError';
    this.code = code;
  }
}

/**
 * Calls of etcd over its JSON interface, which every server from version 3.4 on has at its client address. A server
 * that does not answer in time is left for the next one. Every call ends within `CALL_TIMEOUT_MS` for each server and,
 * with a user, as long again.
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
      // Calls at the same time try the servers each in its own turn.
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
   * Begins a call whose answers go on until it is ended: `onMessage` is called with each, `onEnd` once when no more
   * will come. Returns a function that ends it.
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

/** The object that a text stands for; undefined: it is none. */
function parsed(text: string): EtcdObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as EtcdObject) : undefined;
  } catch {
    return undefined;
  }
}
