import { isDeepStrictEqual } from 'node:util';
import type { Renewable, TlsIdentity } from '../../base/environment/credentials.js';
import type { Environment } from '../../base/environment/environment.js';
import type { AuthFailurePlane } from '../auth-failures.js';
import type { Users } from '../users.js';
import { readUsersFileAgain } from '../users-file.js';
import { readSecretsFileAgain, type SecurityConfig, tlsFilesOf } from './secured-environment.js';
import { checkTlsTexts, expiryMsOf, readTlsTexts, type TlsFiles } from './tls-files.js';

/** Milliseconds between two looks at the files. */
const CHECK_INTERVAL_MS = 5000;
const MS_PER_S = 1000;
/** A certificate that ends within this time is said in the log. */
const ENDS_SOON_MS = 7 * 86_400_000;

/** The fields of a configuration that name the files. */
interface CredentialPaths extends SecurityConfig {
  readonly usersFile?: string | undefined;
}

/** What a look at a file found. */
type Outcome = 'same' | 'renewed';

/** The files of one kind of credentials, which are replaced while they are in use. */
interface Credential {
  /** What is in the files, for the log. */
  readonly kind: 'secret' | 'certificate' | 'users';
  /**
   * Looks at the files. What has changed is in use when it resolves. Rejects if the files cannot be used, and changes
   * nothing then.
   */
  look(): Promise<Outcome>;
  /** When the first of what is in use ends, in milliseconds of the wall clock. Default: never. */
  readonly endsMs?: () => number;
}

/**
 * Reads the files of secrets, certificates and users anew while they are in use, by their contents: links and folders
 * may be swapped below them, as Kubernetes does it. What has changed and can be used takes the place of the former, for
 * connections that are made from then on, and among the users for open connections as well. What cannot be used is
 * logged, and the former stays.
 */
export class CredentialFiles {
  readonly #plane: AuthFailurePlane;
  readonly #credentials: readonly Credential[];
  readonly #env: Pick<Environment, 'clock' | 'log' | 'metrics' | 'audit'>;
  /** Why files could not be used when they were last looked at, by the kind of what is in them. */
  readonly #problems = new Map<string, string>();
  /** What the log last said of the end of certificates. */
  #endSaid = '';
  #cancel: (() => void) | undefined;

  /** `plane` is where the credentials are used. */
  constructor(
    plane: AuthFailurePlane,
    credentials: readonly Credential[],
    env: Pick<Environment, 'clock' | 'log' | 'metrics' | 'audit'>,
  ) {
    this.#plane = plane;
    this.#credentials = credentials;
    this.#env = env;
  }

