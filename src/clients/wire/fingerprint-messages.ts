import { ProtocolError } from '../../base/errors.js';
import { BodyReader, BodyWriter } from './body.js';

/** Body of FINGERPRINT: what the attached clients of a name are told. */
export interface FingerprintRequest {
  readonly client: string;
  /** Empty: the namespace has none. */
  readonly fingerprint: string;
}

/** Fingerprints that a namespace may have, and the empty text for none. */
const FINGERPRINT = /^[!-~]{0,128}$/;

export function encodeFingerprint({ client, fingerprint }: FingerprintRequest): Buffer {
  return new BodyWriter().text16(client).text16(fingerprint).done();
}

/** Throws `ProtocolError` for a fingerprint that no namespace can have. */
export function decodeFingerprint(body: Buffer): FingerprintRequest {
  const reader = new BodyReader(body);
  const request = { client: reader.text16(), fingerprint: checked(reader.text16()) };
  reader.end();
  return request;
}

/** Body of the notice that tells a client its fingerprint. */
export function encodeFingerprintNotice(fingerprint: string): Buffer {
  return new BodyWriter().text16(fingerprint).done();
}

export function decodeFingerprintNotice(body: Buffer): string {
  const reader = new BodyReader(body);
  const fingerprint = checked(reader.text16());
  reader.end();
  return fingerprint;
}

function checked(fingerprint: string): string {
  if (FINGERPRINT.test(fingerprint)) return fingerprint;
  throw new ProtocolError(
    'a fingerprint has 1 to 128 visible characters of ASCII without spaces; an empty one is none',
  );
}
