{{/* The container of a node. */}}
{{- define "meshcache.container" -}}
{{- $values := .root.Values }}
{{- $zoneFromMachine := eq $values.zone.from "machine" }}
{{- $httpsProbe := or (hasKey $values.config "metrics_tls_cert_file") (hasKey .config "metrics_tls_cert_file") }}
- name: meshcache
  image: {{ include "meshcache.image" .root }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  {{- if .sidecar }}
  # It starts before the engine. When the pod ends, it drains while the engine ends.
  restartPolicy: Always
  {{- end }}
  command: [meshcache]
  args: [node, --json{{ if $zoneFromMachine }}, --config, /etc/meshcache-zone/node.json{{ end }}]
  envFrom:
    - configMapRef:
        name: {{ .name }}
  env:
    # The same name after a restart: the ring of owners stays the same.
    - name: MESHCACHE_NODE_ID
      valueFrom:
        fieldRef:
          fieldPath: {{ .nodeId }}
    # With hostNetwork, the address of the machine.
    - name: MESHCACHE_LOCAL_HOSTNAME
      valueFrom:
        fieldRef:
          fieldPath: status.podIP
    - name: MESHCACHE_METRICS_HOST
      valueFrom:
        fieldRef:
          fieldPath: status.podIP
    {{- if eq $values.zone.from "pod" }}
    - name: MESHCACHE_ZONE
      valueFrom:
        fieldRef:
          fieldPath: metadata.labels['{{ $values.zone.label }}']
    {{- end }}
    - name: MESHCACHE_METRICS_TOKEN
      valueFrom:
        secretKeyRef:
          name: {{ $values.secret.name }}
          key: {{ $values.secret.metricsTokenKey }}
    {{- range $key, $secret := $values.secretConfig }}
    - name: MESHCACHE_{{ upper $key }}
      valueFrom:
        secretKeyRef:
          {{- toYaml $secret | nindent 10 }}
    {{- end }}
    {{- if $values.secret.drainTokenKey }}
    - name: MESHCACHE_TOKEN_FILE
      value: /etc/meshcache/drain-token
    {{- end }}
  # With hostNetwork they reserve the ports on the machine, so that no other such pod is placed there.
  ports:
    - name: discovery
      containerPort: {{ $values.ports.discovery }}
    - name: control
      containerPort: {{ $values.ports.control }}
    - name: data
      containerPort: {{ $values.ports.tcp }}
    {{- if $values.rdma.enabled }}
    - name: rdma
      containerPort: {{ $values.ports.rdma }}
    {{- end }}
    - name: metrics
      containerPort: {{ $values.ports.metrics }}
  lifecycle:
    preStop:
      exec:
        # The node leaves without a burst of misses: others copy what they read there. It then ends by itself. If no other
        # node answers, the command fails, and SIGTERM follows at once.
        command: [sh, -c, 'exec meshcache drain "$MESHCACHE_NODE_ID" --timeout {{ $values.drainSeconds }}']
  {{- if .sidecar }}
  # The engine starts when the socket is there.
  startupProbe:
    tcpSocket:
      port: metrics
    periodSeconds: 1
    failureThreshold: 120
  {{- end }}
  # The metrics server answers, so the process works. A restart does not help an unhealthy node.
  livenessProbe:
    tcpSocket:
      port: metrics
    initialDelaySeconds: 30
    periodSeconds: 10
    failureThreshold: 6
  readinessProbe:
    httpGet:
      path: /healthz
      port: metrics
      {{- if $httpsProbe }}
      scheme: HTTPS
      {{- end }}
    periodSeconds: 5
    timeoutSeconds: 2
  resources:
    # They follow from the pool. Above the limit the kernel ends the node.
    requests:
      cpu: {{ .cpu | quote }}
      memory: {{ include "meshcache.memoryMib" . }}Mi
    limits:
      memory: {{ include "meshcache.memoryMib" . }}Mi
      {{- if .pool.hugepages }}
      hugepages-2Mi: {{ include "meshcache.keptMib" .pool }}Mi
      {{- end }}
      {{- if $values.rdma.enabled }}
      # The plugin puts /dev/infiniband into the container.
      {{ $values.rdma.resource }}: {{ $values.rdma.count }}
      {{- end }}
  # RDMA locks the pool in memory.
  {{- include "meshcache.securityContext" (dict "add" (ternary (list "IPC_LOCK") list $values.rdma.enabled)) | nindent 2 }}
  volumeMounts:
    - name: sockets
      mountPath: /run/meshcache
    - name: cluster-secret
      mountPath: /etc/meshcache
      readOnly: true
    {{- if ne .pool.keep "process" }}
    # The pool is in a folder below it.
    - name: pool
      mountPath: /var/lib/meshcache
    {{- end }}
    {{- if .disk.enabled }}
    - name: disk
      mountPath: /var/cache/meshcache
      {{- if .diskSubPath }}
      # A new file system has a folder lost+found.
      subPath: {{ .diskSubPath }}
      {{- end }}
    {{- end }}
    {{- if $zoneFromMachine }}
    - name: zone
      mountPath: /etc/meshcache-zone
      readOnly: true
    {{- end }}
    {{- range $values.secretMounts }}
    - name: secret-{{ . }}
      mountPath: /etc/meshcache-secrets/{{ . }}
      readOnly: true
    {{- end }}
    - name: tmp
      mountPath: /tmp
{{- end }}

{{/* The volumes of a node, but for the one of its disk. */}}
{{- define "meshcache.volumes" -}}
{{- $values := .root.Values }}
# Pods of engines mount the folder of the machine.
- name: sockets
  {{- if .socketPath }}
  hostPath:
    path: {{ .socketPath }}
    type: DirectoryOrCreate
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: cluster-secret
  secret:
    secretName: {{ $values.secret.name }}
    defaultMode: 256 # 0400 in octal digits
    items:
      - key: {{ $values.secret.clusterSecretKey }}
        path: cluster-secret
      {{- with $values.secret.drainTokenKey }}
      - key: {{ . }}
        path: drain-token
      {{- end }}
{{- if eq .pool.keep "machine" }}
# In the memory of the machine, so that the next pod there finds the pages.
- name: pool
  hostPath:
    path: {{ .pool.path }}
    type: DirectoryOrCreate
{{- else if eq .pool.keep "pod" }}
- name: pool
  emptyDir:
    {{- if .pool.hugepages }}
    medium: HugePages-2Mi
    {{- else }}
    medium: Memory
    sizeLimit: {{ include "meshcache.keptMib" .pool }}Mi
    {{- end }}
{{- end }}
{{- if eq $values.zone.from "machine" }}
- name: zone
  emptyDir: {}
- name: token
  projected:
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
{{- end }}
{{- range $values.secretMounts }}
- name: secret-{{ . }}
  secret:
    secretName: {{ . }}
    defaultMode: 256
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- end }}