  /** Looks at the files from time to time until {@link stop}. */
  start(): void {
    const labels = { plane: this.#plane };
    this.#env.metrics.setGaugeProvider('meshcache_credential_files_failing', () => this.#problems.size, labels);
    if (this.#credentials.length > 0) this.#schedule();
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  /** Looks at the files now. Resolves when what has changed is in use. */
  async check(): Promise<void> {
    for (const credential of this.#credentials) {
      await this.#look(credential);
      this.#tellEnd(credential.endsMs?.() ?? Number.POSITIVE_INFINITY);
    }
  }

  /** Says once in the log that a certificate ends soon, and once that it has ended. */
  #tellEnd(endsMs: number): void {
    const { clock, log } = this.#env;
    const leftMs = endsMs - clock.wallMs();
    if (leftMs > ENDS_SOON_MS) return;
    const ends = new Date(endsMs).toISOString();
    const text = leftMs > 0 ? 'a certificate ends soon' : 'a certificate has ended: new connections are refused';
    if (this.#endSaid === `${text} ${ends}`) return;
    this.#endSaid = `${text} ${ends}`;
    log.log('warn', text, { plane: this.#plane, ends });
  }

  #schedule(): void {
    this.#cancel = this.#env.clock.after(CHECK_INTERVAL_MS, () => {
      void this.check().then(() => {
        if (this.#cancel !== undefined) this.#schedule();
      });
    });
  }

  async #look(credential: Credential): Promise<void> {
    const { kind } = credential;
    const { log, audit } = this.#env;
    const plane = this.#plane;
    try {
      const outcome = await credential.look();
      this.#problems.delete(kind);
      if (outcome !== 'renewed') return;
      log.log('info', 'new credentials are in use', { plane, kind });
      audit?.record({ action: 'renew', door: 'node', outcome: 'done', reason: kind });
    } catch (error) {
      const reason = (error as Error).message;
      const before = this.#problems.get(kind);
      this.#problems.set(kind, reason);
      // Files that belong together are replaced one after the other: nothing is wrong unless it lasts.
      if (before === reason) return;
      log.log('warn', 'credentials cannot be read anew; the former ones stay in use', { plane, kind, reason });
      audit?.record({ action: 'renew', door: 'node', outcome: 'failed', reason: kind, detail: reason });
    }
  }
}

/**
 * The files by which a node is a member of its cluster, and that of its `users`. `env` is what `securedEnvironment`
 * made of `config`.
 */
export function memberCredentials(config: CredentialPaths, env: Environment, users?: Users): CredentialFiles {
  const paths = tlsFilesOf(config);
  const secret = secretFile(config, env);
  const tls = env.tls === undefined || paths === undefined ? undefined : certificateFiles(paths, env.tls, env);
  tellExpiry('rpc', env.tls, env);
  return new CredentialFiles(
    'rpc',
    [secret, tls, userFile(config, users, env)].flatMap((each) => each ?? []),
    env,
  );
}

/** The files of a certificate that is in use as `held`. */
export function certificateFiles(
  paths: TlsFiles,
  held: TlsIdentity,
  { files, clock }: Pick<Environment, 'files' | 'clock'>,
): Credential {
  const credential = renewing('certificate', held, {
    read: async () => ({ ...(await readTlsTexts(paths, files)), names: held.reveal().names }),
    check: (found) => checkTlsTexts(paths, found, clock.wallMs()),
  });
  return { ...credential, endsMs: () => expiryMsOf(held.reveal()) };
}

/** What an operator must know of the certificates that nodes use towards each other; undefined: they are valid. */
export function certificateTrouble({ tls, clock }: Pick<Environment, 'tls' | 'clock'>): string | undefined {
  const endMs = tls === undefined ? Number.POSITIVE_INFINITY : expiryMsOf(tls.reveal());
  if (endMs > clock.wallMs()) return undefined;
  const ended = new Date(endMs).toISOString();
  return `a certificate in tls_cert_file or tls_ca_file has ended on ${ended}: new connections with other nodes are refused`;
}

/** Has the metrics say when the certificate that is used there ends. */
export function tellExpiry(
  plane: AuthFailurePlane,
  held: TlsIdentity | undefined,
  { metrics }: Pick<Environment, 'metrics'>,
): void {
  const expiryS = (): number => (held === undefined ? Number.POSITIVE_INFINITY : expiryMsOf(held.reveal()) / MS_PER_S);
  metrics.setGaugeProvider('meshcache_tls_certificate_expiry_seconds', expiryS, { plane });
}

function secretFile({ clusterSecretFile: path }: SecurityConfig, env: Environment): Credential | undefined {
  const { secrets: held, files } = env;
  if (path === undefined || held === undefined) return undefined;
  return renewing('secret', held, { read: async () => (await readSecretsFileAgain(path, files)).reveal() });
}

function userFile(
  { usersFile: path }: CredentialPaths,
  held: Users | undefined,
  { files }: Environment,
): Credential | undefined {
  if (path === undefined || held === undefined) return undefined;
  return renewing('users', held, { read: () => readUsersFileAgain(path, files) });
}

/** Credentials that take the place of those in `held` when what `read` finds is another, and `check` does not throw. */
function renewing<T>(
  kind: Credential['kind'],
  held: Renewable<T>,
  { read, check }: { readonly read: () => Promise<T>; readonly check?: (found: T) => void },
): Credential {
  return {
    kind,
    async look() {
      const found = await read();
      if (isDeepStrictEqual(found, held.reveal())) return 'same';
      check?.(found);
      held.renew(found);
      return 'renewed';
    },
  };
}
