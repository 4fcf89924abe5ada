/** PEM texts. */
export interface TlsTexts {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

/** A node's certificate with its key, and the authority that signs those of all nodes. Nothing that prints an object shows them. */
export class TlsIdentity {
  readonly #texts: TlsTexts;

  constructor(texts: TlsTexts) {
    this.#texts = texts;
  }

  /** For TLS and for the own threads, and for nothing else. */
  reveal(): TlsTexts {
    return this.#texts;
  }

  /** Never the key. */
  toJSON(): string {
    return '[key]';
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return '[key]';
  }
}
