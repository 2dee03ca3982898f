{{- /* Whether sandboxes may reach hosts outside; the values are absent in an upgrade with --reuse-values from a chart without. */}}
{{- define "rollbox.egress" -}}
{{- if dig "enabled" false (.Values.egress | default dict) }}true{{ end }}
{{- end }}

{{- define "rollbox.egressServing" -}}
{{- if include "rollbox.egress" . }}
- {name: ROLLBOX_CONTROLPLANE_EGRESS_PORT, value: {{ .Values.egress.port | quote }}}
- {name: ROLLBOX_CONTROLPLANE_EGRESS_POLICY, value: {{ .Values.egress.policy | quote }}}
{{- if .Values.egress.presets }}
- {name: ROLLBOX_CONTROLPLANE_EGRESS_PRESETS_FILE, value: /etc/rollbox/egress/presets.json}
{{- end }}
{{- end }}
{{- end }}

{{- define "rollbox.egressMounts" -}}
{{- if and (include "rollbox.egress" .) .Values.egress.presets }}
- {name: egress, mountPath: /etc/rollbox/egress, readOnly: true}
{{- end }}
{{- end }}

{{- define "rollbox.egressVolumes" -}}
{{- if and (include "rollbox.egress" .) .Values.egress.presets }}
- {name: egress, configMap: {name: {{ include "rollbox.name" (list . "egress") }}-presets}}
{{- end }}
{{- end }}
