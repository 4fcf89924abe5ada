import { SECRET_MAX_CHARACTERS, SECRETS_MAX_COUNT } from '../limits.js';

/** What {@link ClusterSecrets.of} takes, for messages. */
export const CLUSTER_SECRET_ALLOWED = `text of 1 to ${SECRET_MAX_CHARACTERS} characters, or a list of 1 or ${SECRETS_MAX_COUNT} of them`;

/** What stands for a secret where one is shown; no secret itself, for then what was shown had become it. */
export const SHOWN = '[secret]';

/**
 * What the nodes of one cluster share: one secret, or two while it is being changed. The first is what a node presents where it
 * can present only one; each is accepted. Nothing that prints, inspects or serialises an object shows them.
 */
export class ClusterSecrets {
  readonly #secrets: readonly string[];

  /** One or two, none of them empty; `undefined` for anything else. White space around a secret does not count. */
  static of(secrets: readonly unknown[]): ClusterSecrets | undefined {
    const texts = secrets.map((secret) => (typeof secret === 'string' ? secret.trim() : ''));
    const isAllowed = texts.every((text) => text.length > 0 && text.length <= SECRET_MAX_CHARACTERS && text !== SHOWN);
    if (!isAllowed || texts.length < 1 || texts.length > SECRETS_MAX_COUNT) return undefined;
    return new ClusterSecrets([...new Set(texts)]);
  }

  private constructor(secrets: readonly string[]) {
    this.#secrets = secrets;
  }

  /** The secrets themselves: for computing proofs and for handing them to the own threads, and for nothing else. */
  reveal(): readonly string[] {
    return this.#secrets;
  }

  /** Characters of the shortest one: who listens to a handshake can try short ones out. */
  get shortestCharacters(): number {
    return Math.min(...this.#secrets.map((secret) => secret.length));
  }

  /** Never the secrets. */
  toJSON(): string {
    return SHOWN;
  }

  /** Never the secrets. */
  toString(): string {
    return SHOWN;
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return SHOWN;
  }
}
