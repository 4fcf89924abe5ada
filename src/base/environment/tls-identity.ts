/** A certificate, its key and the authority, as PEM texts. */
export interface TlsTexts {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

/** A node's certificate with its key, and the authority that signs the certificates of all nodes. Printing this object never shows them. */
export class TlsIdentity {
  readonly #texts: TlsTexts;

  constructor(texts: TlsTexts) {
    this.#texts = texts;
  }

  /** The texts themselves, only for TLS and for passing them to this node's threads. */
  reveal(): TlsTexts {
    return this.#texts;
  }

  /** A placeholder, never the key. */
  toJSON(): string {
    return '[key]';
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return '[key]';
  }
}
