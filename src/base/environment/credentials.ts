import { SECRET_MAX_CHARACTERS, SECRETS_MAX_COUNT } from '../limits.js';

/**
 * A value that must not be shown and may be renewed while the program runs. Users read it each time, or listen for
 * changes. Printing, inspecting or serialising this object never shows the value.
 */
export class Renewable<T> {
  readonly #shown: string;
  readonly #listeners = new Set<(value: T) => void>();
  #value: T;

  /** `shown` is printed in place of the value. */
  constructor(value: T, shown: string) {
    this.#value = value;
    this.#shown = shown;
  }

  /** The current value, only for cryptography and for passing it to this node's threads. */
  reveal(): T {
    return this.#value;
  }

  /** Replaces the value and tells the listeners. */
  renew(value: T): void {
    this.#value = value;
    for (const listener of this.#listeners) listener(value);
  }

  /** Calls `listener` with each later value; the returned function ends that. */
  onRenewed(listener: (value: T) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The text shown in place of the value. */
  toJSON(): string {
    return this.#shown;
  }

  /** The text shown in place of the value. */
  toString(): string {
    return this.#shown;
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.#shown;
  }
}

/** The values that {@link ClusterSecrets.of} accepts, in words for messages. */
export const CLUSTER_SECRET_ALLOWED = `text of 1 to ${SECRET_MAX_CHARACTERS} characters, or a list of 1 or ${SECRETS_MAX_COUNT} of them`;

/**
 * The text that is shown in place of a secret. It is refused as a secret, so that a copied configuration dump cannot
 * become one.
 */
const SHOWN = '[secret]';

/**
 * The secrets of a cluster: one, or two while it is being changed. A node presents the first and accepts both.
 * Printing, inspecting or serialising this object never shows them.
 */
export class ClusterSecrets extends Renewable<readonly string[]> {
  /**
   * Creates the object from one or two texts that are not empty; undefined for anything else. White space around a
   * secret is ignored.
   */
  static of(secrets: readonly unknown[]): ClusterSecrets | undefined {
    const texts = secrets.map((secret) => (typeof secret === 'string' ? secret.trim() : ''));
    const isAllowed = texts.every((text) => text.length > 0 && text.length <= SECRET_MAX_CHARACTERS && text !== SHOWN);
    if (!isAllowed || texts.length < 1 || texts.length > SECRETS_MAX_COUNT) return undefined;
    return new ClusterSecrets([...new Set(texts)]);
  }

  private constructor(secrets: readonly string[]) {
    super(secrets, SHOWN);
  }

  /** Length of the shortest secret. A short one can be guessed by an attacker who records a handshake. */
  get shortestCharacters(): number {
    return Math.min(...this.reveal().map((secret) => secret.length));
  }
}

/** A certificate and its key as PEM texts, and the authority whose certificates are accepted. */
export interface TlsTexts {
  readonly cert: string;
  readonly key: string;
  /** The authority whose certificates are accepted; undefined: the other side need not show one. */
  readonly ca?: string | undefined;
  /** The authority's revocation list as a PEM text; undefined: no certificate is revoked. */
  readonly crl?: string | undefined;
  /**
   * Accepted names: a peer's certificate must have one of them; empty: any certificate of the authority is accepted.
   */
  readonly names?: readonly string[];
}

/** How strictly a server that speaks TLS treats its peers. */
export interface TlsRules {
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  /**
   * Whether peers without an accepted certificate are admitted although an authority is set; their connections are not
   * `authorized`.
   */
  readonly admitsStrangers?: boolean;
}

/** Between nodes, both sides run this project's code, and each presents a certificate. */
export const NODE_TLS_RULES: TlsRules = { minVersion: 'TLSv1.3' };

/**
 * The certificate and key that this side presents, and the authority that signs those of its peers. Printing this
 * object never shows them.
 */
export class TlsIdentity extends Renewable<TlsTexts> {
  constructor(texts: TlsTexts) {
    super(texts, '[key]');
  }
}
