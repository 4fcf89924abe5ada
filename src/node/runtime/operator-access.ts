import type { Environment } from '../../base/environment/environment.js';
import { AuthError } from '../../base/errors.js';
import { PasswordCheck } from '../../net/auth-failures.js';
import type { Identity, Right, Users } from '../../net/users.js';
import type { RpcCall } from '../../rpc/server.js';

/**
 * The permitted callers of each method of the control plane and of discovery. `member`: a peer that knows the cluster's
 * secret or has its certificates. A right: an operator, a user of the called node with this right. Members may not make
 * operator calls. A method without an entry is refused.
 */
export const METHOD_CALLERS: Readonly<Record<string, 'member' | Right>> = {
  'directory.put': 'member',
  'directory.get': 'member',
  'directory.exists': 'member',
  'directory.delete': 'member',
  'directory.discard': 'member',
  'directory.note': 'member',
  'directory.renounce': 'member',
  'directory.announced': 'member',
  'map.next': 'member',
  'pages.hold': 'member',
  'pages.release': 'member',
  'pages.clear': 'member',
  'pages.drop': 'member',
  'pages.restate': 'member',
  'pool.touch': 'member',
  'pool.expect': 'member',
  'pool.restate': 'member',
  'node.status': 'member',
  'node.history': 'member',
  'node.drain': 'drain',
  'discovery.register': 'member',
  'discovery.heartbeat': 'member',
  'discovery.leave': 'member',
  'discovery.known': 'member',
  'discovery.members': 'member',
};

/** Reasons for refusing a call: the text for the audit log, and the text for the caller. */
const REFUSALS = {
  wrong: ['wrong token', 'the token is of no user of this node'],
  paused: ['too many wrong tokens', 'too many wrong tokens from this address; try again in a few seconds'],
  nobody: ['no token', 'no token was shown'],
} as const;

/** Decides which operator calls a node executes: those of users with the required right. */
export class OperatorAccess {
  readonly #users: Users;
  readonly #tokens: PasswordCheck<Identity>;
  readonly #env: Pick<Environment, 'audit'>;

  constructor(users: Users, env: Environment) {
    this.#users = users;
    this.#tokens = new PasswordCheck((tokenDigest) => users.identify({ tokenDigest }), 'rpc', env);
    this.#env = env;
  }

  /**
   * Name of the user who makes a call; undefined if any member may make it. Throws {@link AuthError} if the caller may
   * not.
   */
  check(call: RpcCall): string | undefined {
    const caller = METHOD_CALLERS[call.method];
    if (caller === 'member') return undefined;
    if (caller === undefined) throw new AuthError(`${call.method} has no entry in the table of who may call what`);
    return this.#userWith(caller, call);
  }

  #userWith(right: Right, call: RpcCall): string {
    const { token } = call.params as { readonly token?: unknown };
    const shown = token === undefined || token === null ? undefined : String(token);
    const found = shown === undefined ? this.#users.identify({}) : this.#tokens.judge(shown, call.address);
    if (!(found instanceof Object)) {
      const [reason, text] = REFUSALS[found ?? 'nobody'];
      throw this.#refusal(right, call, { reason, text });
    }
    if (found.user?.has(right) === true) return found.name;
    const text = `user ${found.name} has no right "${right}"`;
    throw this.#refusal(right, call, { reason: 'no right', text, user: found.name });
  }

  #refusal(
    right: Right,
    { method, address }: RpcCall,
    { reason, text, user }: { readonly reason: string; readonly text: string; readonly user?: string },
  ): AuthError {
    this.#env.audit?.record({ action: right, door: 'control', outcome: 'refused', actor: { user, address }, reason });
    const advice = `show the token of a user with the right "${right}" (users_file of the node; --token-file of the command)`;
    return new AuthError(`${method}: ${text}; ${advice}`);
  }
}
