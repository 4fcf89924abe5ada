import http from 'node:http';
import https from 'node:https';
import type { HttpClient, HttpConnections, HttpListener, HttpServerAddress } from '../base/environment/http-client.js';

/** Silence on a connection after which the system probes whether the other side still exists. */
const KEEP_ALIVE_MS = 10_000;
/** Longest time that an idle connection stays open. Servers close theirs a few seconds later. */
const IDLE_TIMEOUT_MS = 4_000;

/** HTTP client of this machine. Each `post` has its own connection, so that none is left behind. */
export const systemHttp: HttpClient = {
  post({ endpoint: { host, port }, path, body, headers, tls }, listener) {
    const bytes = Buffer.from(body);
    const options = {
      ...{ host, port, path, method: 'POST', agent: false as const },
      headers: { 'content-type': 'application/json', 'content-length': bytes.length, ...headers },
    };
    const request = tls === undefined ? http.request(options) : https.request({ ...options, ...tls });
    // An answer may last for days, so a connection that has died silently must be noticed.
    request.setSocketKeepAlive(true, KEEP_ALIVE_MS);
    return follow(request, listener, () => request.end(bytes));
  },
  connections: openConnections,
};

function openConnections({ endpoint: { host, port }, tls, connectionsMaxCount }: HttpServerAddress): HttpConnections {
  const settings = { keepAlive: true, maxSockets: connectionsMaxCount, timeout: IDLE_TIMEOUT_MS };
  const agent = tls === undefined ? new http.Agent(settings) : new https.Agent({ ...settings, ...tls });
  return {
    send({ method, path, headers, body = [] }, listener) {
      const options = { host, port, path, method, headers, agent };
      const request = tls === undefined ? http.request(options) : https.request({ ...options, ...tls });
      return follow(request, listener, () => {
        for (const part of body) request.write(part);
        request.end();
      });
    },
    close: () => agent.destroy(),
  };
}

/** Sends a request with `send` and passes on its answer. Returns a function that ends it. */
function follow(request: http.ClientRequest, listener: HttpListener, send: () => void): () => void {
  let isOver = false;
  const end = (error?: Error): void => {
    if (isOver) return;
    isOver = true;
    listener.onEnd(error);
  };
  request.on('response', (response) => {
    if (isOver) return;
    listener.onHead(response.statusCode ?? 0, response.headers as Record<string, string>);
    response.on('data', (chunk: Buffer) => {
      if (!isOver) listener.onData(chunk);
    });
    // If a body ends before its announced length, `aborted` is emitted and the body is not complete.
    response.on('end', () => end(response.complete ? undefined : new Error('the answer has been cut off')));
    response.on('error', end);
    response.on('close', () => end(new Error('the connection has ended before the answer')));
  });
  request.on('error', end);
  send();
  return () => {
    isOver = true;
    request.destroy();
  };
}
