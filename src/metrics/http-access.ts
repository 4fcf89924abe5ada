import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import type { Context } from 'koa';
import type { Environment } from '../base/environment/environment.js';
import { isDigestOf, PasswordCheck } from '../net/auth-failures.js';
import type { DoorTls } from '../net/credentials/door-tls.js';
import { EVERYBODY, type Identity, Users } from '../net/users.js';

/**
 * Readers of a path. `open`: everyone. `figures`: if a token is set, only its holders. `reports`: as `figures`, but
 * only this machine if no token is set. `keys`: only holders of the token, and users who may use all namespaces; nobody
 * if no token is set. `advice`: as `keys`, for users who may read pages.
 */
export type Access = 'open' | 'figures' | 'reports' | 'keys' | 'advice';

/** A reader: a holder of the node's token, or one of its users. */
type Reader = Pick<Identity, 'name' | 'user'>;

const OPERATOR: Reader = { name: 'operator', user: EVERYBODY };

export interface HttpAccessOptions {
  /** See `MetricsServerOptions.token`. */
  readonly token?: string | undefined;
  readonly tls?: DoorTls | undefined;
  readonly users?: Users | undefined;
  readonly env: Environment;
}

/** Decides who may read a path of the metrics server, and answers those who may not. */
export class HttpAccess {
  /** Whether the server listens on loopback, so that only programs and browsers of this machine can reach it. */
  isLocalOnly = false;
  /** Whether nothing can be read without a token. */
  readonly #isTokenNeeded: boolean;
  readonly #tokens: PasswordCheck<Reader>;
  readonly #users: Users;
  readonly #tls: DoorTls | undefined;
  readonly #env: Environment;

  constructor({ token, tls, users = new Users(), env }: HttpAccessOptions) {
    this.#tls = tls;
    this.#env = env;
    this.#isTokenNeeded = token !== undefined;
    this.#users = users;
    const isOperators = token === undefined ? () => false : isDigestOf(token);
    const ownerOf = (digest: string) => (isOperators(digest) ? OPERATOR : users.identify({ tokenDigest: digest }));
    this.#tokens = new PasswordCheck(ownerOf, 'metrics', env);
  }

  /** Calls `stop` once the reader of an admitted request may not read what names keys any more. */
  onRevoked(ctx: Context, stop: () => void): () => void {
    const { reader } = ctx.state as { readonly reader: Reader };
    return this.#users.onRenewed(() => mayRead(reader, 'keys') || stop());
  }

  /** Whether the request may read. If not, it has been answered. */
  admits(ctx: Context, access: Access): boolean {
    if (access === 'open') return true;
    if (this.#tls?.knows(ctx.req.socket) === false) {
      this.#refused(ctx, 'no certificate');
      say(ctx, 403, 'show a certificate that metrics_tls_ca_file of this node has signed');
      return false;
    }
    const given = this.#isTokenNeeded || this.#users.hasTokens ? bearerToken(ctx.req) : undefined;
    if (given !== undefined) return this.#admitsToken(ctx, access, given);
    const reader = this.#isTokenNeeded ? undefined : this.#users.identify({});
    if (reader?.user?.has('status') !== true) {
      this.#demandToken(ctx, 'no token');
      return false;
    }
    // A certificate takes the place of a token.
    return this.#tls?.wantsCertificates === true
      ? this.#admitsReader(ctx, access, reader)
      : this.#admitsAnyone(ctx, access);
  }

  #demandToken(ctx: Context, reason: string): void {
    this.#refused(ctx, reason);
    ctx.set('WWW-Authenticate', 'Bearer realm="meshcache"');
    const whose = this.#isTokenNeeded ? 'the metrics_token of this node' : 'the token of a user with the right status';
    say(ctx, 401, `send ${whose}: Authorization: Bearer <token>`);
  }

  #admitsToken(ctx: Context, access: Access, token: string): boolean {
    const verdict = this.#tokens.judge(token, ctx.req.socket.remoteAddress ?? '');
    if (verdict === 'paused') {
      this.#refused(ctx, 'too many wrong tokens');
      ctx.set('Retry-After', '1');
      say(ctx, 429, 'too many wrong tokens from this address; try again in a few seconds');
    } else if (verdict === 'wrong') {
      this.#demandToken(ctx, 'wrong token');
    } else {
      return this.#admitsReader(ctx, access, verdict);
    }
    return false;
  }

  /** Whether this reader may read. If not, the request has been answered. */
  #admitsReader(ctx: Context, access: Access, reader: Reader): boolean {
    if (mayRead(reader, access)) {
      ctx.state.reader = reader;
      return true;
    }
    this.#refused(ctx, 'no right', ctx.path, reader.name);
    say(ctx, 403, `user ${reader.name} needs ${NEEDS[access]}`);
    return false;
  }

  /** Whether the request may read without a token. If not, it has been answered. */
  #admitsAnyone(ctx: Context, access: Access): boolean {
    const refusal = this.#refusal(ctx, access);
    if (refusal === undefined) return true;
    this.#refused(ctx, 'no token is set', refusal);
    say(ctx, 403, refusal);
    return false;
  }

  #refused({ req, path }: Context, reason: string, detail: string = path, user?: string): void {
    const actor = { user, address: req.socket.remoteAddress };
    this.#env.audit?.record({ action: 'status', door: 'http', outcome: 'refused', actor, reason, detail });
  }

  #refusal(ctx: Context, access: Access): string | undefined {
    if (access === 'advice') {
      return 'every user of this machine could give advice here: set metrics_token on this node';
    }
    if (access === 'keys') {
      return 'these events name keys, models and tags, and every user of this machine could read them here: set metrics_token on this node';
    }
    if (access === 'reports' && !this.isLocalOnly) {
      return 'this node listens beyond loopback, and anybody could read its reports: set metrics_token on this node, or metrics_host to 127.0.0.1';
    }
    if (this.isLocalOnly && !namesLocally(ctx.req)) {
      return 'without metrics_token, ask by an IP address or localhost: the name in the Host header is another';
    }
    return undefined;
  }
}

/** Answers with a line of text. */
export function say(ctx: Context, status: number, text: string): void {
  ctx.status = status;
  ctx.set('Content-Type', 'text/plain; charset=utf-8');
  ctx.body = `${text}\n`;
}

/** What a user needs for each access. */
const NEEDS: Readonly<Record<Access, string>> = {
  open: 'nothing',
  figures: 'the right status',
  reports: 'the right status',
  keys: 'the right status, and "*" among its tags',
  advice: 'the right read, and "*" among its tags',
};

function mayRead({ user }: Reader, access: Access): boolean {
  if (user?.has(access === 'advice' ? 'read' : 'status') !== true) return false;
  return (access !== 'keys' && access !== 'advice') || user.mayUseAll;
}

/** Whether the address can be reached only from this machine. */
export function isLoopback(address: string): boolean {
  return /^(::ffff:)?127\./i.test(address) || address === '::1';
}

/** Returns the token of a request (`Authorization: Bearer <token>`); undefined if it has none. */
function bearerToken(request: IncomingMessage): string | undefined {
  return /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '')?.[1];
}

/**
 * Whether the Host header is an IP address or `localhost`, with any port. Another site can let its own name point to
 * this machine; the browser then treats this server as that site. The Host header reveals that name.
 */
function namesLocally({ headers }: IncomingMessage): boolean {
  const host = (headers.host ?? '').replace(/:\d*$/, '');
  return host.toLowerCase() === 'localhost' || isIP(host.replace(/^\[(.*)\]$/, '$1')) !== 0;
}
