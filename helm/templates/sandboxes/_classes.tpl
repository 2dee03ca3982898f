{{- /* Whether nodes pull lazily. The value is absent in an upgrade with --reuse-values from a chart without it. */}}
{{- define "rollbox.lazyPulling" -}}
{{- if dig "enabled" false (.Values.lazyPulling | default dict) }}true{{ end }}
{{- end }}
{{- /* The beginnings of the names of images that nodes mount lazily: what the mirror converts is among them. */}}
{{- define "rollbox.lazyImages" -}}
{{- $images := .Values.lazyPulling.images | default list }}
{{- if include "rollbox.registry" . }}{{ $images = append $images (printf "%s/estargz/" (include "rollbox.registryHost" .)) | uniq }}{{ end }}
{{- if not $images }}{{ fail "lazyPulling.images is empty, so nothing would be pulled lazily: name what nodes mount, or enable the private registry (registry.enabled), whose mirror converts images" }}{{ end }}
{{- join "," $images }}
{{- end }}
{{- define "rollbox.lazyRuntimeClass" -}}
{{ .Values.runtimeClass.name }}-lazy
{{- end }}
{{- /* Whether sandboxes get devices. The value is absent in an upgrade with --reuse-values from a chart without it. */}}
{{- define "rollbox.gpu" -}}
{{- if dig "deviceClass" "" (.Values.gpu | default dict) }}true{{ end }}
{{- end }}
{{- /* The runtime class of such sandboxes; empty: that of all others. */}}
{{- define "rollbox.gpuRuntimeClass" -}}
{{- if dig "handler" "" (.Values.gpu | default dict) }}
{{- if not (include "rollbox.gpu" .) }}{{ fail "gpu.handler is the runtime of sandboxes with devices, and gpu.deviceClass does not say which devices they get" }}{{ end -}}
{{ .Values.runtimeClass.name }}-gpu
{{- end }}
{{- end }}
{{- define "rollbox.gpuClaimTemplate" -}}
{{ .Release.Name }}-gpu
{{- end }}
{{- define "rollbox.runtimeClassBody" }}
handler: {{ .Values.runtimeClass.handler }}
{{- with .Values.runtimeClass.overhead }}
overhead:
  podFixed: {{- toYaml . | nindent 4 }}
{{- end }}
{{- with .Values.runtimeClass }}
{{- if or .nodeSelector .tolerations }}
scheduling:
  {{- with .nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
