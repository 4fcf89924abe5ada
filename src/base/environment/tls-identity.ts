import { Renewable } from './renewable.js';

/** A certificate, its key and the authority, as PEM texts, and whose certificates are accepted. */
export interface TlsTexts {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
  /** The authority's list of certificates that it has revoked, as a PEM text; undefined: none is. */
  readonly crl?: string | undefined;
  /** Names of which a peer's certificate must have one; empty: each certificate of the authority will do. */
  readonly names?: readonly string[];
}

/** A node's certificate with its key, and the authority that signs the certificates of all nodes. Printing this object never shows them. */
export class TlsIdentity extends Renewable<TlsTexts> {
  constructor(texts: TlsTexts) {
    super(texts, '[key]');
  }
}
