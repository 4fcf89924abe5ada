import type { Endpoint } from './network.js';

/** Certificates for a request over TLS, in PEM. */
export interface HttpTls {
  /** Authorities that may have signed the server's certificate; undefined: those that the system trusts. */
  readonly ca?: string | undefined;
  /** The certificate that this side presents, with its key. */
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** A request with a JSON body. */
export interface HttpPost {
  readonly endpoint: Endpoint;
  readonly path: string;
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Undefined: the request is not encrypted. */
  readonly tls?: HttpTls | undefined;
}

/** Headers of a response, by lower-case name. */
export type HttpHeaders = Readonly<Record<string, string>>;

/** Receives the response to a request as it arrives. */
export interface HttpListener {
  /** Called first, with the status; `headers` are given only for requests of {@link HttpConnections}. */
  onHead(status: number, headers?: HttpHeaders): void;
  /** Called with bytes of the body, which belong to the listener. */
  onData(bytes: Uint8Array): void;
  /** Called last, once: without an error the response is complete. Not called after the request was cancelled. */
  onEnd(error?: Error): void;
}

/** A server that receives many requests. */
export interface HttpServerAddress {
  readonly endpoint: Endpoint;
  /** Undefined: requests are not encrypted. */
  readonly tls?: HttpTls | undefined;
  /** The most connections open at a time; further requests wait for one. */
  readonly connectionsMaxCount: number;
}

/** A request of {@link HttpConnections}. */
export interface HttpRequest {
  readonly method: 'GET' | 'HEAD' | 'PUT' | 'DELETE';
  /** The path with its query. */
  readonly path: string;
  readonly headers: HttpHeaders;
  /** The body, part by part; it is in use until the request ends. */
  readonly body?: readonly Uint8Array[] | undefined;
}

/** Connections to one server, each used for one request after the other. */
export interface HttpConnections {
  /** Sends a request. Returns a function that cancels it (harmless afterwards). Sets no timeout. */
  send(request: HttpRequest, listener: HttpListener): () => void;
  /** Closes all connections; requests in flight end with an error. */
  close(): void;
}

/** Requests to servers outside the cluster. */
export interface HttpClient {
  /** Sends a request. Returns a function that cancels it (harmless afterwards). Sets no timeout. */
  post(request: HttpPost, listener: HttpListener): () => void;
  /** Connections to a server, opened on demand. Idle ones do not keep the process alive. */
  connections(server: HttpServerAddress): HttpConnections;
}
