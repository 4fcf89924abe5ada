/** Purpose of calls, a label of metrics: the work of a node (`control`), or which nodes are members (`discovery`). */
export type RpcService = 'control' | 'discovery';
