{{- /*
Whether the release's Redis has a volume: "true" or "". `auto` is decided once, before the StatefulSet exists, by
whether the cluster has a default StorageClass: the volumes of a StatefulSet cannot be changed, and removing one would
lose its data. Without access to the cluster `lookup` finds nothing, so `auto` always means no volume there.
*/}}
{{- define "rollbox.redisVolume" -}}
{{- $wish := .Values.redis.persistence.enabled | toString }}
{{- $name := include "rollbox.name" (list . "redis") }}
{{- $there := lookup "apps/v1" "StatefulSet" .Release.Namespace $name }}
{{- if $there }}
{{- $has := not (empty $there.spec.volumeClaimTemplates) | toString }}
{{- if not (has $wish (list "auto" $has)) }}
{{- fail (printf "redis.persistence.enabled is %s, but the Redis of this release was installed with %s, and a StatefulSet's volumes cannot be changed: set it to auto, which keeps what is there, or let Redis begin anew (kubectl -n %s delete statefulset %s, then upgrade): sandboxes run on, tombstones and idempotency keys are lost" $wish $has .Release.Namespace $name) }}
{{- end }}
{{- eq $has "true" | ternary "true" "" }}
{{- else if ne $wish "auto" }}
{{- eq $wish "true" | ternary "true" "" }}
{{- else if .Values.redis.persistence.storageClass }}true
{{- else }}
{{- include "rollbox.defaultStorageClass" . }}
{{- end }}
{{- end }}

{{- define "rollbox.defaultStorageClass" -}}
{{- $default := "" }}
{{- range (lookup "storage.k8s.io/v1" "StorageClass" "" "").items }}
{{- if eq "true" (get (.metadata.annotations | default dict) "storageclass.kubernetes.io/is-default-class") }}{{ $default = "true" }}{{ end }}
{{- end }}
{{- $default }}
{{- end }}
