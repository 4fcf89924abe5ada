import type { HttpHeaders } from '../base/environment/http-client.js';

/**
 * Why a request to an object store has failed. `clock`: the clocks differ too much for signatures; `unwanted`: the
 * caller has declined the object.
 */
export type ObjectFault =
  | 'timed_out'
  | 'unreachable'
  | 'aborted'
  | 'closed'
  | 'too_long'
  | 'unwanted'
  | 'no_credentials'
  | 'wrong_key'
  | 'clock'
  | 'forbidden'
  | 'region'
  | 'no_bucket'
  | 'busy'
  | 'refused';

/** All faults that are counted. */
export const OBJECT_FAULTS: readonly ObjectFault[] = [
  ...(['timed_out', 'unreachable', 'too_long', 'no_credentials', 'wrong_key', 'clock', 'forbidden'] as const),
  ...(['region', 'no_bucket', 'busy', 'refused'] as const),
];

/** The answer to a request. */
export type ObjectAnswer =
  /** The store has done what it was asked. */
  | {
      readonly kind: 'done';
      readonly headers: HttpHeaders;
      /** Bytes of the body, part by part. */
      readonly parts: readonly Uint8Array[];
    }
  /** There is no such object. */
  | { readonly kind: 'absent' }
  /** The object is not as the write demands. */
  | { readonly kind: 'precondition' }
  | {
      readonly kind: 'failed';
      readonly fault: ObjectFault;
      /** What the store or the system says: its code, never a secret. */
      readonly detail: string;
    };

/** The fault that each error code of S3 means. */
const CODES: Readonly<Record<string, ObjectFault>> = {
  InvalidAccessKeyId: 'wrong_key',
  SignatureDoesNotMatch: 'wrong_key',
  ExpiredToken: 'wrong_key',
  InvalidToken: 'wrong_key',
  RequestTimeTooSkewed: 'clock',
  RequestExpired: 'clock',
  AccessDenied: 'forbidden',
  AllAccessDisabled: 'forbidden',
  AuthorizationHeaderMalformed: 'region',
  IllegalLocationConstraintException: 'region',
  PermanentRedirect: 'region',
  TemporaryRedirect: 'region',
  NoSuchBucket: 'no_bucket',
  InvalidBucketName: 'no_bucket',
  SlowDown: 'busy',
  ServiceUnavailable: 'busy',
  InternalError: 'busy',
};

/**
 * Interprets an answer of a store. `aheadMs`: milliseconds by which the date of this machine is ahead of that of the
 * answer; NaN: the answer has no date.
 */
export function answerOf(
  status: number,
  headers: HttpHeaders,
  {
    parts,
    isWrite,
    aheadMs,
  }: { readonly parts: readonly Uint8Array[]; readonly isWrite: boolean; readonly aheadMs: number },
): ObjectAnswer {
  if (status >= 200 && status < 300) {
    // A proxy that answers in place of the store has stored nothing.
    const isOfStore = !isWrite || (headers.etag !== undefined && parts.every(({ length }) => length === 0));
    if (isOfStore) return { kind: 'done', headers, parts };
    return { kind: 'failed', fault: 'refused', detail: `status ${status}, but not as a store confirms a write` };
  }
  const code = codeOf(parts);
  // Only the store itself knows that an object is absent. A marker wrongly taken for absent would make cleared pages
  // readable.
  if (status === 404 && code === 'NoSuchKey') return { kind: 'absent' };
  if (isWrite && (status === 412 || status === 409)) return { kind: 'precondition' };
  const fault = CODES[code] ?? faultOf(status, headers);
  let more = '';
  if (fault === 'region') more = regionOf(headers, parts);
  if (fault === 'clock') more = differenceOf(aheadMs);
  const detail = `${code === '' ? `status ${status}` : `${code} (status ${status})`}${more}`;
  return { kind: 'failed', fault, detail };
}

/** How far the date of this machine is from that of the store, as far as the store says. */
function differenceOf(aheadMs: number): string {
  const ahead = aheadMs > 0 ? 'ahead of' : 'behind';
  const differs = Number.isNaN(aheadMs) ? 'differs from' : `is ${Math.round(Math.abs(aheadMs) / 1000)} s ${ahead}`;
  return `: the clock of this machine ${differs} that of the store; set it by NTP`;
}

function faultOf(status: number, headers: HttpHeaders): ObjectFault {
  if (status === 403 || status === 401) return 'forbidden';
  if (status >= 300 && status < 400) return 'region';
  if (status === 400 && headers['x-amz-bucket-region'] !== undefined) return 'region';
  if (status === 501) return 'refused';
  return status === 429 || status >= 500 ? 'busy' : 'refused';
}

/** The region in which the bucket is, as far as the store says. */
function regionOf(headers: HttpHeaders, parts: readonly Uint8Array[]): string {
  const text = Buffer.concat(parts).toString('latin1');
  const region = headers['x-amz-bucket-region'] ?? /<Region>([^<]*)<\/Region>/.exec(text)?.[1] ?? '';
  return /^[a-z0-9-]{1,64}$/.test(region) ? `, the bucket is in ${region}` : '';
}

/** The code in an XML body; empty: there is none. Takes only letters, so that nothing else of the body is shown. */
function codeOf(parts: readonly Uint8Array[]): string {
  const text = Buffer.concat(parts).toString('latin1');
  return /<Code>([A-Za-z]{1,64})<\/Code>/.exec(text)?.[1] ?? '';
}
