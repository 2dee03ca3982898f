{{- /* Whether sandboxes may reach hosts outside; the values are absent in an upgrade with --reuse-values from a chart without. */}}
{{- define "rollbox.egress" -}}
{{- if dig "enabled" false (.Values.egress | default dict) }}true{{ end }}
{{- end }}

{{- /* Whether it has a package cache. */}}
{{- define "rollbox.packages" -}}
{{- if and (include "rollbox.egress" .) (dig "packages" "enabled" false (.Values.egress | default dict)) }}true{{ end }}
{{- end }}

{{- /* What pods that connect to addresses of the outside may reach: everything but what is the cluster's. */}}
{{- define "rollbox.outside" -}}
- ipBlock:
    cidr: 0.0.0.0/0
    except:
      {{- range concat (include "rollbox.privateRanges" . | fromJsonArray) .Values.egress.blockedCidrs | uniq }}
      {{- if not (contains ":" .) }}
      - {{ . }}
      {{- end }}
      {{- end }}
- ipBlock:
    cidr: 2000::/3
    {{- $six := list }}{{ range .Values.egress.blockedCidrs }}{{ if hasPrefix "2" . }}{{ if contains ":" . }}{{ $six = append $six . }}{{ end }}{{ end }}{{ end }}
    {{- with $six }}
    except: {{- toYaml . | nindent 6 }}
    {{- end }}
{{- range .Values.egress.allowedPrivateCidrs }}
- ipBlock: {cidr: {{ . | quote }}}
{{- end }}
{{- end }}

{{- define "rollbox.egressServing" -}}
{{- if include "rollbox.egress" . }}
- {name: ROLLBOX_CONTROLPLANE_EGRESS_PORT, value: {{ .Values.egress.port | quote }}}
- {name: ROLLBOX_CONTROLPLANE_FEED_KEY_FILE, value: /etc/rollbox/feed/key}
- {name: ROLLBOX_CONTROLPLANE_EGRESS_POLICY, value: {{ .Values.egress.policy | quote }}}
{{- if include "rollbox.packages" . }}
- {name: ROLLBOX_CONTROLPLANE_EGRESS_PACKAGES, value: {{ keys .Values.egress.packages.indexes | sortAlpha | join "," | quote }}}
{{- end }}
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
