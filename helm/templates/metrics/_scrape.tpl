{{- /* Annotations of a pod that is scraped. Argument: (list . PORT). Values of an older release have no `metrics`. */}}
{{- define "rollbox.scrape" -}}
{{- if dig "annotations" true ((index . 0).Values.metrics | default dict) }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ index . 1 | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end }}
