{{- /* Whether sandboxes may reach hosts outside; the values are absent in an upgrade with --reuse-values from a chart without. */}}
{{- define "rollbox.egress" -}}
{{- if dig "enabled" false (.Values.egress | default dict) }}true{{ end }}
{{- end }}

{{- define "rollbox.egressServing" -}}
{{- if include "rollbox.egress" . }}
- {name: ROLLBOX_CONTROLPLANE_EGRESS_PORT, value: {{ .Values.egress.port | quote }}}
- {name: ROLLBOX_CONTROLPLANE_FEED_KEY_FILE, value: /etc/rollbox/feed/key}
- {name: ROLLBOX_CONTROLPLANE_EGRESS_POLICY, value: {{ .Values.egress.policy | quote }}}
{{- if .Values.egress.presets }}
- {name: ROLLBOX_CONTROLPLANE_EGRESS_PRESETS_FILE, value: /etc/rollbox/egress/presets.json}
{{- end }}
{{- end }}
{{- end }}

{{- define "rollbox.egressMounts" -}}
{{- if include "rollbox.egress" . }}
{{ include "rollbox.feedMount" . }}
{{- if .Values.egress.presets }}
- {name: egress, mountPath: /etc/rollbox/egress, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "rollbox.egressVolumes" -}}
{{- if include "rollbox.egress" . }}
{{ include "rollbox.feedVolume" . }}
{{- if .Values.egress.presets }}
- {name: egress, configMap: {name: {{ include "rollbox.name" (list . "egress") }}-presets}}
{{- end }}
{{- end }}
{{- end }}

{{- /* The key of the feed, which the control plane asks egress for. */}}
{{- define "rollbox.feedMount" -}}
- {name: feed, mountPath: /etc/rollbox/feed, readOnly: true}
{{- end }}

{{- define "rollbox.feedVolume" -}}
- {name: feed, secret: {secretName: {{ include "rollbox.feedSecret" . }}, items: [{key: key, path: key}]}}
{{- end }}

{{- define "rollbox.feedChecksum" -}}
rollbox.dev/feed-key: {{ (include "rollbox.generated" . | fromYaml).feed | sha256sum | trunc 16 | quote }}
{{- end }}
