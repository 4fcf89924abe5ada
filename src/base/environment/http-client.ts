import type { Endpoint } from './network.js';

/** Certificates of a request over TLS, in PEM. */
export interface HttpTls {
  /** Authorities that may have signed the server's certificate; undefined: those that the system trusts. */
  readonly ca?: string | undefined;
  /** The certificate that this side shows, with its key. */
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** A request with a body of JSON. */
export interface HttpPost {
  readonly endpoint: Endpoint;
  readonly path: string;
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Undefined: the request is not encrypted. */
  readonly tls?: HttpTls | undefined;
}

/** Receives the answer to a request as it comes. */
export interface HttpListener {
  /** Called first, with the status. */
  onHead(status: number): void;
  /** Called with bytes of the body, which belong to the listener. */
  onData(bytes: Uint8Array): void;
  /** Called last, once: without an error the answer is complete. Not called after the request was cancelled. */
  onEnd(error?: Error): void;
}

/** Requests to servers beside the cluster. */
export interface HttpClient {
  /** Sends a request. Returns a function that ends it, harmless afterwards. Nothing is bounded in time here. */
  post(request: HttpPost, listener: HttpListener): () => void;
}
