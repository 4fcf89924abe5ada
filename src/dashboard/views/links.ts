const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;
const ENDPOINT = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+):(\d{1,5})$/i;
/** A host that means every address, and names none. */
const UNSPECIFIED = /^(0\.0\.0\.0|\[::\])$/;

export interface Reader {
  /** Host by which the reader's browser reached this page. */
  readonly ownHost: string;
  /** `host:port` by which nodes reach the node. Its host is used if the metrics server listens on every address. */
  readonly controlEndpoint: string;
  /** Whether the node's metrics server speaks TLS. */
  readonly isTls?: boolean;
}

/** Address of a node's own dashboard; null if the reader cannot reach it, or it is not an address. */
export function dashboardLink(metricsEndpoint: string, { ownHost, controlEndpoint, isTls }: Reader): string | null {
  const metrics = ENDPOINT.exec(metricsEndpoint);
  const control = ENDPOINT.exec(controlEndpoint);
  const host = metrics !== null && UNSPECIFIED.test(metrics[1] as string) ? control?.[1] : metrics?.[1];
  if (metrics === null || host === undefined || UNSPECIFIED.test(host) || Number(metrics[2]) > 65_535) return null;
  if (LOOPBACK.test(host) && !LOOPBACK.test(ownHost)) return null;
  return `${isTls ? 'https' : 'http'}://${host}:${metrics[2]}/`;
}
