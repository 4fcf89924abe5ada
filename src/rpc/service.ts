/** What calls are for: the work of a node, or who is there. A label of metrics. */
export type RpcService = 'control' | 'discovery';
