import { Renewable } from './renewable.js';

/** A certificate and its key as PEM texts, and whose certificates are accepted. */
export interface TlsTexts {
  readonly cert: string;
  readonly key: string;
  /** The authority whose certificates are accepted; undefined: the other side need not show one. */
  readonly ca?: string | undefined;
  /** The authority's list of certificates that it has revoked, as a PEM text; undefined: none is. */
  readonly crl?: string | undefined;
  /** Names of which a peer's certificate must have one; empty: each certificate of the authority will do. */
  readonly names?: readonly string[];
}

/** How strictly a server that speaks TLS treats its peers. */
export interface TlsRules {
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  /**
   * Whether peers without an accepted certificate are let in where an authority is set; their connections are not
   * `authorized`.
   */
  readonly admitsStrangers?: boolean;
}

/** Between nodes both sides are of this project, and each shows a certificate. */
export const NODE_TLS_RULES: TlsRules = { minVersion: 'TLSv1.3' };

/**
 * The certificate with its key that this side shows, and the authority that signs those of its peers. Printing this
 * object never shows them.
 */
export class TlsIdentity extends Renewable<TlsTexts> {
  constructor(texts: TlsTexts) {
    super(texts, '[key]');
  }
}
