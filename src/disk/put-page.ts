import type { RequestOptions } from '../core/index.js';
import type { PageOrigin, PublishedPage } from '../pool/page-index.js';

/** Which bytes a page has. */
export type PageSum = Pick<PublishedPage, 'length' | 'checksum'>;

/** A page whose version is another one now. */
export type RenewedPage = PageSum & Pick<PublishedPage, 'version' | 'kind'>;

/** What a page that is to be written is known by, and the request that has set it. */
export type PutOptions = PageOrigin & { readonly request?: RequestOptions | undefined };

/** What became of a page that was to be written. */
export type PutOutcome = 'queued' | 'present' | 'skipped';
