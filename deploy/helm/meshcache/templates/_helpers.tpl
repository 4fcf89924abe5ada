{{/*
The name of the release, which all objects have or begin with. A label of each pod of a StatefulSet has its name and 11
characters, and room for 63: 31 leave room for the name of an engine. A longer name keeps what tells it from others.
*/}}
{{- define "meshcache.name" -}}
{{- $name := .Release.Name -}}
{{- if gt (len $name) 31 }}{{ $name = printf "%s-%s" ($name | trunc 24 | trimSuffix "-") ($name | sha256sum | trunc 6) }}{{ end -}}
{{ $name }}
{{- end }}

{{/* The name of objects that belong to no namespace: releases in two namespaces may have one name. */}}
{{- define "meshcache.clusterName" -}}
{{ include "meshcache.name" . }}-{{ .Release.Namespace }}
{{- end }}

{{/* Labels by which nodes of this release are found. */}}
{{- define "meshcache.selector" -}}
app.kubernetes.io/name: meshcache
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "meshcache.labels" -}}
{{ include "meshcache.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "meshcache.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Ends with an error for values that the schema cannot compare with each other. */}}
{{- define "meshcache.check" -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" .Release.Name) }}
{{- fail (printf "the name of the release is %s, and its Service cannot have it: begin with a letter, and use no dots" .Release.Name) }}
{{- end }}
{{- $ports := values .Values.ports }}
{{- if ne (len (uniq $ports)) (len $ports) }}{{ fail "ports: each must be another one, because the nodes of a machine share its network" }}{{ end }}
{{- $names := list }}
{{- if .Values.storage.enabled }}{{ $names = list "storage" }}{{ end }}
{{- range .Values.engines }}{{ $names = append $names .name }}{{ end }}
{{- if ne (len (uniq $names)) (len $names) }}
{{- fail (printf "engines: each name must be another one, and not storage beside storage nodes; they are %s" (join ", " $names)) }}
{{- end }}
{{- end }}

{{/* MiB of a size such as 32gb, rounded up. The schema allows whole numbers of mb, gb and tb only. */}}
{{- define "meshcache.mib" -}}
{{- $count := regexFind "^[0-9]+" . | int64 }}
{{- $unit := regexFind "[a-z]+$" . }}
{{- mul $count (get (dict "mb" 1 "gb" 1024 "tb" 1048576) $unit) }}
{{- end }}

{{/* MiB of the files of a pool that is kept: the pool, a 32nd of it for the index, and the rest of a huge page. */}}
{{- define "meshcache.keptMib" -}}
{{- $pool := include "meshcache.mib" .size | int64 }}
{{- mul 2 (div (add $pool (div (add $pool 31) 32) 3) 2) }}
{{- end }}

{{/* MiB of memory of a node's container, huge pages not counted. */}}
{{- define "meshcache.memoryMib" -}}
{{- $beyond := include "meshcache.mib" .root.Values.memoryBeyondPool | int64 }}
{{- if eq .pool.keep "process" }}{{ add $beyond (include "meshcache.mib" .pool.size) }}
{{- else if .pool.hugepages }}{{ $beyond }}
{{- else }}{{ add $beyond (include "meshcache.keptMib" .pool) }}
{{- end }}
{{- end }}

{{- define "meshcache.discoveryAddr" -}}
{{- $service := printf "%s.%s.svc.%s" (include "meshcache.name" .) .Release.Namespace .Values.clusterDomain }}
{{- .Values.discoveryAddr | default (printf "dns://%s:%v" $service .Values.ports.discovery) }}
{{- end }}

{{/* The settings of a node, as variables. Helm has numbers as floating-point numbers: whole ones are written as such. */}}
{{- define "meshcache.settings" -}}
{{- $ports := .root.Values.ports }}
{{- $settings := dict
  "discovery_addr" (include "meshcache.discoveryAddr" .root)
  "protocol" (ternary "rdma" "tcp" .root.Values.rdma.enabled)
  "global_segment_size" .pool.size
  "cluster_secret_file" "/etc/meshcache/cluster-secret"
  "discovery_port" $ports.discovery "control_port" $ports.control "tcp_port" $ports.tcp "rdma_port" $ports.rdma "metrics_port" $ports.metrics
  "role" .role
  "client_socket" "/run/meshcache/node.sock"
}}
{{- if ne .pool.keep "process" }}{{ $_ := set $settings "pool_path" "/var/lib/meshcache/pool" }}{{ end }}
{{- if .disk.enabled }}
{{- $_ := merge $settings (dict "disk_enabled" true "disk_path" "/var/cache/meshcache" "disk_size" .disk.size) }}
{{- end }}
{{- $all := dict }}
{{- range list .root.Values.config .config $settings }}
{{- range $key, $value := . }}{{ $_ := set $all $key $value }}{{ end }}
{{- end }}
{{- range $key, $value := $all }}
{{- $text := toString $value }}
{{- if kindIs "float64" $value }}{{ if eq $value (floor $value) }}{{ $text = int64 $value | toString }}{{ end }}{{ end }}
MESHCACHE_{{ upper $key }}: {{ $text | quote }}
{{- end }}
MESHCACHE_LOG: {{ .root.Values.log }}
{{- end }}

{{/* The ConfigMap of a kind of nodes. */}}
{{- define "meshcache.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "meshcache.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
data:
  {{- include "meshcache.settings" . | trim | nindent 2 }}
{{- end }}

{{- define "meshcache.podMetadata" -}}
labels:
  {{- include "meshcache.selector" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ .root.Values.ports.metrics | quote }}
  prometheus.io/path: /metrics
  # A changed setting restarts the pods.
  meshcache/settings: {{ include "meshcache.settings" . | sha256sum | trunc 16 }}
{{- end }}

{{/* What all pods with a node have. */}}
{{- define "meshcache.pod" -}}
{{- $values := .root.Values }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or $values.priorityClass.create $values.priorityClass.name }}
priorityClassName: {{ include "meshcache.priorityClass" .root }}
{{- end }}
{{- if .hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- if eq $values.zone.from "machine" }}
serviceAccountName: {{ include "meshcache.name" .root }}
{{- end }}
# Only the init container that asks for the zone mounts a token.
automountServiceAccountToken: false
# Kubernetes would set MESHCACHE_METRICS_PORT and the like for services of such names.
enableServiceLinks: false
{{- end }}

{{- define "meshcache.priorityClass" -}}
{{ .Values.priorityClass.name | default (include "meshcache.clusterName" .) }}
{{- end }}

{{/* Asks the API server for the label of the machine, and writes it as a configuration file. */}}
{{- define "meshcache.zoneContainer" -}}
- name: zone
  image: {{ include "meshcache.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [node, --input-type=module, -e]
  args:
    - |
      {{- .root.Files.Get "files/zone.mjs" | nindent 6 }}
  env:
    - name: NODE_NAME
      valueFrom:
        fieldRef:
          fieldPath: spec.nodeName
    - name: ZONE_LABEL
      value: {{ .root.Values.zone.label }}
    - name: CONFIG_FILE
      value: /etc/meshcache-zone/node.json
    - name: TOKEN_FILE
      value: /var/run/secrets/kubernetes.io/serviceaccount/token
    - name: NODE_EXTRA_CA_CERTS
      value: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
  resources:
    requests: {cpu: 10m, memory: 128Mi}
    limits: {memory: 128Mi}
  {{- include "meshcache.securityContext" (dict "add" list) | nindent 2 }}
  volumeMounts:
    - name: zone
      mountPath: /etc/meshcache-zone
    - name: token
      mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      readOnly: true
{{- end }}

{{- define "meshcache.securityContext" -}}
securityContext:
  # The folders of the machine belong to root. This root has no capability.
  runAsUser: 0
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  seccompProfile:
    type: RuntimeDefault
  capabilities:
    drop: [ALL]
    {{- with .add }}
    add: {{ toJson . }}
    {{- end }}
{{- end }}
