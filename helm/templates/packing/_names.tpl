{{- /* The value is absent in an upgrade with --reuse-values from a chart without it. */}}
{{- define "rollbox.packing" -}}
{{- if dig "enabled" false (.Values.packing | default dict) }}true{{ end }}
{{- end }}

{{- /* No two schedulers of a cluster may have the same name. */}}
{{- define "rollbox.schedulerName" -}}
{{- printf "%s-%s" .Release.Namespace (include "rollbox.name" (list . "scheduler")) }}
{{- end }}
