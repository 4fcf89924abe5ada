{{- define "meshcache.enginePort" -}}
{{ .port | default (get (dict "sglang" 30000 "vllm" 8000) .kind) }}
{{- end }}

{{/* The command of SGLang, as an array. */}}
{{- define "meshcache.sglang" -}}
{{- $extra := dict "backend_name" "meshcache" "module_path" "meshcache.sglang" "class_name" "MeshCacheStorage" "interface_v1" 1 "allocator" "shm" "client_socket" "/run/meshcache/node.sock" }}
- python3
- -m
- sglang.launch_server
- --host=0.0.0.0
- --port={{ include "meshcache.enginePort" . }}
- --model-path={{ .model }}
- --page-size=64
- --enable-hierarchical-cache
- --hicache-ratio=2
- --hicache-write-policy=write_through
- --hicache-mem-layout=page_first
- --hicache-io-backend=kernel
- --hicache-storage-prefetch-policy=timeout
- --hicache-storage-backend=dynamic
- {{ printf "--hicache-storage-backend-extra-config=%s" (toJson $extra) | squote }}
{{- end }}

{{/* The command of vLLM, as an array. */}}
{{- define "meshcache.vllm" -}}
{{- $tier := dict "type" "MeshCacheTier" "module_path" "meshcache.vllm" "client_socket" "/run/meshcache/node.sock" }}
{{- $extra := dict "spec_name" "TieringOffloadingSpec" "cpu_bytes_to_use" (int64 .cpuBytes) "block_size" 64 "secondary_tiers" (list $tier) }}
{{- $transfer := dict "kv_connector" "OffloadingConnector" "kv_role" "kv_both" "kv_connector_extra_config" $extra }}
- vllm
- serve
- {{ .model }}
- --host=0.0.0.0
- --port={{ include "meshcache.enginePort" . }}
- {{ printf "--kv-transfer-config=%s" (toJson $transfer) | squote }}
{{- end }}
